//! The kernel's choices for the scheduler.
//!
//! # What it is
//! [`KernelConfig`], which names every type the scheduler is built from, and [`Machine`], the three facts it asks for.
//!
//! # How it works
//! The clock is the common one of all CPUs ([`tsc`]), so every CPU's time is the caller's own.
//! A kick is the reschedule interrupt, sent when the caller's section ends ([`kick`]); its handler does nothing, because
//! the way out of every interrupt looks at the request.
//! What is compiled in follows the cargo features; whether it listens is said at boot ([`gates`]).
//!
//! # Invariants
//! 1. CPU numbers are those of [`percpu`]: counted from 0 without gaps.
//!
//! # Cost
//! None beyond that of the functions behind it.

use alloc::sync::Arc;

use sched_core::{Config, CpuId, Gates, Mask256, Nanos, Platform, Spin, State};

use crate::arch::{kick, percpu, tsc};
use crate::thread::Thread;

/// What the scheduler is built from.
pub struct KernelConfig;

/// The machine as the scheduler sees it.
pub struct Machine;

/// The gate of the counters, and of pressure stall information.
#[cfg(feature = "schedstats")]
type SchedstatsGate = sched_core::Switch;
#[cfg(not(feature = "schedstats"))]
type SchedstatsGate = sched_core::Never;
#[cfg(feature = "psi")]
type PsiGate = sched_core::Switch;
#[cfg(not(feature = "psi"))]
type PsiGate = sched_core::Never;
/// The rules of the fair policies: constants, or to be experimented with; and the watch over idle CPUs.
#[cfg(feature = "debug")]
mod debug {
    pub type FeatureSet = sched_core::Switchable;
    pub type WatchGate = sched_core::Switch;
}
#[cfg(not(feature = "debug"))]
mod debug {
    pub type FeatureSet = sched_core::Fixed;
    pub type WatchGate = sched_core::Never;
}

impl Config for KernelConfig {
    type Platform = Machine;
    type Sync = Spin;
    type Mask = Mask256;
    type Task = Arc<Thread>;
    type Schedstats = SchedstatsGate;
    type Psi = PsiGate;
    type Watch = debug::WatchGate;
    type Features = debug::FeatureSet;

    const HZ: u32 = 250;
}

impl Platform for Machine {
    #[inline(always)]
    fn now(&self, _: CpuId) -> Nanos {
        tsc::now_ns()
    }

    #[inline(always)]
    fn this_cpu(&self) -> CpuId {
        CpuId(percpu::cpu_index() as u32)
    }

    fn kick(&self, cpu: CpuId) {
        kick::later(cpu.index());
    }
}

/// The gates as they start; one that is not compiled in ignores its state.
#[cfg_attr(not(all(feature = "schedstats", feature = "psi", feature = "debug")), allow(unused_variables))]
pub fn gates(schedstats: State, psi: State, watch: State) -> Gates<KernelConfig> {
    Gates {
        #[cfg(feature = "schedstats")]
        schedstats: sched_core::Switch::new(schedstats),
        #[cfg(not(feature = "schedstats"))]
        schedstats: sched_core::Never,
        #[cfg(feature = "psi")]
        psi: sched_core::Switch::new(psi),
        #[cfg(not(feature = "psi"))]
        psi: sched_core::Never,
        #[cfg(feature = "debug")]
        watch: sched_core::Switch::new(watch),
        #[cfg(not(feature = "debug"))]
        watch: sched_core::Never,
    }
}
