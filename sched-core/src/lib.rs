//! A fair scheduler for kernels: `no_std`, no allocation, no globals, no world of its own.
//!
//! The crate decides who runs where; the embedder's kernel switches stacks, owns the memory and knows the machine.
//!
//! # Design principles
//!
//! 1. **Decide, do not act.** [`Scheduler::schedule`] returns a [`Decision`]; the kernel carries it out.
//! 2. **Three facts about the machine**, no more: the time, this CPU, kick that CPU ([`Platform`]).
//! 3. **Observers cost nothing when off.** Each stands behind a [`Gate`] chosen by type in [`Config`].
//! 4. **Numbers are true.** Every counter has a one-line definition and obeys a law that a test checks.
//! 5. **The same code everywhere**: in unit tests, under a checker, in the kernel.
//!
//! # Using it
//!
//! Put a [`SchedTask`] into your task type, name your choices in a [`Config`], implement [`Platform`],
//! give the scheduler one [`CpuQueue`] per CPU, and call it with interrupts off ([`IrqOff`]):
//!
//! - [`Scheduler::bring_online`] once on each CPU, with its idle task;
//! - [`Scheduler::spawn`] for a new task;
//! - [`Scheduler::prepare`], check, [`Scheduler::schedule`] to sleep; [`Scheduler::wake`] from anywhere;
//! - [`Scheduler::tick`] from the timer; [`Scheduler::need_resched`] on the way out of interrupts;
//! - [`Scheduler::finish_switch`] first thing after every context switch.
//!
//! `examples/one_cpu.rs` is a whole embedder in 60 lines.
//!
//! # Floors
//!
//! A module imports only from its own floor or from floors further down:
//! `internals`, `text`; `scheduler`; `cpu`; `queue`; `load`, `policy`; `members`; `config`, `task`; `stats`; `timeline`; `entity`; `params`; `pelt`;
//! `weight`; `vtime`; `topology`; `mask`; `features`, `gate`, `sync`; `platform`, `token`.
#![no_std]
#![warn(missing_docs)]

#[cfg(any(test, feature = "model"))]
extern crate std;

mod config;
mod cpu;
mod entity;
mod features;
mod gate;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod load;
mod mask;
mod members;
mod params;
mod pelt;
mod platform;
mod policy;
mod queue;
mod scheduler;
mod stats;
mod sync;
mod task;
pub mod text;
mod timeline;
mod token;
mod topology;
mod vtime;
mod weight;

/// Plays any bytes beside the exact models of the fair queue. For this workspace's fuzzer; no promise.
#[cfg(feature = "model")]
#[doc(hidden)]
pub fn follow_model(script: &[u8]) {
    queue::model::follow(script);
}

pub use config::Config;
pub use cpu::CpuQueue;
pub use entity::SchedEntity;
pub use features::{Feature, FeatureError, FeatureSet, Fixed, Switchable};
pub use gate::{Gate, Never, Nothing, Present, State, Store, Switch};
pub use mask::{CpuMask, Mask, Mask64, Mask256, Mask1024, MaskWords, SharedMask};
pub use params::{Algorithm, CfsTunables, Policy, Slice, TaskParams, Tunables};
pub use pelt::Signals;
pub use platform::{CpuId, Nanos, Platform};
pub use scheduler::{Decision, Error, Faults, Gates, Reason, Rejected, Scheduler, Sleep, Spawn, Target, Woken};
pub use stats::{
    psi::{Average as PressureAverage, Pressure},
    schedstat::{CpuStats, TaskStats},
    watch::{IdleWhileWaiting, WatchReport},
};
pub use sync::{Cell, Family, RawLock, Spin, Word};
pub use task::{SchedTask, SleepKind, TaskPtr, TaskState};
pub use token::IrqOff;
pub use topology::{Level, Place};
pub use vtime::{VSpan, VTime};
pub use weight::{Nice, NiceOutOfRange, Weight};
