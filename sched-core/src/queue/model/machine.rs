//! # What it is
//! One CPU with a periodic tick, a real [`FairQueue`], and entities that run, sleep and yield on it.
//! Beside it runs an ideal machine that serves all queued entities at once, by weight.
//!
//! # How it works
//! [`Machine::run`] lets time pass to the next tick or to a given moment.
//! A tick charges, and reschedules if the queue asks for it; so does a wake-up.
//! The ideal machine hands each slice of time to the entities queued then, delayed ones included, in parts of 2^-20 ns.
//!
//! # Invariants
//! 1. One entity runs whenever one is queued, so real and ideal service grow alike in sum.
//!
//! # Cost
//! O(n) a tick.

use core::ptr::NonNull;
use std::{sync::Arc, vec::Vec};

use super::twin::{Real, WOKEN, eevdf};
use crate::{
    entity::{EntityRef, SchedEntity},
    params::{Policy, Slice, TaskParams},
    policy::{Arrival, Departure},
    queue::Left,
    sync::Spin,
    vtime::VTime,
    weight::Nice,
};

pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;
const FRACTION: u32 = 20;

pub(super) fn nice(nice: i32) -> TaskParams {
    TaskParams { nice: Nice::new(nice).unwrap(), ..TaskParams::default() }
}

pub(super) fn idle() -> TaskParams {
    TaskParams { policy: Policy::Idle, ..TaskParams::default() }
}

pub(super) fn with_slice(params: TaskParams, nanos: u64) -> TaskParams {
    TaskParams { slice: Some(Slice::clamped(nanos)), ..params }
}

struct Member {
    entity: Arc<SchedEntity<Spin>>,
    params: TaskParams,
    queued: bool,
    delayed: bool,
    /// In 2^-20 ns.
    ideal: u128,
    /// When it was last picked.
    last_pick: u64,
}

pub(super) struct Machine {
    // Before `members`: the trees let go of their entities before those die.
    pub queue: Real,
    members: Vec<Member>,
    pub now: u64,
    pub tick: u64,
    next_tick: u64,
    pub switches: u64,
    base_slice: u32,
}

impl Machine {
    pub fn new(base_slice: u64, hz: u64) -> Self {
        let tick = SECOND / hz;
        Self {
            queue: eevdf(base_slice as u32, tick as u32),
            members: Vec::new(),
            now: 5 * SECOND,
            tick,
            next_tick: 5 * SECOND + tick,
            switches: 0,
            base_slice: base_slice as u32,
        }
    }

    /// A machine of 8 CPUs' slice and 250 Hz with these entities, all queued.
    pub fn with(all: &[TaskParams]) -> Self {
        let mut machine = Self::new(2_800_000, 250);
        for &params in all {
            machine.fork(params);
        }
        machine
    }

    fn reference(&self, i: usize) -> EntityRef<Spin> {
        // SAFETY: the entity lives in an `Arc` until the queue is gone.
        unsafe { EntityRef::new(NonNull::from(&*self.members[i].entity)) }
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn params(&self, i: usize) -> TaskParams {
        self.members[i].params
    }

    pub fn received(&self, i: usize) -> u64 {
        self.members[i].entity.sum_exec()
    }

    /// Received minus ideal, in nanoseconds.
    pub fn ahead(&self, i: usize) -> i64 {
        self.received(i) as i64 - (self.members[i].ideal >> FRACTION) as i64
    }

    pub fn queued(&self, i: usize) -> bool {
        self.members[i].queued
    }

    pub fn last_pick(&self, i: usize) -> u64 {
        self.members[i].last_pick
    }

    pub fn slice(&self, i: usize) -> u64 {
        u64::from(self.members[i].params.slice.map_or(self.base_slice, Slice::nanos))
    }

    pub fn running(&self) -> Option<usize> {
        let running = self.queue.members.running?;
        (0..self.len()).find(|&i| self.reference(i) == running)
    }

    pub fn vruntime(&self, i: usize) -> VTime {
        self.members[i].entity.key(&self.queue.members.right).vruntime
    }

    /// V, without moving the zero point.
    pub fn virtual_time(&self) -> VTime {
        self.queue.virtual_time()
    }

    /// What the queue owes an entity by its own account, `w (V - v)`, in nanoseconds of service.
    pub fn lag(&self, i: usize) -> i64 {
        let weight = i128::from(self.members[i].params.weight().get());
        let virtual_lag = i128::from((self.virtual_time() - self.vruntime(i)).get());
        (virtual_lag * weight / 1024) as i64
    }

    /// The farthest any queued entity is from the zero point, in virtual nanoseconds.
    pub fn farthest_from_zero(&self) -> i64 {
        let zero = self.queue.waiting().zero();
        let distance = |i| (self.vruntime(i) - zero).get().abs();
        (0..self.len()).filter(|&i| self.queued(i)).map(distance).max().unwrap_or(0)
    }

    /// A new entity, queued.
    pub fn fork(&mut self, params: TaskParams) -> usize {
        let entity = Arc::new(SchedEntity::new());
        self.members.push(Member { entity, params, queued: false, delayed: false, ideal: 0, last_pick: self.now });
        let i = self.len() - 1;
        self.join(i, Arrival::Fresh);
        i
    }

    pub fn wake(&mut self, i: usize) {
        if self.members[i].delayed {
            self.members[i].delayed = false;
            self.members[i].queued = true;
            self.queue.undelay(self.reference(i), self.now);
            return;
        }
        self.join(i, WOKEN);
    }

    fn join(&mut self, i: usize, arrival: Arrival) {
        self.queue.enqueue(self.reference(i), self.members[i].params, arrival, self.now);
        self.members[i].queued = true;
        self.members[i].last_pick = self.now;
        let mut left = Vec::new();
        let preempts = self.queue.preempts(self.reference(i), arrival, |entity| left.push(entity));
        self.left_asleep(&left);
        if preempts {
            self.reschedule();
        }
    }

    fn left_asleep(&mut self, left: &[EntityRef<Spin>]) {
        for member in &mut self.members {
            member.delayed &= !left.iter().any(|e| core::ptr::eq(e.as_ptr().as_ptr(), Arc::as_ptr(&member.entity)));
        }
    }

    pub fn sleep(&mut self, i: usize) {
        let left = self.queue.dequeue(self.reference(i), Departure::Sleep, self.now);
        self.members[i].delayed = left == Left::Delayed;
        self.members[i].queued = false;
        self.reschedule();
    }

    pub fn set_params(&mut self, i: usize, params: TaskParams) {
        self.members[i].params = params;
        if self.members[i].queued {
            self.queue.reweight(self.reference(i), params, self.now);
        }
    }

    pub fn yield_running(&mut self) {
        self.queue.yield_running(self.now);
        self.reschedule();
    }

    pub fn reschedule(&mut self) {
        self.queue.charge(self.now);
        let mut left = Vec::new();
        let picked = self.queue.pick(self.now, |entity| left.push(entity));
        self.left_asleep(&left);
        assert_eq!(picked.is_some(), self.queue.nr_runnable() > 0);
        if picked != self.queue.members.running {
            self.queue.stop(self.now);
            if let Some(entity) = picked {
                self.queue.start(entity, self.now);
                self.switches += 1;
            }
        }
        if let Some(i) = self.running() {
            self.members[i].last_pick = self.now;
        }
    }

    /// Lets `nanos` pass without a tick and without a look at the clock.
    pub fn pass(&mut self, nanos: u64) {
        self.now += nanos;
        let weight = |member: &Member| u128::from(member.params.weight().get());
        // Who sleeps and waits on is served like the others: that pays for what it had too much.
        let counts = |member: &&mut Member| member.queued || member.delayed;
        let total: u128 = self.members.iter_mut().filter(counts).map(|member| weight(member)).sum();
        for member in self.members.iter_mut().filter(counts) {
            member.ideal += (u128::from(nanos) << FRACTION) * weight(member) / total;
        }
    }

    pub fn tick(&mut self) {
        if self.queue.charge(self.now) {
            self.reschedule();
        }
    }

    /// Lets `nanos` pass with the ticks that fall into them. After each tick, `watch` looks.
    pub fn run_watched(&mut self, nanos: u64, mut watch: impl FnMut(&Self)) {
        let end = self.now + nanos;
        if self.next_tick <= self.now {
            self.next_tick = self.now + self.tick;
        }
        while self.now < end {
            let next = self.next_tick.min(end);
            self.pass(next - self.now);
            if self.now == self.next_tick {
                self.next_tick += self.tick;
                self.tick();
                watch(self);
            }
        }
    }

    pub fn run(&mut self, nanos: u64) {
        self.run_watched(nanos, |_| {});
    }
}
