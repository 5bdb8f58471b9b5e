//! # What it is
//! [`Config`]: the embedder's choices as one trait.
//!
//! # How it works
//! The scheduler is generic in a `Config`, and everything in it that could be otherwise is an associated type or constant.
//! Cargo features never change behaviour behind the embedder's back.
//!
//! # Invariants
//! 1. Two configurations can be used in one program.
//!
//! # Cost
//! None at run time.

use crate::{features::FeatureSet, gate::Gate, mask::CpuMask, platform::Platform, sync::Family, task::TaskPtr};

/// What a scheduler is built from.
pub trait Config: Sized + Send + Sync + 'static {
    /// The machine: clock, CPU number, kick.
    type Platform: Platform;
    /// Words, locks and cells; [`Spin`](crate::Spin) in a kernel.
    type Sync: Family;
    /// The width of CPU sets: [`Mask64`](crate::Mask64), [`Mask256`](crate::Mask256) or [`Mask1024`](crate::Mask1024).
    type Mask: CpuMask;
    /// The embedder's owning pointer to a task; see [`task_ptr!`](crate::task_ptr).
    type Task: TaskPtr<Self>;
    /// The gate of the counters of [`CpuStats`](crate::CpuStats) and [`TaskStats`](crate::TaskStats).
    type Schedstats: Gate;
    /// The gate of pressure stall information.
    type Psi: Gate;
    /// The gate of the work-conservation watch (see [`WatchReport`](crate::WatchReport)).
    type Watch: Gate;
    /// The rules of the fair policies: [`Fixed`](crate::Fixed), or [`Switchable`](crate::Switchable) to experiment.
    type Features: FeatureSet;

    /// Ticks a second: how often every busy CPU calls [`tick`](crate::Scheduler::tick).
    const HZ: u32;

    /// The length of a tick in nanoseconds.
    const TICK_NANOS: u32 = 1_000_000_000 / Self::HZ;
}
