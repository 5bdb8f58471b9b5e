//! # What it is
//! One CPU's fair queue: the entities that want to run there, the one that does, and who comes next.
//!
//! # How it works
//! Waiting entities lie in the [`Timeline`]; the running one is outside it and is added to the sums on the fly.
//! Every method that changes who is queued first charges the running entity up to `now`.
//! The decisions are those of [`eevdf`]; this file keeps the sums, the trees and the entities consistent.
//!
//! # Invariants
//! 1. `waiting` holds S and W of exactly the entities in the timeline.
//! 2. `nr` is the size of the timeline, plus one if an entity runs.
//! 3. The slice index holds the waiting entities and the running one.
//! 4. A pick from a queue that is not empty is somebody, and of all eligible ones has the earliest deadline,
//!    unless the running one is protected.
//! 5. A reweight, and joining or leaving at lag 0, leave V and the lag of all others as they were, up to rounding.
//!    Lag that an entity takes along is the others' loss or gain in proportion to their weights, until it returns.
//!
//! # Cost
//! O(log n) for all but `tick`, which is O(1). No allocation. The caller holds the queue's lock.

use crate::{
    entity::{EntityRef, Key, Own},
    params::{Policy, TaskParams},
    platform::Nanos,
    policy::eevdf::{self, Arrival, Average, Departure},
    sync::{Family, Right},
    timeline::{SliceIndex, Timeline},
    vtime::VTime,
};

/// The most virtual time is charged for at once, in nanoseconds: 13 days.
/// A clock that jumped further must not overflow S; 2^50 times 1024 leaves it three bits.
const LONGEST_CHARGE: Nanos = 1 << 50;

pub(crate) struct FairQueue<F: Family> {
    right: Right,
    waiting: Average,
    running: Option<EntityRef<F>>,
    nr: u32,
    tick: u32,
    timeline: Timeline<F>,
    slices: SliceIndex<F>,
    /// Picks that found nobody eligible. Stays 0 unless the arithmetic is wrong.
    pick_failures: u64,
}

/// Whether the running entity's protection counts in a pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protection {
    Honoured,
    Ignored,
}

impl<F: Family> FairQueue<F> {
    /// An empty queue. `base_slice` and `tick` are in nanoseconds.
    pub(crate) fn new(base_slice: u32, tick: u32) -> Self {
        Self {
            // SAFETY: the right lies in the queue it is for.
            right: unsafe { Right::of_a_new_queue() },
            waiting: Average::new(),
            running: None,
            nr: 0,
            tick,
            timeline: Timeline::new(),
            slices: SliceIndex::new(base_slice),
            pick_failures: 0,
        }
    }

    /// Entities that wait or run.
    #[inline(always)]
    pub(crate) fn nr(&self) -> u32 {
        self.nr
    }

    pub(crate) fn pick_failures(&self) -> u64 {
        self.pick_failures
    }

    #[inline(always)]
    fn running_key(&self) -> Option<Key> {
        self.running.map(|running| running.key(&self.right))
    }

    fn virtual_time(&mut self) -> VTime {
        let running = self.running_key();
        self.waiting.virtual_time(running)
    }

    /// W of everybody.
    fn weight(&self) -> u64 {
        self.waiting.weight() + self.running_key().map_or(0, |key| u64::from(key.weight.get()))
    }

    /// Charges the running entity up to `now`. True when somebody else should be considered:
    /// its request ended, or it is no longer protected.
    #[inline]
    pub(crate) fn charge(&mut self, now: Nanos) -> bool {
        let Some(running) = self.running else { return false };
        let ran = running.set_own(&mut self.right, |own| {
            // A clock that stepped back charges nothing.
            let ran = now.saturating_sub(own.exec_start);
            if ran > 0 {
                own.exec_start = now;
            }
            ran
        });
        if ran == 0 {
            return false;
        }
        running.add_exec(&mut self.right, ran);
        let (vruntime, renewed) = running.set_key(&mut self.right, |key| {
            key.vruntime += key.weight.virtual_time(ran.min(LONGEST_CHARGE));
            (key.vruntime, eevdf::renew(key))
        });
        if renewed {
            // Moves v0 along with V, also while one entity runs alone for long.
            self.virtual_time();
        }
        self.nr > 1 && (renewed || vruntime >= running.own(&self.right).protected_until)
    }

    /// The tick: charges, and asks the question of [`charge`](Self::charge) also if somebody else charged at this very moment,
    /// as happens at every tick on a machine whose clock moves with its ticks.
    #[inline]
    pub(crate) fn tick(&mut self, now: Nanos) -> bool {
        let over = self.charge(now);
        let past =
            |running: EntityRef<F>| running.key(&self.right).vruntime >= running.own(&self.right).protected_until;
        over || self.nr > 1 && self.running.is_some_and(past)
    }

    /// `entity` joins with the parameters `params`.
    pub(crate) fn enqueue(&mut self, entity: EntityRef<F>, params: TaskParams, arrival: Arrival, now: Nanos) {
        debug_assert!(!entity.own(&self.right).on_rq, "enqueued twice");
        self.charge(now);
        let virtual_time = self.virtual_time();
        let weight = self.weight();
        let (mut key, mut own) = (entity.key(&self.right), entity.own(&self.right));
        if key.weight != params.weight() {
            eevdf::reweight_away(&mut key, &mut own, params.weight());
        }
        self.apply_slice(&mut key, &mut own, params);
        eevdf::place(&mut key, &mut own, virtual_time, weight, arrival);
        own.on_rq = true;
        self.write_back(entity, key, own);
        self.nr += 1;
        self.slices.insert(&self.right, entity);
        self.wait(entity);
    }

    /// `entity`, waiting or running, leaves.
    pub(crate) fn dequeue(&mut self, entity: EntityRef<F>, departure: Departure, now: Nanos) {
        debug_assert!(entity.own(&self.right).on_rq, "dequeued twice");
        self.charge(now);
        let virtual_time = self.virtual_time();
        let limit = self.lag_limit(entity);
        if self.running == Some(entity) {
            self.running = None;
        } else {
            self.stop_waiting(entity);
        }
        self.slices.remove(&self.right, entity);
        self.nr -= 1;
        let (mut key, mut own) = (entity.key(&self.right), entity.own(&self.right));
        eevdf::leave(&mut key, &mut own, virtual_time, limit, departure);
        own.on_rq = false;
        self.write_back(entity, key, own);
    }

    /// Who should run: the running entity or a waiting one. None of an empty queue.
    #[inline]
    pub(crate) fn pick(&mut self) -> Option<EntityRef<F>> {
        self.pick_with(Protection::Honoured)
    }

    fn pick_with(&mut self, protection: Protection) -> Option<EntityRef<F>> {
        let average = self.waiting.and(self.running_key());
        let contender = self.running.filter(|running| average.eligible(running.key(&self.right).vruntime));
        if self.nr == 1 {
            return self.running.or_else(|| self.timeline.any_leftmost(&self.right));
        }
        if let Some(running) = contender
            && protection == Protection::Honoured
            && running.key(&self.right).vruntime < running.own(&self.right).protected_until
        {
            return contender;
        }
        let best = self.timeline.earliest(&mut self.right, |vruntime| average.eligible(vruntime));
        match (contender, best) {
            (Some(running), Some(waiting)) => {
                let sooner = running.key(&self.right).deadline < waiting.key(&self.right).deadline;
                Some(if sooner { running } else { waiting })
            }
            (None, None) if self.nr > 0 => {
                debug_assert!(false, "nobody is eligible");
                self.pick_failures += 1;
                self.timeline.any_leftmost(&self.right).or(self.running)
            }
            (contender, best) => contender.or(best),
        }
    }

    /// `entity`, which waits here, starts to run.
    #[inline]
    pub(crate) fn start(&mut self, entity: EntityRef<F>, now: Nanos) {
        debug_assert!(self.running.is_none());
        self.stop_waiting(entity);
        let shortest = self.slices.shortest(&self.right).unwrap_or(self.slices.default_slice());
        let protected_until = eevdf::protection(&entity.key(&self.right), shortest);
        let sum_exec = entity.sum_exec();
        entity.set_own(&mut self.right, |own| {
            own.exec_start = now;
            own.prev_sum_exec = sum_exec;
            own.protected_until = protected_until;
        });
        self.running = Some(entity);
    }

    /// The running entity, charged up to now, goes back to waiting. Nothing if none runs.
    #[inline]
    pub(crate) fn stop(&mut self) {
        if let Some(entity) = self.running.take() {
            self.wait(entity);
        }
    }

    /// Starts the clock of an entity that runs on this CPU outside the fair class (the idle task, the stop task).
    #[inline]
    pub(crate) fn start_outsider(&mut self, entity: EntityRef<F>, now: Nanos) {
        entity.set_own(&mut self.right, |own| own.exec_start = now);
    }

    /// Charges an entity that [`start_outsider`](Self::start_outsider) started.
    #[inline]
    pub(crate) fn charge_outsider(&mut self, entity: EntityRef<F>, now: Nanos) {
        let ran = entity.set_own(&mut self.right, |own| {
            let ran = now.saturating_sub(own.exec_start);
            own.exec_start = own.exec_start.max(now);
            ran
        });
        entity.add_exec(&mut self.right, ran);
    }

    /// Whether `wakee`, which was just enqueued, should run instead of the running entity.
    pub(crate) fn preempts(&mut self, wakee: EntityRef<F>, arrival: Arrival) -> bool {
        let Some(running) = self.running else { return true };
        let (mine, theirs) = (running.own(&self.right).policy, wakee.own(&self.right).policy);
        match (mine, theirs) {
            (Policy::Idle, Policy::Normal | Policy::Batch) => {
                self.end_protection(running);
                return true;
            }
            (_, Policy::Batch | Policy::Idle) => return false,
            _ => {}
        }
        let shorter = wakee.key(&self.right).slice < running.key(&self.right).slice;
        if !shorter && arrival == Arrival::Fresh {
            return false;
        }
        let protection = if shorter { Protection::Ignored } else { Protection::Honoured };
        if self.pick_with(protection) == Some(wakee) {
            // The pick that follows honours protection; it must come to the same answer.
            self.end_protection(running);
            return true;
        }
        let shortest = self.slices.shortest(&self.right).unwrap_or(self.slices.default_slice());
        let key = running.key(&self.right);
        let until = key.vruntime + key.weight.virtual_time(u64::from(shortest));
        running.set_own(&mut self.right, |own| own.protected_until = own.protected_until.earlier(until));
        false
    }

    /// The running entity gives up the rest of its request, if it is eligible and not alone.
    pub(crate) fn yield_running(&mut self, now: Nanos) {
        self.charge(now);
        let average = self.waiting.and(self.running_key());
        let Some(running) = self.running.filter(|_| self.nr > 1) else { return };
        if average.eligible(running.key(&self.right).vruntime) {
            running.set_key(&mut self.right, |key| {
                // A deadline that a reweight left behind must not give service back.
                key.vruntime = key.vruntime.later(key.deadline);
                eevdf::renew(key);
            });
            // V moved by up to a request without anybody running: v0 moves along, also in a storm of yields.
            self.virtual_time();
        }
        self.end_protection(running);
    }

    /// Gives `entity`, which is queued here, the parameters `params`. Its lag and V stay as they are.
    pub(crate) fn reweight(&mut self, entity: EntityRef<F>, params: TaskParams, now: Nanos) {
        debug_assert!(entity.own(&self.right).on_rq);
        self.charge(now);
        let virtual_time = self.virtual_time();
        let limit = self.lag_limit(entity);
        let waits = self.running != Some(entity);
        if waits {
            self.stop_waiting(entity);
        }
        self.slices.remove(&self.right, entity);
        let (mut key, mut own) = (entity.key(&self.right), entity.own(&self.right));
        if key.weight != params.weight() {
            eevdf::reweight(&mut key, &mut own, virtual_time, limit, params.weight());
        }
        self.apply_slice(&mut key, &mut own, params);
        self.write_back(entity, key, own);
        self.slices.insert(&self.right, entity);
        if waits {
            self.wait(entity);
        }
    }

    fn lag_limit(&self, entity: EntityRef<F>) -> crate::vtime::VSpan {
        let longest = self.slices.longest(&self.right).unwrap_or(self.slices.default_slice());
        eevdf::lag_limit(entity.key(&self.right).weight, longest, self.tick)
    }

    fn apply_slice(&self, key: &mut Key, own: &mut Own, params: TaskParams) {
        own.policy = params.policy;
        own.custom_slice = params.slice.is_some();
        key.slice = params.slice.map_or(self.slices.default_slice(), |slice| slice.nanos());
    }

    #[inline(always)]
    fn write_back(&mut self, entity: EntityRef<F>, key: Key, own: Own) {
        entity.set_key(&mut self.right, |slot| *slot = key);
        entity.set_own(&mut self.right, |slot| *slot = own);
    }

    fn end_protection(&mut self, running: EntityRef<F>) {
        let vruntime = running.key(&self.right).vruntime;
        running.set_own(&mut self.right, |own| own.protected_until = vruntime);
    }

    /// Into the timeline and the sums.
    #[inline]
    fn wait(&mut self, entity: EntityRef<F>) {
        let key = entity.key(&self.right);
        self.waiting.add(key.vruntime, key.weight);
        let eligible = self.waiting.and(self.running_key()).eligible(key.vruntime);
        self.timeline.insert(&mut self.right, entity, eligible);
    }

    /// Out of the timeline and the sums.
    #[inline]
    fn stop_waiting(&mut self, entity: EntityRef<F>) {
        let key = entity.key(&self.right);
        self.timeline.remove(&mut self.right, entity);
        self.waiting.remove(key.vruntime, key.weight);
    }
}

#[cfg(test)]
mod model;
