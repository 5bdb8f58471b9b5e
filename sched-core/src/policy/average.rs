//! # What it is
//! The virtual time of a queue: the weighted mean of all vruntimes.
//! It knows numbers, not queues.
//!
//! # How it works
//! V is where everybody would be on an ideal machine that serves all at once.
//! An entity with `vruntime <= V` has had too little (it is *eligible*); lag_i = w_i (V - v_i), and all lags sum to 0.
//! [`Average`] keeps S = sum w_i (v_i - v0) and W = sum w_i over the waiting entities, relative to a moving zero point v0,
//! so V = v0 + S / W without ever summing absolute vruntimes.
//! The running entity is added on the fly.
//! The division rounds down, so that V itself is always eligible, and moves v0 to V, which keeps every product small.
//!
//! # Invariants
//! 1. S and W equal the sums over the waiting entities.
//! 2. Somebody is eligible in every queue that is not empty.
//! 3. |v_i - v0| stays below 2^44: lags are clamped to a slice and a tick, and v0 follows V.
//!
//! # Cost
//! Eligibility is one multiplication; V is one division.

use crate::{
    entity::Key,
    vtime::{VSpan, VTime},
    weight::Weight,
};

/// S, W and v0 of the waiting entities of one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Average {
    sum: i64,
    weight: u64,
    zero: VTime,
}

impl Average {
    pub(crate) fn new() -> Self {
        Self { sum: 0, weight: 0, zero: VTime::START }
    }

    /// W of the entities that were added.
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    /// An average whose virtual time starts anywhere.
    #[cfg(any(test, feature = "model"))]
    pub(crate) fn starting_at(zero: VTime) -> Self {
        Self { zero, ..Self::new() }
    }

    /// v0.
    #[cfg(any(test, feature = "model"))]
    pub(crate) fn zero(&self) -> VTime {
        self.zero
    }

    /// S.
    #[cfg(any(test, feature = "model"))]
    pub(crate) fn sum(&self) -> i64 {
        self.sum
    }

    #[inline(always)]
    fn moment(&self, vruntime: VTime, weight: Weight) -> i64 {
        (vruntime - self.zero).get() * i64::from(weight.get())
    }

    /// An entity starts to wait.
    #[inline(always)]
    pub(crate) fn add(&mut self, vruntime: VTime, weight: Weight) {
        self.sum += self.moment(vruntime, weight);
        self.weight += u64::from(weight.get());
    }

    /// An entity no longer waits.
    #[inline(always)]
    pub(crate) fn remove(&mut self, vruntime: VTime, weight: Weight) {
        self.sum -= self.moment(vruntime, weight);
        self.weight -= u64::from(weight.get());
    }

    /// This average and the running entity.
    #[inline(always)]
    pub(crate) fn and(mut self, running: Option<Key>) -> Self {
        if let Some(key) = running {
            self.add(key.vruntime, key.weight);
        }
        self
    }

    /// Whether an entity at `vruntime` has had no more than its share: `vruntime <= V`, without a division.
    #[inline(always)]
    pub(crate) fn eligible(&self, vruntime: VTime) -> bool {
        i128::from(self.sum) >= i128::from((vruntime - self.zero).get()) * i128::from(self.weight)
    }

    /// V of the waiting and the running entity, rounded down. Moves v0 there.
    ///
    /// V of an empty queue is where it was when the last one left.
    #[inline]
    pub(crate) fn virtual_time(&mut self, running: Option<Key>) -> VTime {
        let all = self.and(running);
        if all.weight != 0 {
            // Floor division by a positive number: a negative sum must not round up past an entity.
            let shift = all.sum.div_euclid(all.weight as i64);
            self.zero += VSpan::new(shift);
            self.sum -= shift * self.weight as i64;
        }
        self.zero
    }
}
