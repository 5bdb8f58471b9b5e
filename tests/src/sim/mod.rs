//! A machine in a box: the shipped scheduler on virtual CPUs, in one host thread, the same every time.
//!
//! # What it is
//! [`Scenario`] says what there is (CPUs, topology, clocks, tasks); [`run`] plays it from a seed and returns an [`Outcome`]:
//! what the [`oracles`] have to object, a trace if one was asked for, and figures.
//!
//! # How it works
//! A scenario expands to [`Task`](script::Task)s, each a list of [`Op`](script::Op)s. The [`engine`] keeps the events of all CPUs
//! in one heap ordered by time, and does at each what a kernel would do: tick, wake, block, switch, kick.
//! A switch takes a while, a kick travels, each CPU has a clock of its own, and chance comes from the seed alone.
//! Calls into the scheduler are whole; what can happen in the middle of one is the subject of `sched-core/tests/races.rs`.
//! After each event the oracles look at whom it touched, and every 10 000 events, and at the end, at everything.
//!
//! Floors, from above: `shrink`, `report`; `engine`; `oracles`; `workload`, `scenario`; `fluid`, `trace`, `world`, `broken`; `script`; `topology`, `time`.
//!
//! # Invariants
//! 1. Two runs of one scenario and seed are the same, event by event, in every build.
//! 2. A run stops at the first objection, which names the oracle and the time.
//!
//! # Cost
//! About a microsecond an event in a release build.

pub mod broken;
pub mod engine;
pub mod fluid;
pub mod oracles;
pub mod scenario;
pub mod script;
pub mod shrink;
pub mod time;
pub mod topology;
pub mod trace;
pub mod workload;
pub mod world;

pub use engine::{Figures, Outcome, run};
pub use scenario::Scenario;

/// Simulated time, in nanoseconds.
pub type Nanos = u64;
/// A microsecond.
pub const US: Nanos = 1_000;
/// A millisecond.
pub const MS: Nanos = 1_000_000;
/// A second.
pub const SECOND: Nanos = 1_000_000_000;
