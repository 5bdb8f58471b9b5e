//! # What it is
//! The record of one CPU: how many of its tasks are runnable, which states that means, and how long each state lasted.
//! The scheduler of that CPU writes it; any CPU reads it without a lock.
//!
//! # How it works
//! ```text
//!             queued            switched in
//!   elsewhere ------> RUNNING ---------------> RUNNING | ONCPU
//!             <------         <---------------        |
//!            unqueued           Prev::Queued          |
//!       ^---------------------------------------------+
//!                          Prev::Gone
//! ```
//! A task's flags say what the record counts it as, and they refer to the one record that counts it.
//! From the count and from "a task other than the idle task is on the CPU" follows the mask of states that are on.
//! When the mask changes, the time since the last change is added to every state of the *old* mask.
//! A change of the count that leaves the mask as it is needs no time, no clock and no sequence:
//! the same states simply go on.
//!
//! The time-keeping words change inside a sequence: it is odd while they are written.
//! A reader copies them, reads the clock, and starts again if the sequence was odd or moved.
//!
//! # Invariants
//! 1. `running` is the number of tasks whose flags say RUNNING on this record,
//!    and the ONCPU bit is on while one of them says ONCPU.
//! 2. The clock is read after the sequence was made odd, and by a reader before it is checked.
//!    A clock read earlier would belong to a state that a reader has already taken as longer.
//! 3. The time of CPU_SOME, and that of NONIDLE, is at most the time that passed; CPU_SOME is at most NONIDLE.
//! 4. What [`PsiCpu::take`] hands out for a state never sums up to more than that state's time,
//!    even if the clocks of two CPUs disagree: a reading that lies before an earlier one counts as nothing new.
//!
//! # Cost
//! A change of the mask: one clock reading, two fences, and stores to one line that the CPU owns.
//! Any other change: the task's flags and one counter.
//! A reader takes that line and its own; it waits only while a change is being written.

use core::{
    array,
    sync::atomic::Ordering::{Acquire, Relaxed, Release},
};

use bitflags::bitflags;

use crate::{
    platform::Nanos,
    stats::Prev,
    sync::{Family, Spin, Word},
};

bitflags! {
    /// What a record counts a task as.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct TaskFlags: u64 {
        /// It is runnable or running.
        const RUNNING = 0x04;
        /// It is the current task of its CPU.
        const ONCPU = 0x10;
    }
}

/// The bit of the mask that says that a task other than the idle task is on the CPU. Above the bits of the states.
const ONCPU_BIT: u64 = 1 << State::COUNT;

/// A state of a CPU whose time is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// At least one task is runnable and not running.
    CpuSome,
    /// At least one task is runnable or running.
    NonIdle,
}

impl State {
    pub(crate) const COUNT: usize = 2;
    const ALL: [Self; Self::COUNT] = [Self::CpuSome, Self::NonIdle];

    const fn bit(self) -> u64 {
        1 << self as u32
    }
}

/// A time for every state, by its number.
pub(crate) type Times = [Nanos; State::COUNT];

/// What the pressure of a CPU knows about one task.
///
/// Written under the lock of the queue whose record counts the task.
pub struct PsiTask<F: Family> {
    flags: F::Word,
}

/// The pressure record of one CPU.
///
/// Letters of the fields: (q) written under the queue's lock, (s) and within the sequence; (p) under the lock of
/// [`Psi`](super::Psi).
#[repr(C, align(64))]
pub struct PsiCpu<F: Family> {
    /// (q) Odd while the fields marked (s) change.
    sequence: F::Word,
    /// (q) Counts the tasks with RUNNING.
    running: F::Word,
    /// (q) Counts calls that did not fit the flags or the counter.
    inconsistencies: F::Word,
    /// (s) The states that are on, and ONCPU.
    mask: F::Word,
    /// (s) Since when.
    start: F::Word,
    /// (s) How long each state was on before `start`.
    times: [F::Word; State::COUNT],
    /// (p) On a line of its own, so that reading does not slow the scheduler.
    reader: Reader<F>,
}

/// What the reader keeps: how much of each state's time it has taken.
#[repr(align(64))]
struct Reader<F: Family> {
    taken: [F::Word; State::COUNT],
}

static_assertions::const_assert_eq!(size_of::<PsiCpu<Spin>>(), 128);
static_assertions::const_assert_eq!(align_of::<PsiCpu<Spin>>(), 64);
static_assertions::const_assert_eq!(core::mem::offset_of!(PsiCpu<Spin>, reader), 64);
static_assertions::const_assert_eq!(size_of::<PsiTask<Spin>>(), 8);

impl<F: Family> Default for PsiTask<F> {
    /// A task that no record counts.
    fn default() -> Self {
        Self { flags: F::Word::new(0) }
    }
}

impl<F: Family> Default for PsiCpu<F> {
    /// An idle CPU.
    fn default() -> Self {
        let zero = || F::Word::new(0);
        Self {
            sequence: zero(),
            running: zero(),
            inconsistencies: zero(),
            mask: zero(),
            start: zero(),
            times: array::from_fn(|_| zero()),
            reader: Reader { taken: array::from_fn(|_| zero()) },
        }
    }
}

impl<F: Family> PsiTask<F> {
    /// Puts `to` in the place of `from`. Whether `from` is what was there.
    fn turn(&self, from: TaskFlags, to: TaskFlags) -> bool {
        let was = self.flags.load(Relaxed);
        self.flags.store(to.bits(), Relaxed);
        was == from.bits()
    }
}

/// Reading, on any CPU.
impl<F: Family> PsiCpu<F> {
    /// How long each state was on until now, including the states that are on.
    ///
    /// `clock` reads the clock of this record's CPU, once per attempt.
    /// The caller must not be inside a change of this very record.
    pub(crate) fn times(&self, clock: impl Fn() -> Nanos) -> Times {
        loop {
            let sequence = self.sequence.load(Acquire);
            if sequence & 1 == 0 {
                let mut times = array::from_fn(|state| self.times[state].load(Relaxed));
                let mask = self.mask.load(Relaxed);
                let start = self.start.load(Relaxed);
                let now = clock();
                F::fence(Acquire);
                if self.sequence.load(Relaxed) == sequence {
                    // Nothing, if that CPU's clock runs ahead of what this CPU takes it for.
                    let open = now.saturating_sub(start);
                    for state in State::ALL {
                        if mask & state.bit() != 0 {
                            times[state as usize] += open;
                        }
                    }
                    return times;
                }
            }
            core::hint::spin_loop();
        }
    }

    /// How much each state's time grew since the last call. The caller holds the lock of [`Psi`](super::Psi).
    pub(crate) fn take(&self, clock: impl Fn() -> Nanos) -> Times {
        let times = self.times(clock);
        array::from_fn(|state| {
            let taken = self.reader.taken[state].load(Relaxed);
            self.reader.taken[state].store(taken.max(times[state]), Relaxed);
            times[state].saturating_sub(taken)
        })
    }

    /// Counts the calls that contradicted the flags of a task or the count of a CPU. Above zero: a bug of the scheduler.
    pub(crate) fn inconsistencies(&self) -> u64 {
        self.inconsistencies.load(Relaxed)
    }
}

/// Writing. The caller holds the lock of this CPU's queue, interrupts are off, and the gate is on.
///
/// `clock` reads the clock of this CPU. It is called at most once, and only if a state begins or ends.
impl<F: Family> PsiCpu<F> {
    /// `task` became runnable here and waits: it is new, woke up, or came from another CPU.
    pub(crate) fn queued(&self, task: &PsiTask<F>, clock: impl FnOnce() -> Nanos) {
        let fits = task.turn(TaskFlags::empty(), TaskFlags::RUNNING);
        let (running, oncpu) = self.counts();
        self.change(running + 1, oncpu, clock);
        self.expect(fits);
    }

    /// `task`, which waited here, left: for another CPU.
    pub(crate) fn unqueued(&self, task: &PsiTask<F>, clock: impl FnOnce() -> Nanos) {
        let fits = task.turn(TaskFlags::RUNNING, TaskFlags::empty());
        let (running, oncpu) = self.counts();
        self.change(running.saturating_sub(1), oncpu, clock);
        self.expect(fits && running > 0);
    }

    /// This CPU goes from `prev` to `next`; none stands for the idle task, and then `prev_is` says nothing.
    ///
    /// A task that sleeps or leaves from the CPU is told here and only here:
    /// one that woke up again before the switch is simply still runnable.
    pub(crate) fn switched(
        &self,
        prev: Option<&PsiTask<F>>,
        next: Option<&PsiTask<F>>,
        prev_is: Prev,
        clock: impl FnOnce() -> Nanos,
    ) {
        let (running, oncpu) = self.counts();
        let mut fits = oncpu == prev.is_some();
        let mut gone = 0;
        if let Some(prev) = prev {
            let stays = match prev_is {
                Prev::Queued => TaskFlags::RUNNING,
                Prev::Gone => {
                    gone = 1;
                    TaskFlags::empty()
                }
            };
            fits &= prev.turn(TaskFlags::RUNNING | TaskFlags::ONCPU, stays);
        }
        if let Some(next) = next {
            fits &= next.turn(TaskFlags::RUNNING, TaskFlags::RUNNING | TaskFlags::ONCPU);
        }
        self.change(running.saturating_sub(gone), next.is_some(), clock);
        self.expect(fits && running >= gone);
    }

    fn counts(&self) -> (u64, bool) {
        let oncpu = self.mask.load(Relaxed) & ONCPU_BIT != 0;
        (self.running.load(Relaxed), oncpu)
    }

    /// Makes the count and the mask true, and ends the time of the states that were on if others are on now.
    fn change(&self, running: u64, oncpu: bool, clock: impl FnOnce() -> Nanos) {
        self.running.store(running, Relaxed);
        let old = self.mask.load(Relaxed);
        let new = mask_of(running, oncpu);
        if new == old {
            return;
        }
        self.sequence.owner_add(1);
        F::fence(Release);
        let now = clock();
        let start = self.start.load(Relaxed);
        let lasted = now.saturating_sub(start);
        for state in State::ALL {
            if old & state.bit() != 0 {
                self.times[state as usize].owner_add(lasted);
            }
        }
        // A clock that went back must not let a span count twice.
        self.start.store(start.max(now), Relaxed);
        self.mask.store(new, Relaxed);
        let even = self.sequence.load(Relaxed).wrapping_add(1);
        self.sequence.store(even, Release);
    }

    /// Counts a call that did not fit. The change was made all the same, and the sequence is even again.
    fn expect(&self, fits: bool) {
        if !fits {
            self.inconsistencies.owner_add(1);
            debug_assert!(
                fits,
                "psi: a task's flags or a CPU's count contradict the call; the change was made all the same"
            );
        }
    }
}

/// The states that are on with `running` tasks runnable or running, and one of them on the CPU or none.
fn mask_of(running: u64, oncpu: bool) -> u64 {
    let mut mask = 0;
    if running > u64::from(oncpu) {
        mask |= State::CpuSome.bit();
    }
    if running > 0 {
        mask |= State::NonIdle.bit();
    }
    if oncpu {
        mask |= ONCPU_BIT;
    }
    mask
}

#[cfg(test)]
pub(super) mod tests;
