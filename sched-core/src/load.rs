//! # What it is
//! The load of one CPU's fair queue and of its entities, kept up to date by what happens there.
//!
//! # How it works
//! [`Signals`] are updated before anything changes that they count: who is queued, who is awake, who runs.
//! [`Tracking`] holds the queue's signals and its clock, and knows in which order its calls must come.
//! A task that wakes on another CPU is still part of the signals of the queue on which it fell asleep;
//! it is aged to the time of that queue, and what it leaves behind is subtracted there later ([`Removed`]).
//!
//! # Invariants
//! 1. The queue's estimate is the sum of those of its entities that are queued and awake.
//! 2. An entity is attached to the queue it is on or slept on, and to no other.
//!
//! # Cost
//! Two updates an event: for the queue and for the entity it is about.

use crate::{
    entity::EntityRef,
    features::{Feature, FeatureSet},
    members::Members,
    pelt::{Capacity, Input, PeltClock, PeltTime, Presence, Removed, Signals},
    platform::Nanos,
    sync::Family,
    weight::Weight,
};

/// The queue's side of load tracking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracking {
    signals: Signals,
    clock: PeltClock,
    /// The task clock, as of the last update.
    task_clock: Nanos,
}

impl Tracking {
    /// Of an empty queue at the beginning of time.
    pub(crate) fn new() -> Self {
        Self { signals: Signals::queue(), clock: PeltClock::new(0), task_clock: 0 }
    }

    pub(crate) fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Updates the queue's signals. Comes before every change of who is queued, awake or running.
    #[inline(always)]
    pub(crate) fn age<F: Family, X: FeatureSet>(&mut self, members: &Members<F, X>, now: Nanos) {
        let passed = now.saturating_sub(self.task_clock);
        if passed == 0 {
            return;
        }
        self.task_clock = now;
        let running = members.running.as_ref();
        if running.is_some() {
            self.clock.advance(passed, Capacity::FULL, Capacity::FULL);
        } else {
            self.clock.advance_idle(now);
        }
        self.signals.update(self.clock.now(), Input::queue(members.weight, members.nr_runnable(), running));
    }

    /// Updates the signals of `entity`, which has been at `presence`. Comes after [`age`](Self::age).
    #[inline(always)]
    pub(crate) fn age_entity<F: Family, X: FeatureSet>(
        &self,
        members: &mut Members<F, X>,
        entity: EntityRef<F>,
        presence: Presence,
    ) {
        let weight = members.key(entity).weight;
        let now = self.clock.now();
        entity.set_signals(&mut members.right, |signals| {
            signals.update(now, Input::task(weight, presence));
        });
    }

    /// `entity`, which weighed `old`, comes with the weight `new`; for the first time if it is `fresh`.
    #[inline(always)]
    pub(crate) fn comes<F: Family, X: FeatureSet>(
        &mut self,
        members: &mut Members<F, X>,
        entity: EntityRef<F>,
        (old, new): (Weight, Weight),
        fresh: bool,
    ) {
        let (queue, now) = (&mut self.signals, self.clock.now());
        entity.set_signals(&mut members.right, |signals| {
            if signals.is_attached() {
                signals.update(now, Input::task(old, Presence::Absent));
            } else {
                if fresh {
                    signals.guess(new, queue, Capacity::FULL);
                }
                queue.attach(signals, old);
            }
            if old != new {
                queue.reweight(signals, old, new);
            }
            queue.add_estimate(signals);
        });
    }

    /// `entity`, which is up to date, falls asleep.
    #[inline(always)]
    pub(crate) fn falls_asleep<F: Family, X: FeatureSet>(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>) {
        let (queue, remember) = (&mut self.signals, members.on(Feature::UtilEst));
        entity.set_signals(&mut members.right, |signals| {
            queue.subtract_estimate(signals);
            if remember {
                signals.note_sleep();
            }
        });
    }

    /// `entity`, which is up to date and asleep on this queue, wakes up there.
    pub(crate) fn wakes<F: Family, X: FeatureSet>(&mut self, members: &Members<F, X>, entity: EntityRef<F>) {
        self.signals.add_estimate(&entity.signals(&members.right));
    }

    /// `entity`, which is up to date, leaves for good.
    pub(crate) fn leaves<F: Family, X: FeatureSet>(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>) {
        let (queue, weight) = (&mut self.signals, members.key(entity).weight);
        entity.set_signals(&mut members.right, |signals| {
            queue.subtract_estimate(signals);
            queue.detach(signals, weight);
        });
    }

    /// `entity`, which is queued and up to date, weighs `new` from now on.
    pub(crate) fn reweights<F: Family, X: FeatureSet>(
        &mut self,
        members: &mut Members<F, X>,
        entity: EntityRef<F>,
        new: Weight,
    ) {
        let (queue, old) = (&mut self.signals, members.key(entity).weight);
        entity.set_signals(&mut members.right, |signals| queue.reweight(signals, old, new));
    }

    /// What left this queue without its lock is no longer part of it.
    pub(crate) fn forget(&mut self, removed: Removed) {
        self.signals.remove(removed);
    }

    /// The queue's last entity stops: its CPU goes idle.
    pub(crate) fn goes_idle(&mut self, now: Nanos) {
        self.clock.go_idle(now, now, &self.signals);
    }

    /// The time of the queue's signals.
    #[inline(always)]
    pub(crate) fn time(&self) -> PeltTime {
        self.signals.last_update()
    }
}
