//! # What it is
//! The clock of load tracking, which runs slower where the machine does:
//! the same work then makes the same signals on a small CPU, or a slowed one, as on a fast one.
//!
//! # How it works
//! While its CPU is busy, the clock advances by the time passed, times capacity, times frequency.
//! So it falls behind the task clock, and an idle CPU has the difference to give back: the work would have ended earlier
//! on a fast CPU, which would then have been idle for the rest. Going idle therefore sets the clock to the task clock.
//! A CPU that was saturated had no idle time to give; the difference is lost, and the signals never see it.
//!
//! ```text
//!   task clock   |======= busy =======|...... idle ......|
//!   PELT clock   |=== busy ===|snapped|...... idle ......|
//! ```
//!
//! # Invariants
//! 1. The clock never steps back.
//! 2. It never runs ahead of the task clock, and at full speed, or idle, keeps pace with it.
//! 3. Time lost stays lost: the clock is behind by exactly that after each snap.
//!
//! # Cost
//! Two multiplications an advance.

use super::{CAPACITY_SHIFT, MAX_SUM, MIN_DIVIDER, Signals};
use crate::platform::Nanos;

/// A point on the PELT clock of one CPU, in nanoseconds. Two CPUs' are not comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeltTime(pub(super) u64);

impl PeltTime {
    /// Where a clock may start.
    pub(crate) const ZERO: Self = Self(0);

    /// The last update of an entity that is attached nowhere. No clock gets there in 584 years.
    pub(super) const DETACHED: Self = Self(u64::MAX);

    /// A point by its number.
    pub(crate) const fn from_nanos(nanos: Nanos) -> Self {
        Self(nanos)
    }

    /// The number.
    pub(crate) const fn nanos(self) -> Nanos {
        self.0
    }

    /// The nanoseconds from `earlier` to here, negative where it is later.
    #[inline(always)]
    pub(super) const fn since(self, earlier: Self) -> i64 {
        self.0.wrapping_sub(earlier.0) as i64
    }

    #[inline(always)]
    pub(super) const fn after(self, span: Nanos) -> Self {
        Self(self.0.wrapping_add(span))
    }
}

/// What a CPU can do, or its present frequency, out of the 1024 of the biggest at its fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Capacity(u16);

impl Capacity {
    /// The biggest CPU at its fastest.
    pub(crate) const FULL: Self = Self(1 << CAPACITY_SHIFT);

    /// So many 1024ths, at most 1024.
    #[allow(dead_code, reason = "for CPUs that are not all alike")]
    pub(crate) const fn new(parts: u16) -> Self {
        if parts < Self::FULL.0 { Self(parts) } else { Self::FULL }
    }

    /// The number of 1024ths.
    pub(crate) const fn get(self) -> u64 {
        self.0 as u64
    }

    /// `span` of work at this capacity, as time at full capacity.
    #[inline(always)]
    const fn scale(self, span: Nanos) -> Nanos {
        ((span as u128 * self.0 as u128) >> CAPACITY_SHIFT) as Nanos
    }
}

/// The PELT clock of one CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeltClock {
    /// The task clock at the last snap, and scaled time since.
    scaled: Nanos,
    /// What saturated CPUs did not get.
    lost_idle: Nanos,
    /// The queue clock and this clock when the CPU last went idle.
    idle_from: (Nanos, PeltTime),
}

impl PeltClock {
    /// A util sum from which a CPU counts as saturated: full, but for one period's rounding.
    const SATURATED: u64 = (MIN_DIVIDER << CAPACITY_SHIFT) - MAX_SUM;

    /// A clock in step with `task_clock`.
    pub(crate) const fn new(task_clock: Nanos) -> Self {
        Self { scaled: task_clock, lost_idle: 0, idle_from: (task_clock, PeltTime(task_clock)) }
    }

    /// The time.
    #[inline(always)]
    pub(crate) const fn now(&self) -> PeltTime {
        PeltTime(self.scaled - self.lost_idle)
    }

    /// How far this clock is behind the task clock for good.
    #[allow(dead_code, reason = "for a balancer, which looks at queues of other CPUs")]
    pub(crate) const fn lost_idle_time(&self) -> Nanos {
        self.lost_idle
    }

    /// The CPU was busy for `delta` of its task clock.
    #[inline]
    pub(crate) const fn advance(&mut self, delta: Nanos, capacity: Capacity, frequency: Capacity) {
        self.scaled += frequency.scale(capacity.scale(delta));
    }

    /// The CPU has been idle up to `task_clock`.
    #[inline]
    pub(crate) const fn advance_idle(&mut self, task_clock: Nanos) {
        // A task clock that stepped back is ignored (I1).
        if task_clock > self.scaled {
            self.scaled = task_clock;
        }
    }

    /// The CPU goes idle, at `task_clock` and at `queue_clock`; `queue` is up to date.
    pub(crate) fn go_idle(&mut self, task_clock: Nanos, queue_clock: Nanos, queue: &Signals) {
        if queue.util_sum >= Self::SATURATED {
            self.lost_idle += task_clock.saturating_sub(self.scaled);
        }
        self.advance_idle(task_clock);
        self.idle_from = (queue_clock, self.now());
    }

    /// What this clock, which an idle CPU does not advance, would show at `queue_clock`.
    #[allow(dead_code, reason = "for a balancer, which looks at queues of other CPUs")]
    pub(crate) const fn while_idle(&self, queue_clock: Nanos) -> PeltTime {
        let (began, showed) = self.idle_from;
        showed.after(queue_clock.saturating_sub(began))
    }
}
