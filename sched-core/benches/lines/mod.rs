//! # What it is
//! What is measured: an ordered set of waiting entities behind one interface, and the two loads it carries.
//!
//! # How it works
//! [`Line`] is the interface; [`Timeline`] is what the crate has, [`TwoTrees`] and [`ThreeSums`] are the alternatives.
//! [`Bare`] drives a line as EEVDF does, with the crate's own virtual time and nothing else;
//! [`Fair`] drives the crate's whole fair queue, [`Map`] a plain `BTreeMap`, [`Ax`] the CFS of the crate `axsched`.
//! Three operations are counted: see [`Load`].
//!
//! # Invariants
//! 1. All lines pick the same entities from the same load (test `lines_agree`).
//! 2. Every entity has an allocation of its own, as in a kernel.
//!
//! # Cost
//! Beside the line: S and W, one comparison with V per insertion, one division a step.

pub mod augmented;
pub mod two_trees;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64, atomic::Ordering::Relaxed},
};

use augmented::{Augmented, Node, NodeRef};
use axsched::{BaseScheduler, CFSTask, CFScheduler};
use sched_core::{
    Nice, SchedEntity, TaskParams, Tunables, VSpan, VTime, Weight,
    internals::{BareTimeline, Entity, Mean, Queue, entity},
};
pub use two_trees::TwoTrees;

/// The slice of all who ask for none: that of one CPU.
const SLICE: u32 = 700_000;
/// How long who is picked in a cycle runs.
const RUN: u64 = 50_000;

/// A load that one operation after another is counted on.
pub trait Load: Sized {
    /// So many wait.
    fn new(depth: usize) -> Self;
    /// The best is picked, taken out, served for its slice and put back.
    fn requeue(&mut self);
    /// One joins, the best is picked, runs a while and leaves; it is the one who joins next.
    fn cycle(&mut self);
    /// One joins, the best is picked and stays, and the one who joined leaves again.
    fn visit(&mut self);
}

/// An ordered set of waiting entities.
pub trait Line {
    type Ref: Copy + PartialEq;
    fn new() -> Self;
    fn make(&mut self, weight: Weight, slice: u32) -> Self::Ref;
    fn set(&mut self, entity: Self::Ref, vruntime: VTime, deadline: VTime);
    /// Its vruntime, weight and slice.
    fn key(&self, entity: Self::Ref) -> (VTime, Weight, u32);
    /// Comes to the queue, or leaves it: its slice counts from now on, or no more.
    fn join(&mut self, entity: Self::Ref);
    fn quit(&mut self, entity: Self::Ref);
    fn insert(&mut self, entity: Self::Ref, eligible: bool);
    fn remove(&mut self, entity: Self::Ref);
    fn earliest(&mut self, mean: &Mean) -> Option<Self::Ref>;
    /// The shortest and the longest slice of the waiting and of the running entity.
    fn slices(&self, running: Option<Self::Ref>) -> (u32, u32);
}

/// The crate's timeline and slice index.
pub struct Timeline(BareTimeline);

fn lent() -> Entity {
    let entity: &'static SchedEntity = Box::leak(Box::new(entity()));
    // SAFETY: the entity is new, and the load that asked for it has one structure.
    unsafe { Entity::of(entity) }
}

impl Line for Timeline {
    type Ref = Entity;
    fn new() -> Self {
        Self(BareTimeline::new(SLICE))
    }
    fn make(&mut self, weight: Weight, slice: u32) -> Entity {
        let entity = lent();
        self.0.set_request(entity, weight, slice);
        entity
    }
    #[inline(always)]
    fn set(&mut self, entity: Entity, vruntime: VTime, deadline: VTime) {
        self.0.set_key(entity, vruntime, deadline);
    }
    #[inline(always)]
    fn key(&self, entity: Entity) -> (VTime, Weight, u32) {
        self.0.key(entity)
    }
    #[inline(always)]
    fn join(&mut self, entity: Entity) {
        self.0.insert_slice(entity);
    }
    #[inline(always)]
    fn quit(&mut self, entity: Entity) {
        self.0.remove_slice(entity);
    }
    #[inline(always)]
    fn insert(&mut self, entity: Entity, _: bool) {
        self.0.insert(entity);
    }
    #[inline(always)]
    fn remove(&mut self, entity: Entity) {
        self.0.remove(entity);
    }
    #[inline(always)]
    fn earliest(&mut self, mean: &Mean) -> Option<Entity> {
        self.0.earliest(mean)
    }
    #[inline(always)]
    fn slices(&self, _: Option<Entity>) -> (u32, u32) {
        (self.0.shortest(), self.0.longest())
    }
}

/// One tree with all sums.
pub struct ThreeSums(Augmented);

impl Line for ThreeSums {
    type Ref = NodeRef;
    fn new() -> Self {
        Self(Augmented::new())
    }
    fn make(&mut self, weight: Weight, slice: u32) -> NodeRef {
        let node = NodeRef::of(Box::leak(Box::new(Node::new())));
        node.weight.set(weight);
        node.slice.set(slice);
        node
    }
    #[inline(always)]
    fn set(&mut self, node: NodeRef, vruntime: VTime, deadline: VTime) {
        node.vruntime.set(vruntime);
        node.deadline.set(deadline);
    }
    #[inline(always)]
    fn key(&self, node: NodeRef) -> (VTime, Weight, u32) {
        (node.vruntime.get(), node.weight.get(), node.slice.get())
    }
    #[inline(always)]
    fn join(&mut self, _: NodeRef) {}
    #[inline(always)]
    fn quit(&mut self, _: NodeRef) {}
    #[inline(always)]
    fn insert(&mut self, node: NodeRef, _: bool) {
        self.0.insert(node);
    }
    #[inline(always)]
    fn remove(&mut self, node: NodeRef) {
        self.0.remove(node);
    }
    #[inline(always)]
    fn earliest(&mut self, mean: &Mean) -> Option<NodeRef> {
        self.0.earliest(|vruntime| mean.eligible(vruntime), || { *mean }.virtual_time())
    }
    #[inline(always)]
    fn slices(&self, running: Option<NodeRef>) -> (u32, u32) {
        let own = running.map_or(SLICE, |node| node.slice.get());
        (self.0.shortest().map_or(own, |slice| slice.min(own)), self.0.longest().map_or(own, |slice| slice.max(own)))
    }
}

impl Line for TwoTrees {
    type Ref = two_trees::NodeRef;
    fn new() -> Self {
        Self::default()
    }
    fn make(&mut self, weight: Weight, slice: u32) -> Self::Ref {
        let node: &'static two_trees::Node = Box::leak(Box::new(two_trees::Node::new()));
        node.weight.set(weight);
        node.slice.set(slice);
        node.into()
    }
    #[inline(always)]
    fn set(&mut self, node: Self::Ref, vruntime: VTime, deadline: VTime) {
        node.vruntime.set(vruntime);
        node.deadline.set(deadline);
    }
    #[inline(always)]
    fn key(&self, node: Self::Ref) -> (VTime, Weight, u32) {
        (node.vruntime.get(), node.weight.get(), node.slice.get())
    }
    /// A default slice is only counted, as in the crate.
    #[inline(always)]
    fn join(&mut self, _: Self::Ref) {
        self.joined += 1;
    }
    #[inline(always)]
    fn quit(&mut self, _: Self::Ref) {
        self.joined -= 1;
    }
    #[inline(always)]
    fn insert(&mut self, node: Self::Ref, eligible: bool) {
        TwoTrees::insert(self, node, eligible);
    }
    #[inline(always)]
    fn remove(&mut self, node: Self::Ref) {
        TwoTrees::remove(self, node);
    }
    #[inline(always)]
    fn earliest(&mut self, mean: &Mean) -> Option<Self::Ref> {
        TwoTrees::earliest(self, |vruntime| mean.eligible(vruntime))
    }
    #[inline(always)]
    fn slices(&self, _: Option<Self::Ref>) -> (u32, u32) {
        (SLICE, SLICE)
    }
}

/// A line and what EEVDF needs beside it.
pub struct Bare<L: Line> {
    line: L,
    mean: Mean,
    spare: L::Ref,
}

/// The same nice values for every load: mostly 0.
fn nice(i: usize) -> Nice {
    Nice::new([0, 0, 5, 0, 0, -5, 0, 0][i % 8]).expect("in range")
}

impl<L: Line> Bare<L> {
    #[inline(always)]
    fn wait(&mut self, entity: L::Ref) {
        let (vruntime, weight, _) = self.line.key(entity);
        self.mean.add(vruntime, weight);
        self.line.insert(entity, self.mean.eligible(vruntime));
    }

    #[inline(always)]
    fn take(&mut self) -> L::Ref {
        let mean = self.mean;
        let entity = self.line.earliest(&mean).expect("somebody is eligible");
        let (vruntime, weight, _) = self.line.key(entity);
        self.mean.remove(vruntime, weight);
        self.line.remove(entity);
        entity
    }

    /// So many identical entities that ran once: V has reached all of them at the same moment.
    #[allow(dead_code, reason = "not every program counts it")]
    pub fn crowd(depth: usize) -> Self {
        let mut line = L::new();
        let spare = line.make(Weight::NICE_0, SLICE);
        let mut load = Self { line, mean: Mean::new(), spare };
        for _ in 0..depth {
            let entity = load.line.make(Weight::NICE_0, SLICE);
            load.line.set(entity, VTime::START, VTime::START + VSpan::new(i64::from(SLICE)));
            load.mean.add(VTime::START, Weight::NICE_0);
            load.line.insert(entity, false);
        }
        load
    }

    /// The one pick at that moment.
    #[allow(dead_code, reason = "not every program counts it")]
    #[inline(never)]
    pub fn pick(&mut self) {
        let mean = self.mean;
        std::hint::black_box(self.line.earliest(&mean));
    }

    /// As [`Load::requeue`]. Who it was, by its vruntime.
    #[inline(always)]
    pub fn step(&mut self) -> VTime {
        let entity = self.take();
        let (before, weight, slice) = self.line.key(entity);
        let request = weight.virtual_time(u64::from(slice));
        let vruntime = before + request;
        self.line.set(entity, vruntime, vruntime + request);
        self.wait(entity);
        self.mean.virtual_time();
        before
    }
}

impl<L: Line> Load for Bare<L> {
    fn new(depth: usize) -> Self {
        let mut line = L::new();
        let spare = line.make(Weight::NICE_0, SLICE);
        let mut load = Self { line, mean: Mean::new(), spare };
        let mut rng = fastrand::Rng::with_seed(1);
        for i in 0..depth {
            let weight = Weight::of(nice(i));
            let entity = load.line.make(weight, SLICE);
            let vruntime = VTime::START + VSpan::new(rng.i64(0..i64::from(SLICE)));
            load.line.set(entity, vruntime, vruntime + weight.virtual_time(u64::from(SLICE)));
            load.line.join(entity);
            load.wait(entity);
        }
        load
    }

    #[inline(never)]
    fn requeue(&mut self) {
        self.step();
    }

    #[inline(never)]
    fn cycle(&mut self) {
        let joins = self.spare;
        let (_, weight, slice) = self.line.key(joins);
        let v = self.mean.virtual_time();
        self.line.set(joins, v, v + weight.virtual_time(u64::from(slice)));
        self.line.join(joins);
        self.wait(joins);
        let leaves = self.take();
        std::hint::black_box(self.line.slices(Some(leaves)));
        self.line.quit(leaves);
        self.spare = leaves;
    }

    #[inline(never)]
    fn visit(&mut self) {
        let joins = self.spare;
        let (_, weight, slice) = self.line.key(joins);
        let v = self.mean.virtual_time();
        self.line.set(joins, v, v + weight.virtual_time(u64::from(slice)));
        self.line.join(joins);
        self.wait(joins);
        let mean = self.mean;
        std::hint::black_box(self.line.earliest(&mean));
        std::hint::black_box(self.line.slices(None));
        self.mean.remove(v, weight);
        self.line.remove(joins);
        self.line.quit(joins);
    }
}

/// The crate's fair queue.
pub struct Fair {
    queue: Queue,
    running: Entity,
    spare: Entity,
    now: u64,
    params: TaskParams,
}

impl Load for Fair {
    fn new(depth: usize) -> Self {
        let mut queue = Queue::new(&Tunables::for_cpus(1), 4_000_000);
        let mut now = 1_000_000_000;
        for i in 0..depth {
            queue.wake(lent(), TaskParams { nice: nice(i), ..TaskParams::default() }, now);
        }
        let running = queue.pick(now).expect("somebody waits");
        queue.start(running, now);
        now += RUN;
        Self { queue, running, spare: lent(), now, params: TaskParams::default() }
    }

    #[inline(never)]
    fn requeue(&mut self) {
        self.now += u64::from(SLICE);
        self.queue.charge(self.now);
        let next = self.queue.pick(self.now).expect("somebody waits");
        if next != self.running {
            self.queue.stop(self.now);
            self.queue.start(next, self.now);
            self.running = next;
        }
    }

    #[inline(never)]
    fn cycle(&mut self) {
        self.queue.wake(self.spare, self.params, self.now);
        self.now += RUN;
        self.queue.sleep(self.running, self.now);
        self.spare = self.running;
        self.running = self.queue.pick(self.now).expect("somebody waits");
        self.queue.start(self.running, self.now);
    }

    #[inline(never)]
    fn visit(&mut self) {
        self.queue.wake(self.spare, self.params, self.now);
        std::hint::black_box(self.queue.pick(self.now));
        self.queue.sleep(self.spare, self.now);
    }
}

/// A map by vruntime and number: what a queue costs that only orders.
pub struct Map {
    map: BTreeMap<(u64, u64), Arc<AtomicU64>>,
    spare: Option<Arc<AtomicU64>>,
    id: u64,
}

impl Load for Map {
    fn new(depth: usize) -> Self {
        let mut rng = fastrand::Rng::with_seed(1);
        let map = (0..depth as u64).map(|id| ((rng.u64(..u64::from(SLICE)), id), Arc::default())).collect();
        Self { map, spare: Some(Arc::default()), id: depth as u64 }
    }

    #[inline(never)]
    fn requeue(&mut self) {
        let ((vruntime, id), task) = self.map.pop_first().expect("somebody waits");
        self.map.insert((vruntime + u64::from(SLICE), id), task);
    }

    #[inline(never)]
    fn cycle(&mut self) {
        let joins = self.spare.take().expect("there is one");
        let vruntime = joins.load(Relaxed) + RUN;
        joins.store(vruntime, Relaxed);
        self.map.insert((vruntime, self.id), joins);
        self.id += 1;
        self.spare = self.map.pop_first().map(|(_, task)| task);
    }

    #[inline(never)]
    fn visit(&mut self) {
        let joins = self.spare.take().expect("there is one");
        let middle = self.map.first_key_value().map_or(0, |(key, _)| key.0) + u64::from(SLICE / 2);
        self.id += 1;
        self.map.insert((middle, self.id), joins);
        std::hint::black_box(self.map.first_key_value());
        self.spare = self.map.remove(&(middle, self.id));
    }
}

/// The CFS of `axsched`. It picks by taking out, so its cycle is: add, pick; and its visit: add, pick, put, remove.
pub struct Ax {
    scheduler: CFScheduler<()>,
    spare: Option<Arc<CFSTask<()>>>,
}

impl Load for Ax {
    fn new(depth: usize) -> Self {
        let mut scheduler = CFScheduler::new();
        for i in 0..depth {
            let task = Arc::new(CFSTask::new(()));
            scheduler.add_task(task.clone());
            scheduler.set_priority(&task, nice(i).get() as isize);
        }
        Self { scheduler, spare: Some(Arc::new(CFSTask::new(()))) }
    }

    #[inline(never)]
    fn requeue(&mut self) {
        let task = self.scheduler.pick_next_task().expect("somebody waits");
        self.scheduler.task_tick(&task);
        self.scheduler.put_prev_task(task, true);
    }

    #[inline(never)]
    fn cycle(&mut self) {
        self.scheduler.add_task(self.spare.take().expect("there is one"));
        let task = self.scheduler.pick_next_task().expect("somebody waits");
        self.scheduler.task_tick(&task);
        self.spare = Some(task);
    }

    #[inline(never)]
    fn visit(&mut self) {
        let joins = self.spare.take().expect("there is one");
        self.scheduler.add_task(joins.clone());
        let best = self.scheduler.pick_next_task().expect("somebody waits");
        self.scheduler.put_prev_task(best, false);
        self.spare = self.scheduler.remove_task(&joins);
    }
}
