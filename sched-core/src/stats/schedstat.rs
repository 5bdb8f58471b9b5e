//! # What it is
//! The scheduler's counters, per CPU and per task, with the names and meanings of Linux's schedstats.
//!
//! # How it works
//! Every counter is a word with one writer at a time, so counting is a load, an addition and a store.
//! Run delay is the time between becoming runnable and running:
//! a stamp is set when a task is queued or preempted, and settled when it runs or leaves the queue,
//! on the CPU where the time passed.
//!
//! # Invariants
//! 1. `rq_cpu_time` of a CPU plus the time its idle task ran is the time since the CPU came up, as of its last switch.
//! 2. The sum of `run_delay` over tasks equals the sum over CPUs; so does the sum of `pcount`.
//! 3. `ttwu_local` <= `ttwu_count`; `sched_goidle` <= `sched_count`.
//!
//! # Cost
//! When off: the gate. When on: a few loads and stores per event, on lines the CPU owns.
//! The caller holds the queue's lock, except for the counters of calls, which only their own CPU writes.

use core::sync::atomic::Ordering::Relaxed;

use crate::{
    platform::Nanos,
    stats::Prev,
    sync::{Family, Word},
};

/// The counters of one CPU. A snapshot: fields are read one after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStats {
    /// Counts yields called on this CPU.
    pub yld_count: u64,
    /// Counts calls of the scheduler on this CPU that came to a decision.
    pub sched_count: u64,
    /// Counts switches to the idle task on this CPU.
    pub sched_goidle: u64,
    /// Counts successful wake-ups done *by* this CPU, wherever the woken task went.
    pub ttwu_count: u64,
    /// Counts those of `ttwu_count` whose task stayed on or came to this CPU.
    pub ttwu_local: u64,
    /// Total time, in nanoseconds, that tasks other than the idle task ran on this CPU, as of the last switch.
    pub rq_cpu_time: Nanos,
    /// Total time, in nanoseconds, that tasks were runnable on this CPU without running. Two waiting tasks count twice.
    pub run_delay: Nanos,
    /// Counts how often a task other than the idle task was switched to on this CPU.
    pub pcount: u64,
}

/// The counters of one task. A snapshot: fields are read one after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskStats {
    /// Total time, in nanoseconds, that the task ran. Counted always.
    pub sum_exec_runtime: Nanos,
    /// Total time, in nanoseconds, that the task was runnable without running. Zero with schedstats off.
    pub run_delay: Nanos,
    /// Counts how often the task was switched to. Zero with schedstats off.
    pub pcount: u64,
}

/// Where one CPU counts.
pub(crate) struct CpuCounters<F: Family> {
    yld_count: F::Word,
    sched_count: F::Word,
    sched_goidle: F::Word,
    ttwu_count: F::Word,
    ttwu_local: F::Word,
    rq_cpu_time: F::Word,
    run_delay: F::Word,
    pcount: F::Word,
}

impl<F: Family> Default for CpuCounters<F> {
    fn default() -> Self {
        let zero = || F::Word::new(0);
        Self {
            yld_count: zero(),
            sched_count: zero(),
            sched_goidle: zero(),
            ttwu_count: zero(),
            ttwu_local: zero(),
            rq_cpu_time: zero(),
            run_delay: zero(),
            pcount: zero(),
        }
    }
}

impl<F: Family> CpuCounters<F> {
    pub(crate) fn read(&self) -> CpuStats {
        CpuStats {
            yld_count: self.yld_count.load(Relaxed),
            sched_count: self.sched_count.load(Relaxed),
            sched_goidle: self.sched_goidle.load(Relaxed),
            ttwu_count: self.ttwu_count.load(Relaxed),
            ttwu_local: self.ttwu_local.load(Relaxed),
            rq_cpu_time: self.rq_cpu_time.load(Relaxed),
            run_delay: self.run_delay.load(Relaxed),
            pcount: self.pcount.load(Relaxed),
        }
    }

    pub(crate) fn yielded(&self) {
        self.yld_count.owner_add(1);
    }

    pub(crate) fn scheduled(&self) {
        self.sched_count.owner_add(1);
    }

    pub(crate) fn woke(&self) {
        self.ttwu_count.owner_add(1);
    }

    pub(crate) fn woke_here(&self) {
        self.ttwu_local.owner_add(1);
    }

    /// `task` became runnable here and waits.
    pub(crate) fn queued(&self, task: &TaskCounters<F>, now: Nanos) {
        if task.last_queued.load(Relaxed) == 0 {
            task.last_queued.store(now.max(1), Relaxed);
        }
    }

    /// `task` stops waiting here: it runs, or it leaves.
    pub(crate) fn unqueued(&self, task: &TaskCounters<F>, now: Nanos) {
        let since = task.last_queued.load(Relaxed);
        if since != 0 {
            let waited = now.saturating_sub(since);
            task.run_delay.owner_add(waited);
            self.run_delay.owner_add(waited);
            task.last_queued.store(0, Relaxed);
        }
    }

    /// This CPU goes from `prev` to `next`; none stands for the idle task.
    /// `prev_waits`: it is still runnable here.
    pub(crate) fn switched(&self, prev: Option<(&TaskCounters<F>, Prev)>, next: Option<&TaskCounters<F>>, now: Nanos) {
        if let Some((prev, is)) = prev {
            self.rq_cpu_time.owner_add(now.saturating_sub(prev.last_arrival.load(Relaxed)));
            if is == Prev::Queued {
                self.queued(prev, now);
            }
        }
        match next {
            Some(next) => {
                self.unqueued(next, now);
                next.last_arrival.store(now, Relaxed);
                next.pcount.owner_add(1);
                self.pcount.owner_add(1);
            }
            None => self.sched_goidle.owner_add(1),
        }
    }
}

/// Where one task counts. Written under the lock of its queue.
pub(crate) struct TaskCounters<F: Family> {
    last_queued: F::Word,
    last_arrival: F::Word,
    run_delay: F::Word,
    pcount: F::Word,
}

impl<F: Family> Default for TaskCounters<F> {
    fn default() -> Self {
        let zero = || F::Word::new(0);
        Self { last_queued: zero(), last_arrival: zero(), run_delay: zero(), pcount: zero() }
    }
}

impl<F: Family> TaskCounters<F> {
    pub(crate) fn run_delay(&self) -> Nanos {
        self.run_delay.load(Relaxed)
    }

    pub(crate) fn pcount(&self) -> u64 {
        self.pcount.load(Relaxed)
    }
}
