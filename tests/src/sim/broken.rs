//! Machines that are broken on purpose, one for each oracle: an oracle that never objects proves nothing.
//!
//! # What it is
//! [`Break`]: one thing that the engine then does wrong between the scheduler and the machine.
//!
//! # How it works
//! The engine asks at the few places where it could go wrong.
//!
//! # Invariants
//! 1. An unbroken run asks and does nothing else.
//!
//! # Cost
//! A comparison at those places.

use super::Nanos;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// The n-th wake-up is not passed on to the scheduler.
    SwallowedWakeUp(u64),
    /// From the n-th on, no kick arrives.
    LostKicks(u64),
    /// At the n-th switch the CPU continues a task that another CPU runs.
    TaskOnTwoCpus(u64),
    /// The n-th task that is preempted exits behind the engine's back.
    ForgottenTask(u64),
    /// From this time on the clock of CPU 0 is a millisecond ahead.
    LyingClock(Nanos),
    /// Task 0 is given nice 19 behind everybody's back.
    SecretNice,
}
