//! # What it is
//! Per-entity load tracking: how much of a CPU an entity, or a whole queue, has asked for lately, in three signals.
//! *Load* counts time queued, times weight; *runnable* counts time queued; *util* counts time run.
//!
//! # How it works
//! Time is counted in units of 1024 ns, and 1024 units are a period.
//! A unit that lies n periods back counts y^n, with y^32 = 1/2, so a sum forgets half of its past every 32 periods (33.6 ms).
//!
//! ```text
//!   oldest                                   last_update         now
//!   ...|----- 1024 -----|----- 1024 -----|-- period_contrib --|--->
//!       sum * y^2            sum * y           counts whole
//! ```
//!
//! [`Signals::update`] adds the units that passed. When they cross a boundary, it decays the sums first and then refreshes the averages.
//! An average is its sum over what an entity that always ran would have, as far as the present period has come:
//! the part still to come must not look like idle time.
//! The same code follows an entity (it counts 0 or 1, and its average is scaled by its weight) and a queue
//! (it counts all of its entities); [`Input`] says which.
//!
//! A queue's sums also hold its sleepers', which decay in it unseen. So a task that goes elsewhere is taken out
//! ([`Signals::detach`]); one that wakes elsewhere leaves its averages in [`Removed`], for the queue to take out at its next update.
//!
//! A sleep decays util, but the task that wakes is the same task: [`Signals::note_sleep`] keeps an estimate of what it used before.
//!
//! # Invariants
//! 1. An entity's `load_sum` never exceeds the divider, so its `load_avg` never exceeds its weight.
//! 2. An entity's `util_avg` and `runnable_avg` never exceed 1025, one above full:
//!    sums of finer grain lose less to rounding than the divider did. A queue's, which also holds sleepers, has no such limit.
//! 3. Each of a queue's sums stays at or above its average times [`MIN_DIVIDER`], after each subtraction and each refresh;
//!    a sum of 0 means an average of 0.
//! 4. Subtraction stops at 0.
//! 5. A clock that steps back changes no sum and no average.
//! 6. A sum lies within 140 units (times what was counted) of the sum without rounding, an entity's average within 4 of 1024.
//! 7. Bit 31 of the estimate is a mark and never part of its value.
//!
//! # Cost
//! Inside a period: a subtraction, and one multiplication a signal. At a boundary: five more multiplications and three divisions.
//! No lock, no allocation, no floating point; one cache line.

mod clock;
#[cfg(test)]
mod tests;

use static_assertions::const_assert;

pub(crate) use clock::{Capacity, PeltClock, PeltTime};

use crate::weight::Weight;

/// Nanoseconds in a unit, as a shift.
const UNIT_SHIFT: u32 = 10;

/// Units in a period.
const PERIOD: u64 = 1024;

/// The fraction bits of a runnable and a util sum, and of a capacity.
const CAPACITY_SHIFT: u32 = 10;

/// Periods in which a signal halves.
const HALF_LIFE: u64 = 32;

/// The most a sum of ones comes to, rounded down period by period: the limit of `sum = sum * y + 1024`.
const MAX_SUM: u64 = 47_742;

/// The smallest divider of an average: the full sum without the present period.
pub(crate) const MIN_DIVIDER: u64 = MAX_SUM - PERIOD;

/// After so many periods nothing is left, not even of a sum of 63 bits.
const FORGOTTEN: u64 = 63 * HALF_LIFE;

/// Bit 31 of an estimate: util has not been refreshed since the estimate was made.
const ESTIMATE_IS_CURRENT: u32 = 1 << 31;

/// An estimate less than this above util is near enough: 1 % of a CPU, out of 1024.
const ESTIMATE_MARGIN: u32 = 10;

/// The estimate falls by a quarter of its distance from util, given as a shift.
const ESTIMATE_SHIFT: u32 = 2;

/// y^n out of 2^32 - 1, rounded down, n = 0 to 31.
const POWERS: [u32; HALF_LIFE as usize] = [
    0xffff_ffff,
    0xfa83_b2da,
    0xf525_7d14,
    0xefe4_b99a,
    0xeac0_c6e6,
    0xe5b9_06e6,
    0xe0cc_deeb,
    0xdbfb_b796,
    0xd744_fcc9,
    0xd2a8_1d91,
    0xce24_8c14,
    0xc9b9_bd85,
    0xc567_2a10,
    0xc12c_4cc9,
    0xbd08_a39e,
    0xb8fb_af46,
    0xb504_f333,
    0xb123_f581,
    0xad58_3ee9,
    0xa9a1_5ab4,
    0xa5fe_d6a9,
    0xa270_4302,
    0x9ef5_325f,
    0x9b8d_39b9,
    0x9837_f050,
    0x94f4_efa8,
    0x91c3_d373,
    0x8ea4_398a,
    0x8b95_c1e3,
    0x8898_0e80,
    0x85aa_c367,
    0x82cd_8698,
];

/// y to the power of a number of periods.
#[derive(Clone, Copy)]
struct Decay {
    shift: u32,
    factor: u32,
}

impl Decay {
    #[inline]
    const fn over(periods: u64) -> Self {
        if periods > FORGOTTEN {
            return Self { shift: 0, factor: 0 };
        }
        Self { shift: (periods / HALF_LIFE) as u32, factor: POWERS[(periods % HALF_LIFE) as usize] }
    }

    /// What is left of `sum`, rounded down.
    #[inline(always)]
    const fn of(self, sum: u64) -> u64 {
        (((sum >> self.shift) as u128 * self.factor as u128) >> 32) as u64
    }
}

/// Where a task is, as its signals see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Off the queue.
    Absent,
    /// Asleep, and kept queued until its lag is paid: it loads the queue, but nothing could run it.
    Delayed,
    /// Queued and waiting.
    Waiting,
    /// Queued, and the one that runs.
    Running,
}

/// What the time since the last update counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    /// What scales the load average: an entity's weight, 1 for a queue.
    weight: u32,
    /// An entity: is it queued, 0 or 1. A queue: the sum of the weights queued.
    load: u64,
    /// How many are queued and could run.
    runnable: u32,
    /// How many run, 0 or 1.
    running: u32,
}

impl Input {
    /// A task that has been at `presence` since the last update.
    #[inline(always)]
    pub(crate) const fn task(weight: Weight, presence: Presence) -> Self {
        Self {
            weight: weight.get(),
            load: !matches!(presence, Presence::Absent) as u64,
            runnable: matches!(presence, Presence::Waiting | Presence::Running) as u32,
            running: matches!(presence, Presence::Running) as u32,
        }
    }

    /// A queue whose entities weigh `load` in all, of which `runnable` could run, and of which `current` does.
    #[inline(always)]
    pub(crate) const fn queue<T>(load: u64, runnable: u32, current: Option<&T>) -> Self {
        Self { weight: 1, load, runnable, running: current.is_some() as u32 }
    }
}

/// The three signals of an entity or a queue.
///
/// Averages are out of 1024 (load: out of the weight), sums in units of 1024 ns,
/// those of runnable and util with ten fraction bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Signals {
    last_update: PeltTime,
    load_sum: u64,
    runnable_sum: u64,
    util_sum: u64,
    load_avg: u64,
    runnable_avg: u64,
    util_avg: u64,
    /// Units of the present period that the sums already hold; below 1024.
    period_contrib: u32,
    /// A task: util before its last sleeps, and the mark in bit 31. A queue: the sum over its tasks, without marks.
    util_est: u32,
}

const_assert!(size_of::<Signals>() == 64 && align_of::<Signals>() == 64);

impl Signals {
    const fn starting(last_update: PeltTime, load_avg: u64) -> Self {
        Self {
            last_update,
            load_sum: 0,
            runnable_sum: 0,
            util_sum: 0,
            load_avg,
            runnable_avg: 0,
            util_avg: 0,
            period_contrib: 0,
            util_est: 0,
        }
    }

    /// An empty queue.
    pub(crate) const fn queue() -> Self {
        Self::starting(PeltTime::ZERO, 0)
    }

    /// A new task, attached nowhere: it counts as busy until it has shown what it is.
    pub(crate) const fn task(weight: Weight) -> Self {
        Self::starting(PeltTime::DETACHED, weight.get() as u64)
    }

    /// A new group, attached nowhere: empty until tasks come.
    #[allow(dead_code, reason = "for balancing and for groups")]
    pub(crate) const fn group() -> Self {
        Self::starting(PeltTime::DETACHED, 0)
    }

    /// Time queued, times weight.
    pub const fn load_avg(&self) -> u64 {
        self.load_avg
    }

    /// Time queued, out of 1024 per entity.
    pub const fn runnable_avg(&self) -> u64 {
        self.runnable_avg
    }

    /// Time run, out of 1024.
    pub const fn util_avg(&self) -> u64 {
        self.util_avg
    }

    /// The estimate without its mark.
    pub const fn util_est(&self) -> u32 {
        self.util_est & !ESTIMATE_IS_CURRENT
    }

    /// When the signals were last updated. Another CPU that reads it ages a task to here.
    pub(crate) const fn last_update(&self) -> PeltTime {
        self.last_update
    }

    /// Is this entity part of a queue's sums?
    pub(crate) const fn is_attached(&self) -> bool {
        self.last_update.0 != PeltTime::DETACHED.0
    }

    /// Is nothing left, so that nobody need decay these signals again (I3)?
    #[allow(dead_code, reason = "for balancing and for groups")]
    pub(crate) const fn is_decayed(&self) -> bool {
        self.load_sum | self.runnable_sum | self.util_sum == 0
    }

    /// The util of a queue's CPU: what it was used lately, or what its tasks used before they slept, if that is more.
    #[allow(dead_code, reason = "for balancing and for groups")]
    pub(crate) const fn cpu_util(&self, capacity: Capacity) -> u64 {
        let estimate = self.util_est() as u64;
        let util = if estimate > self.util_avg { estimate } else { self.util_avg };
        if util > capacity.get() { capacity.get() } else { util }
    }

    /// What an entity that was always there would have for a sum.
    const fn divider(&self) -> u64 {
        MIN_DIVIDER + self.period_contrib as u64
    }

    /// Accounts for the time up to `now` and says whether the averages were refreshed, which is when a period ended.
    ///
    /// `input` describes the time since the last update, so this comes *before* whatever changes it.
    #[inline(always)]
    pub(crate) fn update(&mut self, now: PeltTime, input: Input) -> bool {
        debug_assert!(self.is_attached(), "an entity that is attached nowhere has no past");
        let elapsed = now.since(self.last_update);
        if elapsed < 1 << UNIT_SHIFT {
            if elapsed < 0 {
                self.last_update = now;
            }
            return false;
        }
        let units = elapsed as u64 >> UNIT_SHIFT;
        // The rest below a unit stays for the next time.
        self.last_update = self.last_update.after(units << UNIT_SHIFT);
        let total = units + u64::from(self.period_contrib);
        if total >= PERIOD {
            self.pass(total, input.weight, input.load, input.runnable, input.running);
            return true;
        }
        self.period_contrib = total as u32;
        self.count(units, input);
        false
    }

    /// Adds `units`, each counting whole.
    #[inline(always)]
    fn count(&mut self, units: u64, input: Input) {
        if input.load == 0 {
            return;
        }
        self.load_sum += input.load * units;
        self.runnable_sum += (u64::from(input.runnable) * units) << CAPACITY_SHIFT;
        self.util_sum += (u64::from(input.running) * units) << CAPACITY_SHIFT;
    }

    /// Ends the present period and all that followed, `total` units after it began.
    ///
    /// Takes the parts of an [`Input`]: in registers, so that the usual case, which does not come here, builds none.
    #[inline(never)]
    fn pass(&mut self, total: u64, weight: u32, load: u64, runnable: u32, running: u32) {
        let input = Input { weight, load, runnable, running };
        let decay = Decay::over(total / PERIOD);
        self.load_sum = decay.of(self.load_sum);
        self.runnable_sum = decay.of(self.runnable_sum);
        self.util_sum = decay.of(self.util_sum);

        // What was missing of the old period, the whole periods between, and the new one so far.
        let old = decay.of(PERIOD - u64::from(self.period_contrib));
        let between = MAX_SUM - decay.of(MAX_SUM) - PERIOD;
        let new = total % PERIOD;
        self.period_contrib = new as u32;
        self.count(old + between + new, input);
        self.refresh(input.weight);
    }

    fn refresh(&mut self, weight: u32) {
        let divider = self.divider();
        self.load_avg = u64::from(weight) * self.load_sum / divider;
        self.runnable_avg = self.runnable_sum / divider;
        self.util_avg = self.util_sum / divider;
        self.util_est &= !ESTIMATE_IS_CURRENT;
    }

    /// Guesses what a new task will use, when it first wakes on this `queue`: as much per weight as the others do,
    /// but at most half of what is still free, so that a crowd of new tasks does not fill the CPU on paper.
    pub(crate) fn guess(&mut self, weight: Weight, queue: &Self, capacity: Capacity) {
        let cap = capacity.get().saturating_sub(queue.util_avg) / 2;
        if cap > 0 {
            self.util_avg = match queue.util_avg {
                0 => cap,
                util => (util * u64::from(weight.get()) / (queue.load_avg + 1)).min(cap),
            };
        }
        self.runnable_avg = self.util_avg;
    }

    /// Makes `entity` part of this queue, which is up to date: it takes the queue's place in time, rebuilds its sums from
    /// its averages, and is added.
    pub(crate) fn attach(&mut self, entity: &mut Self, weight: Weight) {
        debug_assert!(!entity.is_attached());
        entity.last_update = self.last_update;
        entity.period_contrib = self.period_contrib;
        let divider = self.divider();
        entity.util_sum = entity.util_avg * divider;
        entity.runnable_sum = entity.runnable_avg * divider;
        entity.load_sum = (entity.load_avg * divider / u64::from(weight.get())).max(1);

        self.util_avg += entity.util_avg;
        self.util_sum += entity.util_sum;
        self.runnable_avg += entity.runnable_avg;
        self.runnable_sum += entity.runnable_sum;
        self.add_load(entity, weight);
    }

    /// Takes `entity` out of this queue; both are up to date. It keeps its averages.
    pub(crate) fn detach(&mut self, entity: &mut Self, weight: Weight) {
        debug_assert!(entity.is_attached());
        subtract(&mut self.util_avg, &mut self.util_sum, entity.util_avg, entity.util_sum);
        subtract(&mut self.runnable_avg, &mut self.runnable_sum, entity.runnable_avg, entity.runnable_sum);
        self.subtract_load(entity, weight);
        entity.last_update = PeltTime::DETACHED;
    }

    /// Lets `entity`, which is part of this queue, weigh `new` instead of `old`; both are up to date.
    pub(crate) fn reweight(&mut self, entity: &mut Self, old: Weight, new: Weight) {
        self.subtract_load(entity, old);
        entity.load_avg = u64::from(new.get()) * entity.load_sum / entity.divider();
        self.add_load(entity, new);
    }

    fn add_load(&mut self, entity: &Self, weight: Weight) {
        self.load_avg += entity.load_avg;
        self.load_sum += u64::from(weight.get()) * entity.load_sum;
    }

    fn subtract_load(&mut self, entity: &Self, weight: Weight) {
        let sum = u64::from(weight.get()) * entity.load_sum;
        subtract(&mut self.load_avg, &mut self.load_sum, entity.load_avg, sum);
    }

    /// Takes this sleeping task out of a queue whose lock is not held, because it wakes on another:
    /// ages it to `queue_time`, when that queue was last updated, leaves its averages in `removed`,
    /// and ages it by the `lag` that queue's time has because its CPU idles.
    pub(crate) fn leave(
        &mut self,
        queue_time: PeltTime,
        lag: crate::platform::Nanos,
        weight: Weight,
        removed: &mut Removed,
    ) {
        self.update(queue_time, Input::task(weight, Presence::Absent));
        removed.load_avg += self.load_avg;
        removed.runnable_avg += self.runnable_avg;
        removed.util_avg += self.util_avg;
        self.update(queue_time.after(lag), Input::task(weight, Presence::Absent));
        self.last_update = PeltTime::DETACHED;
    }

    /// Takes what has left out of this queue's signals. Comes before the queue's update.
    pub(crate) fn remove(&mut self, removed: Removed) {
        let divider = self.divider();
        for (avg, sum, gone) in [
            (&mut self.load_avg, &mut self.load_sum, removed.load_avg),
            (&mut self.runnable_avg, &mut self.runnable_sum, removed.runnable_avg),
            (&mut self.util_avg, &mut self.util_sum, removed.util_avg),
        ] {
            subtract(avg, sum, gone, gone * divider);
        }
    }

    /// Adds a task's estimate to this queue's: it is enqueued.
    pub(crate) const fn add_estimate(&mut self, task: &Self) {
        self.util_est += task.util_est();
    }

    /// Takes a task's estimate out of this queue's: it is dequeued. Comes before [`note_sleep`](Self::note_sleep).
    pub(crate) const fn subtract_estimate(&mut self, task: &Self) {
        self.util_est = self.util_est.saturating_sub(task.util_est());
    }

    /// Renews this task's estimate: it goes to sleep, and is up to date.
    ///
    /// The estimate follows util upwards at once and downwards by a quarter of the way.
    /// It does not fall where the task ran little only because others did.
    pub(crate) fn note_sleep(&mut self) {
        if self.util_est & ESTIMATE_IS_CURRENT != 0 {
            return;
        }
        let (estimate, util) = (self.util_est, self.util_avg as u32);
        let renewed = if util >= estimate {
            util
        } else if estimate - util < ESTIMATE_MARGIN || u64::from(util + ESTIMATE_MARGIN) < self.runnable_avg {
            estimate
        } else {
            ((estimate << ESTIMATE_SHIFT) - (estimate - util)) >> ESTIMATE_SHIFT
        };
        self.util_est = renewed | ESTIMATE_IS_CURRENT;
    }
}

/// Subtracts from an average and its sum, each down to 0 at most (I4).
/// Both were rounded at different times, so the sum is then lifted to what its average needs (I3).
fn subtract(avg: &mut u64, sum: &mut u64, gone_avg: u64, gone_sum: u64) {
    *avg = avg.saturating_sub(gone_avg);
    *sum = sum.saturating_sub(gone_sum).max(*avg * MIN_DIVIDER);
}

/// The averages of tasks that left a queue without its lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    /// The sum of their load averages.
    pub(crate) load_avg: u64,
    /// The sum of their runnable averages.
    pub(crate) runnable_avg: u64,
    /// The sum of their util averages.
    pub(crate) util_avg: u64,
}
