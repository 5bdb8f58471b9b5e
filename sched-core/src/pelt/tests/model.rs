//! # What it is
//! The three sums as they are defined: every unit of the past, weighed by how many periods back it lies.
//!
//! # How it works
//! The model keeps what happened, not what it came to. [`Model::sums`] goes through the whole past each time
//! and sums each stretch as a geometric series in floating point. Nothing is rounded and nothing is carried along.
//!
//! # Invariants
//! 1. Stretches follow each other without gap or overlap, in units.
//!
//! # Cost
//! O(history) a question.

use std::vec::Vec;

/// y^n.
fn power(periods: u64) -> f64 {
    (-(periods as f64) / 32.0).exp2()
}

/// What one stretch of time counted for: load, runnable, running.
pub(super) type Counts = [f64; 3];

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    /// First unit, first unit after, counts.
    stretches: Vec<(u64, u64, Counts)>,
    now: u64,
}

impl Model {
    /// The next `units` count as `counts`.
    pub(super) fn pass(&mut self, units: u64, counts: Counts) {
        self.stretches.push((self.now, self.now + units, counts));
        self.now += units;
    }

    /// Units of the present period so far.
    pub(super) fn partial(&self) -> u64 {
        self.now % 1024
    }

    /// Sums, in units.
    pub(super) fn sums(&self) -> Counts {
        let present = self.now / 1024;
        let mut sums = [0.0; 3];
        for &(from, to, counts) in &self.stretches {
            let age = |unit: u64| present - unit / 1024;
            let (first, last) = (from / 1024, to / 1024);
            let weighed = if first == last {
                (to - from) as f64 * power(age(from))
            } else {
                // The rest of the first period, the whole ones between, the beginning of the last.
                let whole = last - first - 1;
                let series = power(age(to) + 1) * (1.0 - power(whole)) / (1.0 - power(1));
                (1024 - from % 1024) as f64 * power(age(from)) + 1024.0 * series + (to % 1024) as f64 * power(age(to))
            };
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count * weighed;
            }
        }
        sums
    }
}
