//! # What it is
//! What can be asked for a task ([`TaskParams`]): nice value, policy, slice. And what can be set for a scheduler ([`Tunables`]).
//!
//! # How it works
//! A task's parameters are one word, so that they change as a whole and are read without a lock.
//! The queue applies them under its lock: at once if the task is queued, else when it comes back.
//!
//! # Invariants
//! 1. A word that was packed unpacks to the same parameters.
//!
//! # Cost
//! One store to change, one load to apply.

use crate::{
    platform::Nanos,
    weight::{Nice, Weight},
};

/// How a fair task is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// By its nice value.
    #[default]
    Normal,
    /// By its nice value, but it never preempts when it wakes up.
    Batch,
    /// Lighter than the lightest nice value, and preempted at once by any task that is not idle.
    Idle,
}

/// The length of a task's requests: shorter ones get the CPU sooner and keep it less long; the share stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slice(u32);

impl Slice {
    /// The shortest slice, 0.1 ms.
    pub const MIN: Self = Self(100_000);
    /// The base slice of one CPU, 0.7 ms, before it is scaled by the number of CPUs.
    pub const BASE: Self = Self(700_000);
    /// The longest slice, 100 ms.
    pub const MAX: Self = Self(100_000_000);

    /// A slice of `nanos`, held within 0.1 ms and 100 ms.
    pub const fn clamped(nanos: Nanos) -> Self {
        if nanos < Self::MIN.0 as u64 {
            Self::MIN
        } else if nanos > Self::MAX.0 as u64 {
            Self::MAX
        } else {
            Self(nanos as u32)
        }
    }

    /// The length in nanoseconds.
    pub const fn nanos(self) -> u32 {
        self.0
    }
}

/// What can be asked for one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskParams {
    /// The nice value. Default 0.
    pub nice: Nice,
    /// The policy. Default [`Policy::Normal`].
    pub policy: Policy,
    /// The slice, or none for the scheduler's default.
    pub slice: Option<Slice>,
}

impl TaskParams {
    /// What the task weighs.
    pub const fn weight(&self) -> Weight {
        match self.policy {
            Policy::Idle => Weight::IDLE,
            Policy::Normal | Policy::Batch => Weight::of(self.nice),
        }
    }

    pub(crate) fn pack(self) -> u64 {
        let slice = self.slice.map_or(0, Slice::nanos);
        u64::from(slice) << 32 | (self.policy as u64) << 8 | self.nice.index() as u64
    }

    pub(crate) fn unpack(word: u64) -> Self {
        Self {
            nice: Nice::new((word & 0xff) as i32 - 20).unwrap_or_default(),
            policy: match word >> 8 & 0xff {
                0 => Policy::Normal,
                1 => Policy::Batch,
                _ => Policy::Idle,
            },
            slice: Some((word >> 32) as u32).filter(|&nanos| nanos != 0).map(Slice),
        }
    }
}

/// The algorithm by which a queue shares its CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Earliest eligible virtual deadline first, as Linux has it since 6.6.
    #[default]
    Eevdf,
    /// Smallest virtual runtime first, as Linux had it from 2.6.23 to 6.5.
    Cfs,
}

/// What can be set for a whole scheduler, when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// How CPUs are shared. Default [`Algorithm::Eevdf`].
    pub algorithm: Algorithm,
    /// EEVDF: the slice of tasks that ask for none.
    /// More of it: fewer switches. Less of it: a waiting task is served sooner.
    pub base_slice: Slice,
    /// CFS: what it is tuned by.
    pub cfs: CfsTunables,
}

/// What CFS is tuned by, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CfsTunables {
    /// The time in which everybody should run once.
    /// More of it: fewer switches, and more credit for who slept. Less of it: a waiting task is served sooner.
    pub latency: u32,
    /// The least a task runs before the tick preempts it; with many tasks it stretches the latency.
    pub min_granularity: u32,
    /// How far ahead of a wakee a task may be before that one preempts it.
    /// More of it: wakees preempt less. Less of it: they are served sooner.
    pub wakeup_granularity: u32,
    /// The least an idle task runs before the tick preempts it.
    pub idle_min_granularity: u32,
}

impl CfsTunables {
    /// Tasks that fit into the latency at the minimum granularity.
    pub const fn nr_latency(&self) -> u32 {
        let granularity = if self.min_granularity == 0 { 1 } else { self.min_granularity };
        self.latency.div_ceil(granularity)
    }
}

impl Tunables {
    /// The usual settings for so many CPUs: times grow by 1 + log2 of the CPUs, counted up to 8.
    ///
    /// The base slice is 0.7, 1.4, 2.1 and 2.8 ms for 1, 2, 4 and 8 or more CPUs:
    /// just under a multiple of common ticks, so that a request does not last one tick too long.
    /// CFS has 6 ms of latency, 0.75 ms of granularity and 1 ms at wake-ups times the same factor.
    pub const fn for_cpus(cpus: u32) -> Self {
        let counted = if cpus > 8 {
            8
        } else if cpus == 0 {
            1
        } else {
            cpus
        };
        let factor = 1 + counted.ilog2();
        Self {
            algorithm: Algorithm::Eevdf,
            base_slice: Slice::clamped(Slice::BASE.0 as u64 * factor as u64),
            cfs: CfsTunables {
                latency: 6_000_000 * factor,
                min_granularity: 750_000 * factor,
                wakeup_granularity: 1_000_000 * factor,
                idle_min_granularity: 750_000,
            },
        }
    }

    /// The same settings for another algorithm.
    pub const fn with(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_word_unpacks_to_itself() {
        for nice in -20..=19 {
            for policy in [Policy::Normal, Policy::Batch, Policy::Idle] {
                for slice in [None, Some(Slice::MIN), Some(Slice::clamped(2_800_000)), Some(Slice::MAX)] {
                    let params = TaskParams { nice: Nice::new(nice).unwrap(), policy, slice };
                    assert_eq!(TaskParams::unpack(params.pack()), params);
                }
            }
        }
    }

    #[test]
    fn a_new_task_has_nice_0_and_weight_1024() {
        // DragonOS#2268, #2274: an off-by-one default nice of 1 gave every task weight 820.
        assert_eq!(TaskParams::default().weight().get(), 1024);
    }

    #[test]
    fn the_base_slice_grows_with_the_logarithm_of_the_cpus() {
        let base = |cpus| Tunables::for_cpus(cpus).base_slice.nanos();
        assert_eq!(
            [base(0), base(1), base(2), base(4), base(8), base(1024)],
            [700_000, 700_000, 1_400_000, 2_100_000, 2_800_000, 2_800_000]
        );
    }

    #[test]
    fn cfs_is_tuned_as_published() {
        let of = |cpus| {
            let cfs = Tunables::for_cpus(cpus).cfs;
            (cfs.latency, cfs.min_granularity, cfs.wakeup_granularity, cfs.idle_min_granularity, cfs.nr_latency())
        };
        assert_eq!(of(1), (6_000_000, 750_000, 1_000_000, 750_000, 8));
        assert_eq!(of(4), (18_000_000, 2_250_000, 3_000_000, 750_000, 8));
        assert_eq!(of(64), (24_000_000, 3_000_000, 4_000_000, 750_000, 8));
    }

    #[test]
    fn slices_are_held_in_range() {
        assert_eq!(Slice::clamped(0), Slice::MIN);
        assert_eq!(Slice::clamped(u64::MAX), Slice::MAX);
    }
}
