//! # What it is
//! Two real queues and two model queues that share a set of entities and do everything twice.
//!
//! # How it works
//! Each command acts on the queue and on the model, compares what they answer, and then [`Twin::check`] compares all that can be seen.
//! Where the definition leaves a choice (equal deadlines), the model takes over the queue's.
//!
//! # Invariants
//! 1. A virtual time `x` of the model is `origin + x`, wrapped, in the queue.
//!
//! # Cost
//! O(n) an operation.

use core::{cell::Cell, ptr::NonNull};
use std::{sync::Arc, vec::Vec};

use super::{Entity, Queue, Verdict};
use crate::{
    entity::{EntityRef, Key, Own, Place, SchedEntity},
    features::{Feature, FeatureSet, Switchable},
    params::{Slice, TaskParams, Tunables},
    policy::{Arrival, Departure, Protection, average::Average, eevdf::Eevdf},
    queue::{AnyPolicy, FairQueue, Left},
    sync::Spin,
    vtime::VTime,
    weight::Weight,
};

/// After a sleep on the same queue.
pub(super) const WOKEN: Arrival = Arrival::Woken;

/// The queue under test.
pub(super) type Real = FairQueue<Spin, Switchable>;

/// EEVDF with a base slice, in nanoseconds.
pub(super) fn eevdf(base_slice: u32, tick: u32) -> Real {
    let tunables = Tunables { base_slice: Slice::clamped(u64::from(base_slice)), ..Tunables::for_cpus(1) };
    FairQueue::new(&tunables, tick)
}

impl Real {
    pub(super) fn eevdf(&mut self) -> &mut Eevdf {
        match &mut self.policy {
            AnyPolicy::Eevdf(eevdf) => eevdf,
            AnyPolicy::Cfs(_) => panic!("the queue is under CFS"),
        }
    }

    pub(super) fn waiting(&self) -> Average {
        match &self.policy {
            AnyPolicy::Eevdf(eevdf) => eevdf.waiting,
            AnyPolicy::Cfs(_) => panic!("the queue is under CFS"),
        }
    }

    /// V, without moving the zero point.
    pub(super) fn virtual_time(&self) -> VTime {
        self.waiting().virtual_time(self.members.running_key())
    }
}

/// A queue and its model.
pub(super) struct Side {
    pub real: Real,
    pub model: Queue,
    origin: u64,
}

/// Where virtual time starts in the two queues.
pub(super) type Origins = [u64; 2];

pub(super) const USUAL_ORIGINS: Origins = [VTime::START.raw(); 2];

pub(super) struct Twin {
    // Before `entities`: the trees let go of their entities before those die.
    pub sides: [Side; 2],
    pub model: Vec<Entity>,
    /// Which queue an entity is on.
    pub home: Vec<Option<usize>>,
    pub params: Vec<TaskParams>,
    pub now: u64,
    /// Compare after every so many operations.
    pub stride: u32,
    since_comparison: Cell<u32>,
    /// How far a vruntime may be from the zero point, in virtual nanoseconds, beside what was forgotten.
    pub reach: i64,
    entities: Vec<Arc<SchedEntity<Spin>>>,
}

impl Side {
    fn new(base_slice: u32, tick: u32, origin: u64) -> Self {
        let mut real = eevdf(base_slice, tick);
        real.eevdf().waiting = Average::starting_at(VTime::from_raw(origin));
        Self { real, model: Queue::new(base_slice, tick), origin }
    }

    fn raw(&self, model: i128) -> VTime {
        VTime::from_raw(self.origin.wrapping_add(model as u64))
    }

    /// V, without moving the zero point.
    pub fn virtual_time(&self) -> VTime {
        self.real.virtual_time()
    }
}

impl Twin {
    pub fn new(base_slice: u32, tick: u32, origins: Origins, params: &[TaskParams]) -> Self {
        let n = params.len();
        Self {
            sides: origins.map(|origin| Side::new(base_slice, tick, origin)),
            model: (0..n).map(|_| Entity::new()).collect(),
            home: (0..n).map(|_| None).collect(),
            params: params.into(),
            now: 1_000_000_000,
            stride: 1,
            since_comparison: Cell::new(0),
            reach: i64::MAX,
            entities: (0..n).map(|_| Arc::new(SchedEntity::new())).collect(),
        }
    }

    pub fn len(&self) -> usize {
        self.entities.len()
    }

    fn reference(&self, i: usize) -> EntityRef<Spin> {
        // SAFETY: the entity lives in an `Arc` until the queues are gone, or until `forget` finds it off every queue.
        unsafe { EntityRef::new(NonNull::from(&*self.entities[i])) }
    }

    fn index(&self, entity: EntityRef<Spin>) -> usize {
        self.entities.iter().position(|e| Arc::as_ptr(e) == entity.as_ptr().as_ptr()).unwrap()
    }

    pub fn key(&self, i: usize) -> Key {
        self.entities[i].key(&self.sides[0].real.members.right)
    }

    pub fn own(&self, i: usize) -> Own {
        self.entities[i].own(&self.sides[0].real.members.right)
    }

    pub fn received(&self, i: usize) -> u64 {
        self.entities[i].sum_exec()
    }

    pub fn running(&self, q: usize) -> Option<usize> {
        self.sides[q].model.running
    }

    /// `w (V - v)` as the queue sees it.
    pub fn weighted_lag(&self, i: usize) -> i128 {
        let side = &self.sides[self.home[i].unwrap()];
        let key = self.key(i);
        i128::from(key.weight.get()) * i128::from((side.virtual_time() - key.vruntime).get())
    }

    /// V - v as the queue sees it.
    pub fn lag(&self, i: usize) -> i128 {
        self.weighted_lag(i) / self.model[i].w()
    }

    /// Puts a new entity in the place of one that is off every queue.
    pub fn forget(&mut self, i: usize) {
        assert_eq!(self.home[i], None);
        for side in &mut self.sides {
            side.model.forgotten += self.model[i].w() * self.model[i].lag.abs();
        }
        self.entities[i] = Arc::new(SchedEntity::new());
        self.model[i] = Entity::new();
    }

    pub fn charge(&mut self, q: usize) -> bool {
        let side = &mut self.sides[q];
        let answer = side.real.charge(self.now);
        assert_eq!(answer, side.model.charge(&mut self.model, self.now), "whether to consider somebody else");
        self.check();
        if let Some(i) = self.running(q)
            && answer
            && self.model[i].deadline == self.model[i].vruntime + self.model[i].request()
        {
            assert!(self.key(i).deadline > self.key(i).vruntime, "deadline after a renewal");
        }
        answer
    }

    pub fn enqueue(&mut self, i: usize, q: usize, arrival: Arrival) {
        let relative = self.model[i].relative && self.sides[q].model.on(Feature::PlaceRelDeadline);
        self.enqueue_unchecked(i, q, arrival);
        self.check();
        let key = self.key(i);
        assert!(relative || key.deadline > key.vruntime, "deadline after placement");
        // What it left with it has again, once it has moved V by coming.
        if self.sides[q].model.members.len() > 1 && self.sides[q].model.on(Feature::PlaceLag) {
            assert!((self.lag(i) - self.model[i].lag).abs() <= 2, "lag kept over the absence");
        }
    }

    pub fn enqueue_unchecked(&mut self, i: usize, q: usize, arrival: Arrival) {
        let (entity, params) = (self.reference(i), self.params[i]);
        let side = &mut self.sides[q];
        side.real.enqueue(entity, params, arrival, self.now);
        side.model.enqueue(&mut self.model, i, params, arrival, self.now);
        self.home[i] = Some(q);
    }

    pub fn dequeue(&mut self, i: usize, departure: Departure) {
        let entity = self.reference(i);
        let side = &mut self.sides[self.home[i].unwrap()];
        let left = side.real.dequeue(entity, departure, self.now);
        let delayed = side.model.dequeue(&mut self.model, i, departure, self.now);
        assert_eq!(left == Left::Delayed, delayed, "whether {i} sleeps on the queue");
        if !delayed {
            self.home[i] = None;
        }
        self.check();
    }

    /// Sleeps, and does not wait on.
    pub fn sleep_at_once(&mut self, i: usize) {
        self.dequeue(i, Departure::Sleep);
        if self.model[i].delayed {
            self.give_up(i);
        }
    }

    pub fn set_feature(&mut self, q: usize, feature: Feature, on: bool) {
        let side = &mut self.sides[q];
        side.real.set_feature(feature, on);
        side.model.features.set(feature, on);
        side.model.buddy = None;
        self.check();
    }

    pub fn undelay(&mut self, i: usize) {
        let entity = self.reference(i);
        let side = &mut self.sides[self.home[i].unwrap()];
        side.real.undelay(entity, self.now);
        side.model.undelay(&mut self.model, i, self.now);
        self.check();
    }

    pub fn give_up(&mut self, i: usize) {
        let entity = self.reference(i);
        let side = &mut self.sides[self.home[i].unwrap()];
        side.real.give_up(entity, self.now);
        side.model.give_up(&mut self.model, i, self.now);
        self.home[i] = None;
        self.check();
    }

    /// The delayed entities that left in a pick, in that order: each was one of those to be picked.
    fn left_asleep(&mut self, q: usize, left: &[*mut SchedEntity<Spin>], protection: Protection) {
        for &entity in left {
            let i = self.entities.iter().position(|e| core::ptr::eq(Arc::as_ptr(e), entity)).unwrap();
            let candidates = self.sides[q].model.candidates(&self.model, protection == Protection::Honoured);
            assert!(candidates.contains(&i) && self.model[i].delayed, "{i} left, not one of {candidates:?} asleep");
            self.sides[q].model.take_out(&mut self.model, i, Departure::Sleep);
            self.home[i] = None;
        }
    }

    /// Asks who should run, and compares with everybody who may.
    pub fn pick(&mut self, q: usize) -> Option<usize> {
        let mut left = Vec::new();
        let picked = self.sides[q].real.pick(self.now, |entity| left.push(entity.as_ptr().as_ptr()));
        let picked = picked.map(|entity| self.index(entity));
        self.left_asleep(q, &left, Protection::Honoured);
        let candidates = self.sides[q].model.candidates(&self.model, true);
        match picked {
            Some(i) => assert!(candidates.contains(&i), "picked {i}, not one of {candidates:?}"),
            None => assert!(candidates.is_empty(), "picked nobody, not one of {candidates:?}"),
        }
        self.check();
        picked
    }

    pub fn start(&mut self, i: usize) {
        let (entity, q) = (self.reference(i), self.home[i].unwrap());
        let side = &mut self.sides[q];
        assert!(!self.model[i].delayed, "{i} runs asleep");
        side.real.start(entity, self.now);
        side.model.start(&mut self.model, i, self.now);
        self.check();
    }

    pub fn stop(&mut self, q: usize) {
        self.sides[q].real.stop(self.now);
        self.sides[q].model.stop();
        self.check();
    }

    /// What a CPU does that was asked to reschedule.
    pub fn reschedule(&mut self, q: usize) -> Option<usize> {
        self.charge(q);
        let picked = self.pick(q);
        if picked != self.running(q) {
            self.stop(q);
            if let Some(i) = picked {
                self.start(i);
            }
        }
        picked
    }

    pub fn preempts(&mut self, wakee: usize, arrival: Arrival) -> bool {
        let (entity, q) = (self.reference(wakee), self.home[wakee].unwrap());
        let verdict = self.sides[q].model.verdict(&self.model, wakee, arrival);
        let mut left = Vec::new();
        let answer = self.sides[q].real.preempts(entity, arrival, |entity| left.push(entity.as_ptr().as_ptr()));
        match verdict {
            Verdict::Certain(certain) => {
                assert_eq!(answer, certain, "preemption by {wakee}");
                assert!(left.is_empty());
            }
            Verdict::Pick(protection) => {
                self.left_asleep(q, &left, protection);
                let candidates = self.sides[q].model.candidates(&self.model, protection == Protection::Honoured);
                let (may, may_not) = (candidates.contains(&wakee), candidates.iter().any(|&i| i != wakee));
                assert!(if answer { may } else { may_not }, "preemption by {wakee}: {answer}, {candidates:?}");
            }
        }
        let side = &mut self.sides[q];
        side.model.preempted(&mut self.model, verdict, answer);
        self.check();
        answer
    }

    pub fn yield_running(&mut self, q: usize) {
        let before = self.running(q).map(|i| self.key(i).vruntime);
        let side = &mut self.sides[q];
        side.real.yield_running(self.now);
        side.model.yield_running(&mut self.model, self.now);
        self.check();
        if let (Some(i), Some(before)) = (self.running(q), before) {
            assert!(self.key(i).vruntime >= before, "a yield gives service back");
        }
    }

    /// Gives `i` new parameters, on a queue or off.
    pub fn set_params(&mut self, i: usize, params: TaskParams) {
        self.params[i] = params;
        let Some(q) = self.home[i] else { return };
        // V and lag can be compared with before if nothing is charged meanwhile.
        let settled = self.running(q).is_none_or(|running| self.model[running].exec_start >= self.now);
        let (v, weighted) = (self.sides[q].virtual_time(), self.weighted_lag(i));
        let clamped = self.sides[q].model.clamped_lag(&self.model, i) != self.lag(i);
        let total = self.sides[q].model.total_weight(&self.model);
        let entity = self.reference(i);
        let side = &mut self.sides[q];
        side.real.reweight(entity, params, self.now);
        side.model.reweight(&mut self.model, i, params, self.now);
        self.check();
        if settled && !clamped {
            // V was rounded down by less than 1, which is `total` in units of lag; v by less than 1, which is `w`.
            let (w, new_total) = (self.model[i].w(), self.sides[q].model.total_weight(&self.model));
            let shift = i128::from((self.sides[q].virtual_time() - v).get());
            assert!(shift.abs() <= 1 + (total + w) / new_total, "V moved by {shift} by a reweight");
            let change = self.weighted_lag(i) - weighted;
            assert!(change.abs() <= 2 * w + total, "lag changed by {change} by a reweight");
        }
    }

    /// Compares everything that can be seen, if it is time to.
    pub fn check(&self) {
        self.since_comparison.set(self.since_comparison.get() + 1);
        if self.since_comparison.get() < self.stride {
            return;
        }
        self.since_comparison.set(0);
        for side in &self.sides {
            side.check(&self.model, self.reach);
        }
        for i in 0..self.entities.len() {
            self.check_entity(i);
        }
    }

    fn check_entity(&self, i: usize) {
        let (key, own, model) = (self.key(i), self.own(i), &self.model[i]);
        assert_eq!(self.received(i), model.sum_exec, "service of {i}");
        assert_eq!(own.on_rq, self.home[i].is_some());
        assert_eq!((own.relative, own.delayed), (model.relative, model.delayed));
        assert_eq!(key.weight, model.weight);
        assert_eq!((key.slice, own.custom_slice, own.policy), (model.slice, model.custom, model.policy));
        let Some(q) = self.home[i] else {
            assert_eq!(key.place, Place::NOWHERE);
            assert_eq!(i128::from(own.vlag.get()), model.lag, "lag of {i}, which is away");
            if model.relative {
                assert_eq!(
                    i128::from((key.deadline - VTime::from_raw(0)).get()),
                    model.deadline,
                    "deadline of {i}, which moves"
                );
            }
            return;
        };
        if model.delayed {
            assert_eq!(i128::from(own.vlag.get()), model.lag, "lag of {i}, which is delayed");
        }
        let side = &self.sides[q];
        assert_eq!(key.vruntime, side.raw(model.vruntime), "vruntime of {i}");
        assert_eq!(key.deadline, side.raw(model.deadline), "deadline of {i}");
        if side.model.running == Some(i) {
            assert_eq!(key.place, Place::NOWHERE);
            assert_eq!(own.protected_until, side.raw(model.protected_until), "protection of {i}");
            assert_eq!(own.exec_start, model.exec_start);
        } else {
            assert_ne!(key.place, Place::NOWHERE);
        }
    }
}

impl Side {
    fn check(&self, all: &[Entity], reach: i64) {
        let Self { real, model, .. } = self;
        let v = self.virtual_time();
        assert_eq!(v, self.raw(model.virtual_time(all)), "V");
        let waiting = || model.members.iter().copied().filter(|&i| Some(i) != model.running);
        assert_eq!(real.waiting().weight(), waiting().map(|i| u64::from(all[i].weight.get())).sum(), "W");
        // S and the sum of all lags, from the queue's own virtual times, which `check_entity` compares one by one.
        let zero = real.waiting().zero();
        let moment = |i: usize, from: VTime| all[i].w() * i128::from((self.raw(all[i].vruntime) - from).get());
        assert_eq!(i128::from(real.waiting().sum()), waiting().map(|i| moment(i, zero)).sum(), "S");
        let lags: i128 = model.members.iter().map(|&i| -moment(i, v)).sum();
        let total = model.total_weight(all);
        assert!(lags <= 0 && -lags < total.max(1), "the lags sum to {lags} at weight {total}");
        // What was forgotten weighed on the others, at worst on the lightest alone.
        let reach = i128::from(reach) + model.forgotten / i128::from(Weight::IDLE.get());
        for &i in &model.members {
            let distance = i128::from((self.raw(all[i].vruntime) - zero).get().abs());
            assert!(distance <= reach, "{i} is {distance} from the zero point");
        }
        let there = &real.members;
        let asleep = model.members.iter().filter(|&&i| all[i].delayed).count();
        assert_eq!((there.nr as usize, there.nr_delayed as usize), (model.members.len(), asleep));
        assert_eq!(real.nr_runnable() as usize, model.members.len() - asleep);
        assert_eq!(i128::from(there.weight), total);
        assert_eq!(there.timeline.len() as usize, waiting().count());
        assert_eq!(there.running.is_some(), model.running.is_some());
        assert_eq!(there.next_buddy.is_some(), model.buddy.is_some(), "next buddy");
        there.timeline.check(&there.right);
        assert_eq!(there.slices.shortest(), model.shortest(all).unwrap_or(model.base_slice), "shortest slice");
        assert_eq!(there.slices.longest(), model.longest(all).unwrap_or(model.base_slice), "longest slice");
        assert_eq!(real.pick_failures(), 0);
    }
}
