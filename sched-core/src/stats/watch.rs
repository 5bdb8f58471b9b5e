//! # What it is
//! The work-conservation watch: does a CPU stay idle while a task that may run there waits on another one?
//!
//! # How it works
//! A CPU keeps since when it has been idle, a task since when it has waited on a queue without running.
//! The tick of a CPU on which somebody waits looks at the idle CPUs, and where one has been idle for longer than the bound,
//! at the masks of the first of those who wait ([`LOOKED_AT`] of them).
//! A *violation* is a stretch of idleness during which, for longer than the bound, one task that may run there waited elsewhere.
//! It is counted once, however often it is seen; its length is the longest that was seen.
//!
//! # Invariants
//! 1. A stretch of idleness is counted at most once.
//! 2. The length of a violation never exceeds the idleness or the wait that it is made of; the worst is the longest of all.
//! 3. A task that sleeps (a delayed one too) or runs does not wait.
//!
//! # Cost
//! When on: a store a switch and a wake-up, and at the tick of a CPU on which somebody waits one line of every other CPU.
//! A violation that ends before the next tick of the CPU on which the task waits is not seen.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::{
    platform::{CpuId, Nanos},
    sync::{Family, Lock, Word},
};

/// How many of those who wait are looked at: this bounds the time under the queue's lock.
pub(crate) const LOOKED_AT: usize = 64;

/// From when on idleness counts, until [`set_idle_bound`](crate::Scheduler::set_idle_bound) says otherwise: 100 ms.
pub(crate) const DEFAULT_BOUND: Nanos = 100_000_000;

/// A CPU was idle while a task that may run there waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleWhileWaiting {
    /// The CPU that was idle.
    pub idle: CpuId,
    /// The CPU for which the task waited.
    pub waits_on: CpuId,
    /// How long, in nanoseconds, as far as it was seen.
    pub nanos: Nanos,
}

/// What the watch has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchReport {
    /// How long a CPU may be idle while a task waits, in nanoseconds.
    pub bound: Nanos,
    /// Counts stretches of idleness that violated the bound.
    pub violations: u64,
    /// The longest of them.
    pub worst: Option<IdleWhileWaiting>,
}

/// The watch's part of a CPU. Written by its CPU, `counted` by who finds a violation.
#[repr(align(64))]
pub(crate) struct WatchCpu<F: Family> {
    /// Since when the CPU has been idle; 0: it is not.
    idle_since: F::Word,
    /// The stretch that was counted last, by its beginning.
    counted: F::Word,
}

impl<F: Family> Default for WatchCpu<F> {
    fn default() -> Self {
        Self { idle_since: Word::new(0), counted: Word::new(0) }
    }
}

impl<F: Family> WatchCpu<F> {
    /// The CPU goes idle.
    #[inline(always)]
    pub(crate) fn goes_idle(&self, now: Nanos) {
        self.idle_since.store(now.max(1), Relaxed);
    }

    /// The CPU has something to do.
    #[inline(always)]
    pub(crate) fn goes_busy(&self) {
        self.idle_since.store(0, Relaxed);
    }

    /// The beginning of the present stretch of idleness, if the CPU is idle.
    #[inline(always)]
    pub(crate) fn idle_since(&self) -> Option<Nanos> {
        Some(self.idle_since.load(Relaxed)).filter(|since| *since != 0)
    }
}

/// The watch's part of a task. Written under the lock of the queue the task is on.
pub(crate) struct WatchTask<F: Family> {
    /// Since when the task has waited; 0: it does not.
    waits_since: F::Word,
}

impl<F: Family> Default for WatchTask<F> {
    fn default() -> Self {
        Self { waits_since: Word::new(0) }
    }
}

impl<F: Family> WatchTask<F> {
    /// The task is queued and does not run.
    #[inline(always)]
    pub(crate) fn waits(&self, now: Nanos) {
        self.waits_since.store(now.max(1), Relaxed);
    }

    /// The task runs, or is on no queue, or sleeps.
    #[inline(always)]
    pub(crate) fn stops_waiting(&self) {
        self.waits_since.store(0, Relaxed);
    }

    /// How long the task has waited, if it does.
    pub(crate) fn waited(&self, now: Nanos) -> Option<Nanos> {
        let since = self.waits_since.load(Relaxed);
        (since != 0).then(|| now.saturating_sub(since))
    }
}

/// What all CPUs have found.
pub(crate) struct Watch<F: Family> {
    bound: F::Word,
    found: Lock<F, Found>,
}

struct Found {
    violations: u64,
    worst: Option<IdleWhileWaiting>,
}

impl<F: Family> Default for Watch<F> {
    fn default() -> Self {
        Self { bound: Word::new(DEFAULT_BOUND), found: Lock::new(Found { violations: 0, worst: None }) }
    }
}

impl<F: Family> Watch<F> {
    pub(crate) fn bound(&self) -> Nanos {
        self.bound.load(Relaxed)
    }

    pub(crate) fn set_bound(&self, bound: Nanos) {
        self.bound.store(bound, Relaxed);
    }

    /// `seen` goes on; `cpu` is the watch's part of the idle CPU, whose stretch began at `began`.
    #[cold]
    pub(crate) fn found(&self, seen: IdleWhileWaiting, cpu: &WatchCpu<F>, began: Nanos) {
        let mut found = self.found.lock();
        // Under the lock, so that of two finders one counts (I1).
        if cpu.counted.swap(began, Acquire) != began {
            found.violations += 1;
        }
        if found.worst.is_none_or(|worst| worst.nanos < seen.nanos) {
            found.worst = Some(seen);
        }
    }

    pub(crate) fn report(&self) -> WatchReport {
        let found = self.found.lock();
        WatchReport { bound: self.bound(), violations: found.violations, worst: found.worst }
    }
}
