//! # What it is
//! The arithmetic of EEVDF, earliest eligible virtual deadline first.
//! It knows numbers, not queues.
//!
//! # How it works
//! V, the weighted mean of all vruntimes, is where everybody would be on an ideal machine that serves all at once.
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
    entity::{Key, Own},
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
    #[cfg(test)]
    pub(crate) fn starting_at(zero: VTime) -> Self {
        Self { zero, ..Self::new() }
    }

    /// v0.
    #[cfg(test)]
    pub(crate) fn zero(&self) -> VTime {
        self.zero
    }

    /// S.
    #[cfg(test)]
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

/// How far from V an entity of this weight may be remembered: its virtual time for the longest request of the queue and a tick.
#[inline]
pub(crate) fn lag_limit(weight: Weight, longest_slice: u32, tick: u32) -> VSpan {
    weight.virtual_time(u64::from(longest_slice) + u64::from(tick))
}

/// How an entity comes to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// For the first time: half a request, so that it catches up with the others' phase.
    Fresh,
    /// After a sleep, or from another queue.
    Returning,
}

/// Places an entity that joins a queue at `virtual_time`, whose present members weigh `queued_weight`.
///
/// The lag it left with is kept. Joining moves V towards the joiner, so the lag is inflated by (W + w) / W beforehand:
/// after the join it is what it was. The deadline is kept too if the entity left in the middle of a request.
#[inline]
pub(crate) fn place(key: &mut Key, own: &mut Own, virtual_time: VTime, queued_weight: u64, arrival: Arrival) {
    let lag = if queued_weight != 0 && own.vlag != VSpan::ZERO {
        own.vlag.scaled(queued_weight + u64::from(key.weight.get()), queued_weight)
    } else {
        VSpan::ZERO
    };
    key.vruntime = virtual_time - lag;
    if own.relative_deadline {
        own.relative_deadline = false;
        key.deadline = key.vruntime + (key.deadline - VTime::from_raw(0));
        return;
    }
    let request = key.weight.virtual_time(u64::from(key.slice)).get();
    let request = if arrival == Arrival::Fresh { request / 2 } else { request };
    key.deadline = key.vruntime + VSpan::new(request);
}

/// What an entity takes along when it leaves a queue at `virtual_time`.
#[inline]
pub(crate) fn leave(key: &mut Key, own: &mut Own, virtual_time: VTime, limit: VSpan, departure: Departure) {
    own.vlag = (virtual_time - key.vruntime).clamp_to(limit);
    if departure == Departure::Move {
        key.deadline = VTime::from_raw(0) + (key.deadline - key.vruntime);
        own.relative_deadline = true;
    }
}

/// Why an entity leaves its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// To sleep or to die: its request is over.
    Sleep,
    /// To another queue: its request goes on there.
    Move,
}

/// Ends a request whose deadline is reached, and starts the next from where the entity is now.
#[inline(always)]
pub(crate) fn renew(key: &mut Key) -> bool {
    let over = key.vruntime >= key.deadline;
    if over {
        key.deadline = key.vruntime + key.weight.virtual_time(u64::from(key.slice));
    }
    over
}

/// How far an entity that was just picked is safe from its equals: the shortest slice of the queue, or its deadline if that is earlier.
#[inline]
pub(crate) fn protection(key: &Key, shortest_slice: u32) -> VTime {
    if shortest_slice < key.slice {
        key.deadline.earlier(key.vruntime + key.weight.virtual_time(u64::from(shortest_slice)))
    } else {
        key.deadline
    }
}

/// Changes the weight of an entity with V, its lag and its place in the present request kept.
pub(crate) fn reweight(key: &mut Key, own: &mut Own, virtual_time: VTime, limit: VSpan, weight: Weight) {
    let (from, to) = (u64::from(key.weight.get()), u64::from(weight.get()));
    let rescale = |span: VSpan| span.scaled(from, to);
    let lag = (virtual_time - key.vruntime).clamp_to(limit);
    key.vruntime = virtual_time - rescale(lag);
    key.deadline = virtual_time + rescale(key.deadline - virtual_time);
    own.protected_until = virtual_time + rescale(own.protected_until - virtual_time);
    key.weight = weight;
}

/// Changes the weight of an entity that is on no queue: what it carries is scaled.
pub(crate) fn reweight_away(key: &mut Key, own: &mut Own, weight: Weight) {
    let (from, to) = (u64::from(key.weight.get()), u64::from(weight.get()));
    own.vlag = own.vlag.scaled(from, to);
    if own.relative_deadline {
        key.deadline = VTime::from_raw(0) + (key.deadline - VTime::from_raw(0)).scaled(from, to);
    }
    key.weight = weight;
}
