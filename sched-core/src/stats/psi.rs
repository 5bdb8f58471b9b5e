//! # What it is
//! Pressure: the share of time in which work was held up because a resource was missing, as Linux's PSI defines it.
//! So far for the resource CPU: *some* is the time in which at least one runnable task had to wait.
//!
//! # How it works
//! Each CPU keeps a record ([`PsiCpu`]) of how long it was in which state.
//! [`Psi`], one per scheduler, collects what the records grew by and weights it:
//! a CPU counts by the ticks in which it was not idle. So four CPUs under pressure beside four idle ones read 100 %,
//! and one of two busy CPUs reads 50 %. The weighted mean goes to a total that only grows.
//!
//! Once in a period of `2 * HZ + 1` ticks the growth of the total becomes a sample for three decaying averages.
//! The odd tick keeps the samples from falling in step with loads that repeat every second.
//! Whoever comes first updates: the tick of any CPU that finds the period over, or a reader.
//! If nobody came for several periods (all CPUs idle without a tick), the averages decay by as many periods first.
//!
//! # Invariants
//! 1. A total never falls, and grows by at most the time that passed.
//! 2. A sample is at most the time it stands for. What is cut off is part of the next one.
//! 3. Averages lie between 0.00 and 100.00.
//! 4. The lock of [`Psi`] is the innermost: under it nothing else is locked, and no queue's lock is needed to read.
//!
//! # Cost
//! A tick: one relaxed load. Once a period, and for each reader: two lines per CPU, under one lock.
//! A tick that finds the lock taken leaves it at that, since the holder does its work.

use core::num::NonZeroU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::{
    platform::Nanos,
    sync::{Family, Lock, Word},
};

mod average;
mod record;

pub use average::Average;
use average::Decay;
use record::State;
pub use record::{PsiCpu, PsiTask};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The pressure of one kind, as of one reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Share of time under pressure, over about the last 10 s.
    pub avg10: Average,
    /// Share of time under pressure, over about the last 60 s.
    pub avg60: Average,
    /// Share of time under pressure, over about the last 300 s.
    pub avg300: Average,
    /// Total time, in nanoseconds, under pressure, averaged over CPUs by how busy they were.
    pub total: Nanos,
}

/// The pressure of one scheduler.
pub struct Psi<F: Family> {
    /// When the averages are due, for those who do not hold the lock.
    due: F::Word,
    averages: Lock<F, Averages>,
}

/// Time as the averages divide it.
struct Averages {
    tick: NonZeroU64,
    period: NonZeroU64,
    last_update: Nanos,
    next_update: Nanos,
    cpu_some: Track,
}

/// The total and the averages of one state.
#[derive(Default)]
struct Track {
    /// Total time, in nanoseconds.
    total: Nanos,
    /// Total time, in nanoseconds, of the samples so far.
    sampled: Nanos,
    avg10: Average,
    avg60: Average,
    avg300: Average,
}

impl<F: Family> Psi<F> {
    /// No pressure so far. `hz` is the number of ticks in a second.
    pub(crate) fn new(now: Nanos, hz: u32) -> Self {
        let averages = Averages::new(now, hz);
        Self { due: F::Word::new(averages.next_update), averages: Lock::new(averages) }
    }

    /// Whether a period is over at `now`.
    #[inline]
    pub(crate) fn due(&self, now: Nanos) -> bool {
        now >= self.due.load(Relaxed)
    }

    /// From a tick that found it [`due`](Self::due): collects from `cpus` and samples, unless another CPU is at it or
    /// was faster.
    ///
    /// `clock` reads the clock of the CPU that has that place in `cpus`, as the calling CPU knows it. Interrupts are off.
    pub(crate) fn try_update<'a>(
        &self,
        now: Nanos,
        cpus: impl Iterator<Item = &'a PsiCpu<F>>,
        clock: impl Fn(usize) -> Nanos,
    ) {
        if let Some(mut averages) = self.averages.try_lock()
            && now >= averages.next_update
        {
            self.refresh(&mut averages, now, cpus, clock);
        }
    }

    /// Collects from `cpus`, samples if a period is over, and answers.
    ///
    /// `clock` reads the clock of the CPU that has that place in `cpus`, as the calling CPU knows it. Interrupts are off.
    pub(crate) fn read<'a>(
        &self,
        now: Nanos,
        cpus: impl Iterator<Item = &'a PsiCpu<F>>,
        clock: impl Fn(usize) -> Nanos,
    ) -> Pressure {
        let mut averages = self.averages.lock();
        self.refresh(&mut averages, now, cpus, clock);
        averages.cpu_some.pressure()
    }

    fn refresh<'a>(
        &self,
        averages: &mut Averages,
        now: Nanos,
        cpus: impl Iterator<Item = &'a PsiCpu<F>>,
        clock: impl Fn(usize) -> Nanos,
    ) {
        averages.collect(cpus, clock);
        if now >= averages.next_update {
            averages.sample(now);
            self.due.store(averages.next_update, Relaxed);
        }
    }
}

impl Averages {
    fn new(now: Nanos, hz: u32) -> Self {
        // The tick rate is a constant of the embedder; out of range, the nearest that divides a second.
        let hz = u64::from(hz).clamp(1, NANOS_PER_SECOND);
        let tick = NonZeroU64::new(NANOS_PER_SECOND / hz).unwrap_or(NonZeroU64::MIN);
        let period = tick.saturating_mul(NonZeroU64::MIN.saturating_add(2 * hz));
        Self { tick, period, last_update: now, next_update: now + period.get(), cpu_some: Track::default() }
    }

    /// Adds to the totals what the records grew by.
    fn collect<'a, F: Family>(&mut self, cpus: impl Iterator<Item = &'a PsiCpu<F>>, clock: impl Fn(usize) -> Nanos) {
        // A reader may come after months: time multiplied by ticks needs more than 64 bits then.
        let mut weighted: u128 = 0;
        let mut weights: u128 = 0;
        for (place, cpu) in cpus.enumerate() {
            let grown = cpu.take(|| clock(place));
            let weight = u128::from(grown[State::NonIdle as usize] / self.tick);
            weighted += u128::from(grown[State::CpuSome as usize]) * weight;
            weights += weight;
        }
        self.cpu_some.total += (weighted / weights.max(1)) as Nanos;
    }

    /// Ends the period, at or after its time.
    fn sample(&mut self, now: Nanos) {
        let period = self.period.get();
        let missed = now.saturating_sub(self.next_update) / self.period;
        self.next_update += (1 + missed) * period;
        // Above zero, because the last update lies before the time the period was to end.
        let real = now.saturating_sub(self.last_update + missed * period).max(1);
        self.last_update = now;
        self.cpu_some.sample(missed, real);
    }
}

impl Track {
    /// A sample over `real` nanoseconds, after `missed` periods without one.
    fn sample(&mut self, missed: u64, real: Nanos) {
        let sample = (self.total - self.sampled).min(real);
        self.sampled += sample;
        let percent = sample * 100 / real.max(1);
        for (average, decay) in [
            (&mut self.avg10, Decay::TEN_SECONDS),
            (&mut self.avg60, Decay::ONE_MINUTE),
            (&mut self.avg300, Decay::FIVE_MINUTES),
        ] {
            *average = average.after_silence(missed, decay).after(percent, decay);
        }
    }

    fn pressure(&self) -> Pressure {
        Pressure { avg10: self.avg10, avg60: self.avg60, avg300: self.avg300, total: self.total }
    }
}

#[cfg(test)]
mod tests;
