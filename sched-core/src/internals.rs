//! # What it is
//! Parts of the crate for this workspace's benches and fuzzers: a bare timeline, a fair queue, a virtual clock.
//! There is no promise about any of it, and nothing in the crate depends on it.
//!
//! # How it works
//! Thin wrappers, so that what they wrap stays private.
//!
//! # Invariants
//! 1. A wrapper adds no work to what it wraps.
//!
//! # Cost
//! Nothing.

use crate::{
    entity::{EntityRef, SchedEntity},
    features::Fixed,
    params::{TaskParams, Tunables},
    platform::Nanos,
    policy::{Arrival, Departure, average::Average},
    queue::FairQueue,
    sync::{Right, Spin},
    timeline::{SliceIndex, Timeline},
    vtime::VTime,
    weight::Weight,
};

/// An entity lent to one of the structures below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entity(EntityRef<Spin>);

/// An entity off every queue.
pub fn entity() -> SchedEntity {
    SchedEntity::new()
}

impl Entity {
    /// # Safety
    /// From now on the entity is touched through the structure it is on, and it is on one at a time.
    pub unsafe fn of(entity: &'static SchedEntity) -> Self {
        // SAFETY: it lives for ever, and by this function's contract.
        Self(unsafe { EntityRef::new(entity.into()) })
    }
}

/// S, W and V of a set of entities.
#[derive(Clone, Copy, Debug)]
pub struct Mean(Average);

impl Mean {
    /// Of nobody.
    #[expect(clippy::new_without_default, reason = "no promise")]
    pub fn new() -> Self {
        Self(Average::new())
    }
    /// Adds one.
    #[inline(always)]
    pub fn add(&mut self, vruntime: VTime, weight: Weight) {
        self.0.add(vruntime, weight);
    }
    /// Takes one out.
    #[inline(always)]
    pub fn remove(&mut self, vruntime: VTime, weight: Weight) {
        self.0.remove(vruntime, weight);
    }
    /// `vruntime <= V`.
    #[inline(always)]
    pub fn eligible(&self, vruntime: VTime) -> bool {
        self.0.eligible(vruntime)
    }
    /// V.
    #[inline(always)]
    pub fn virtual_time(&mut self) -> VTime {
        self.0.virtual_time(None)
    }
}

/// A timeline and a slice index with nobody around them.
pub struct BareTimeline {
    right: Right,
    timeline: Timeline<Spin>,
    slices: SliceIndex<Spin>,
}

impl BareTimeline {
    /// An empty one; `base_slice` is in nanoseconds.
    pub fn new(base_slice: u32) -> Self {
        // SAFETY: the right lies beside what it is for.
        let right = unsafe { Right::of_a_new_queue() };
        Self { right, timeline: Timeline::new(), slices: SliceIndex::new(base_slice) }
    }
    /// Sets what orders an entity that is out.
    #[inline(always)]
    pub fn set_key(&mut self, entity: Entity, vruntime: VTime, deadline: VTime) {
        entity.0.set_key(&mut self.right, |key| (key.vruntime, key.deadline) = (vruntime, deadline));
    }
    /// Sets the weight and, where `slice` is not the default one, the slice of an entity that is out.
    pub fn set_request(&mut self, entity: Entity, weight: Weight, slice: u32) {
        let custom = slice != self.slices.default_slice();
        entity.0.set_key(&mut self.right, |key| (key.weight, key.slice) = (weight, slice));
        entity.0.set_own(&mut self.right, |own| own.custom_slice = custom);
    }
    /// v_i, w_i and r_i.
    #[inline(always)]
    pub fn key(&self, entity: Entity) -> (VTime, Weight, u32) {
        let key = entity.0.key(&self.right);
        (key.vruntime, key.weight, key.slice)
    }
    /// Links.
    #[inline(always)]
    pub fn insert(&mut self, entity: Entity) {
        self.timeline.insert(&mut self.right, entity.0);
    }
    /// Unlinks.
    #[inline(always)]
    pub fn remove(&mut self, entity: Entity) {
        self.timeline.remove(&mut self.right, entity.0);
    }
    /// Counts the slice of an entity.
    #[inline(always)]
    pub fn insert_slice(&mut self, entity: Entity) {
        self.slices.insert(&self.right, entity.0);
    }
    /// Counts it no more.
    #[inline(always)]
    pub fn remove_slice(&mut self, entity: Entity) {
        self.slices.remove(&self.right, entity.0);
    }
    /// The earliest deadline of the eligible.
    #[inline(always)]
    pub fn earliest(&mut self, mean: &Mean) -> Option<Entity> {
        let v = || { *mean }.virtual_time();
        self.timeline.earliest(&self.right, |vruntime| mean.eligible(vruntime), v).map(Entity)
    }
    /// The shortest slice.
    #[inline(always)]
    pub fn shortest(&self) -> u32 {
        self.slices.shortest()
    }
    /// The longest slice.
    #[inline(always)]
    pub fn longest(&self) -> u32 {
        self.slices.longest()
    }
}

/// A CPU's fair queue.
pub struct Queue(FairQueue<Spin, Fixed>);

impl Queue {
    /// An empty one. `tick` is in nanoseconds.
    pub fn new(tunables: &Tunables, tick: u32) -> Self {
        Self(FairQueue::new(tunables, tick))
    }
    /// An entity wakes up.
    #[inline(always)]
    pub fn wake(&mut self, entity: Entity, params: TaskParams, now: Nanos) {
        if self.0.is_delayed(entity.0) {
            self.0.undelay(entity.0, now);
        } else {
            self.0.enqueue(entity.0, params, Arrival::Woken, now);
        }
    }
    /// An entity falls asleep. It may wait on for a while.
    #[inline(always)]
    pub fn sleep(&mut self, entity: Entity, now: Nanos) {
        let _ = self.0.dequeue(entity.0, Departure::Sleep, now);
    }
    /// v_i of an entity that is here, or was last.
    pub fn vruntime(&self, entity: Entity) -> VTime {
        // SAFETY: the queue is borrowed, so nobody changes what is on it, and by the contract of `Entity::of`.
        unsafe { entity.0.key_held(|key| key.vruntime) }
    }
    /// Charges the running entity.
    #[inline(always)]
    pub fn charge(&mut self, now: Nanos) {
        self.0.charge(now);
    }
    /// Who should run.
    #[inline(always)]
    pub fn pick(&mut self, now: Nanos) -> Option<Entity> {
        self.0.pick(now, |_| {}).map(Entity)
    }
    /// It runs.
    #[inline(always)]
    pub fn start(&mut self, entity: Entity, now: Nanos) {
        self.0.start(entity.0, now);
    }
    /// The running one waits.
    #[inline(always)]
    pub fn stop(&mut self, now: Nanos) {
        self.0.stop(now);
    }
}
