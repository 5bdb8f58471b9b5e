//! # What it is
//! The definition of a fair queue, written as plainly as possible, to test [`FairQueue`](super::FairQueue) against.
//!
//! # How it works
//! Every entity has a virtual time that neither wraps nor is relative to anything: an `i128`.
//! V is computed from all of them each time it is wanted, and the pick looks at everybody.
//! [`twin`] drives the queue and this model side by side and compares them after every operation;
//! [`properties`] feeds it random scripts, [`rules`] and [`delayed`] the cases that other schedulers got wrong.
//! [`machine`] is a CPU with a tick, on which [`fairness`] compares what entities get with what they should get.
//!
//! A script is any bytes at all ([`follow`]): proptest, the long run and the fuzzer play the same ones.
//!
//! # Invariants
//! 1. Nothing here uses the queue, the timeline, or the arithmetic of EEVDF.
//!    The one thing shared is [`Weight::virtual_time`], which has its own tests.
//!
//! # Cost
//! O(n) an operation, O(n) for V.
#![cfg_attr(not(test), allow(dead_code, unused_imports, reason = "the fuzzer uses less than the tests"))]

mod cfs;
#[cfg(test)]
mod delayed;
#[cfg(test)]
mod fairness;
#[cfg(test)]
mod long_run;
#[cfg(test)]
mod machine;
mod properties;
#[cfg(test)]
mod rules;
mod twin;

use std::{eprintln, format, string::String, thread, vec::Vec};

use crate::{
    features::{Feature, FeatureSet, Switchable},
    params::{Policy, TaskParams},
    policy::{Arrival, Departure, Protection},
    weight::Weight,
};

/// What the model knows of an entity.
#[derive(Clone, Debug)]
struct Entity {
    weight: Weight,
    policy: Policy,
    slice: u32,
    custom: bool,
    vruntime: i128,
    deadline: i128,
    /// `deadline` counts from `vruntime`.
    relative: bool,
    /// Sleeps, and waits on.
    delayed: bool,
    /// V - v when it left, or was delayed.
    lag: i128,
    protected_until: i128,
    exec_start: u64,
    sum_exec: u64,
}

impl Entity {
    fn new() -> Self {
        Self {
            weight: Weight::NICE_0,
            policy: Policy::Normal,
            slice: 0,
            custom: false,
            vruntime: 0,
            deadline: 0,
            relative: false,
            delayed: false,
            lag: 0,
            protected_until: 0,
            exec_start: 0,
            sum_exec: 0,
        }
    }

    fn w(&self) -> i128 {
        i128::from(self.weight.get())
    }

    /// Virtual time of this entity for so much real time.
    fn virtual_time(&self, real: u64) -> i128 {
        i128::from(self.weight.virtual_time(real).get())
    }

    fn request(&self) -> i128 {
        self.virtual_time(u64::from(self.slice))
    }
}

/// What the model knows of a queue. Entities are named by their index.
#[derive(Clone, Debug)]
struct Queue {
    base_slice: u32,
    tick: u32,
    /// Who waits or runs.
    members: Vec<usize>,
    running: Option<usize>,
    /// V when the last one left.
    rest: i128,
    features: Switchable,
    buddy: Option<usize>,
    /// Service owed or owing, `w (V - v)`, that was forgotten: beyond the limit, or because delay earns nothing.
    /// Whoever stayed was moved from V by that.
    forgotten: i128,
}

/// Whether a wake-up preempts, as far as the rules say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It does, or it does not, and a running entity keeps its protection as it is.
    Certain(bool),
    /// The pick decides.
    Pick(Protection),
}

impl Queue {
    fn new(base_slice: u32, tick: u32) -> Self {
        Self {
            base_slice,
            tick,
            members: Vec::new(),
            running: None,
            rest: 0,
            features: Switchable::default(),
            buddy: None,
            forgotten: 0,
        }
    }

    fn on(&self, feature: Feature) -> bool {
        self.features.on(feature)
    }

    fn total_weight(&self, all: &[Entity]) -> i128 {
        self.members.iter().map(|&i| all[i].w()).sum()
    }

    /// V, rounded down.
    fn virtual_time(&self, all: &[Entity]) -> i128 {
        if self.members.is_empty() {
            return self.rest;
        }
        // A loop, not iterators: tests run without optimisation, and this is most of their time.
        let (mut sum, mut weight) = (0, 0);
        for &i in &self.members {
            let w = i128::from(all[i].weight.get());
            sum += w * all[i].vruntime;
            weight += w;
        }
        sum.div_euclid(weight)
    }

    fn shortest(&self, all: &[Entity]) -> Option<u32> {
        self.members.iter().map(|&i| all[i].slice).min()
    }

    fn longest(&self, all: &[Entity]) -> Option<u32> {
        self.members.iter().map(|&i| all[i].slice).max()
    }

    /// The lag with which an entity may leave or be reweighted.
    fn clamped_lag(&self, all: &[Entity], i: usize) -> i128 {
        let longest = self.longest(all).unwrap_or(self.base_slice);
        let limit = all[i].virtual_time(u64::from(longest) + u64::from(self.tick));
        (self.virtual_time(all) - all[i].vruntime).clamp(-limit, limit)
    }

    /// The lag with which an entity leaves or wakes up. Delay pays a debt and earns nothing.
    fn lag(&self, all: &[Entity], i: usize) -> i128 {
        let lag = self.clamped_lag(all, i);
        match all[i].delayed {
            false => lag,
            true if self.on(Feature::DelayZero) => lag.max(all[i].lag).min(0),
            true => lag.max(all[i].lag),
        }
    }

    /// Everybody who may be picked: one, or several if deadlines are equal. Perhaps delayed ones.
    fn candidates(&self, all: &[Entity], honour_protection: bool) -> Vec<usize> {
        if self.members.len() < 2 {
            return self.members.clone();
        }
        let v = self.virtual_time(all);
        let eligible = |&i: &usize| all[i].vruntime <= v;
        let running = self.running.filter(eligible);
        if let Some(buddy) = self.buddy.filter(eligible)
            && honour_protection
            && self.on(Feature::PickBuddy)
        {
            return [buddy].into();
        }
        if let Some(i) = running
            && honour_protection
            && all[i].vruntime < all[i].protected_until
        {
            return [i].into();
        }
        let waiting = || self.members.iter().copied().filter(|&i| Some(i) != self.running).filter(eligible);
        let earliest = waiting().map(|i| all[i].deadline).min();
        match (running, earliest) {
            (Some(i), None) => [i].into(),
            (Some(i), Some(earliest)) if all[i].deadline < earliest => [i].into(),
            _ => waiting().filter(|&i| Some(all[i].deadline) == earliest).collect(),
        }
    }

    /// True when somebody else should be considered.
    fn charge(&mut self, all: &mut [Entity], now: u64) -> bool {
        let Some(i) = self.running else { return false };
        let e = &mut all[i];
        if now <= e.exec_start {
            return false;
        }
        let ran = now - e.exec_start;
        e.exec_start = now;
        e.sum_exec += ran;
        e.vruntime += e.virtual_time(ran.min(super::LONGEST_CHARGE));
        let over = renew(e);
        let answer = self.members.len() > 1 && (over || e.vruntime >= e.protected_until);
        if answer {
            self.forget_buddy(i);
        }
        answer
    }

    fn forget_buddy(&mut self, i: usize) {
        self.buddy = self.buddy.filter(|&buddy| buddy != i);
    }

    fn enqueue(&mut self, all: &mut [Entity], i: usize, params: TaskParams, arrival: Arrival, now: u64) {
        self.charge(all, now);
        let (from, to) = (all[i].w(), i128::from(params.weight().get()));
        if from != to {
            all[i].lag = all[i].lag * from / to;
            if all[i].relative {
                all[i].deadline = all[i].deadline * from / to;
            }
        }
        self.apply(&mut all[i], params);
        let (v, queued) = (self.virtual_time(all), self.total_weight(all));
        let e = &mut all[i];
        let keeps = queued != 0 && self.features.on(Feature::PlaceLag);
        let lag = if keeps { e.lag * (queued + e.w()) / queued } else { 0 };
        e.vruntime = v - lag;
        let halves = arrival == Arrival::Fresh && self.features.on(Feature::PlaceDeadlineInitial);
        let half = if halves { 2 } else { 1 };
        e.deadline = e.vruntime
            + if e.relative && self.features.on(Feature::PlaceRelDeadline) { e.deadline } else { e.request() / half };
        e.relative = false;
        self.members.push(i);
    }

    /// True if it sleeps and waits on.
    fn dequeue(&mut self, all: &mut [Entity], i: usize, departure: Departure, now: u64) -> bool {
        self.charge(all, now);
        let owes = all[i].vruntime > self.virtual_time(all);
        if departure == Departure::Sleep && owes && self.on(Feature::DelayDequeue) {
            self.forget_buddy(i);
            all[i].lag = self.clamped_lag(all, i);
            all[i].delayed = true;
            self.running = self.running.filter(|&running| running != i);
            return true;
        }
        self.take_out(all, i, departure);
        false
    }

    /// Of what `i` is owed or owes, only `kept` is remembered.
    fn forget(&mut self, all: &[Entity], i: usize, kept: i128) {
        self.forgotten += all[i].w() * (self.virtual_time(all) - all[i].vruntime - kept).abs();
    }

    fn undelay(&mut self, all: &mut [Entity], i: usize, now: u64) {
        self.charge(all, now);
        let lag = self.lag(all, i);
        self.forget(all, i, lag);
        all[i].lag = lag;
        all[i].delayed = false;
        if self.virtual_time(all) - all[i].vruntime != lag {
            self.members.retain(|&member| member != i);
            let (v, queued) = (self.virtual_time(all), self.total_weight(all));
            let e = &mut all[i];
            let keeps = queued != 0 && self.features.on(Feature::PlaceLag);
            e.vruntime = v - if keeps { lag * (queued + e.w()) / queued } else { 0 };
            e.deadline = e.vruntime + e.request();
            self.members.push(i);
        }
    }

    fn give_up(&mut self, all: &mut [Entity], i: usize, now: u64) {
        self.charge(all, now);
        self.take_out(all, i, Departure::Sleep);
    }

    fn take_out(&mut self, all: &mut [Entity], i: usize, departure: Departure) {
        self.rest = self.virtual_time(all);
        let lag = self.lag(all, i);
        self.forget(all, i, lag);
        all[i].lag = lag;
        all[i].delayed = false;
        self.forget_buddy(i);
        if departure == Departure::Move && self.on(Feature::PlaceRelDeadline) {
            all[i].deadline -= all[i].vruntime;
            all[i].relative = true;
        }
        self.members.retain(|&member| member != i);
        self.running = self.running.filter(|&running| running != i);
    }

    fn start(&mut self, all: &mut [Entity], i: usize, now: u64) {
        assert!(self.running.is_none());
        self.running = Some(i);
        self.forget_buddy(i);
        let shortest = if self.on(Feature::RunToParity) { self.shortest(all).unwrap() } else { 700_000 };
        let e = &mut all[i];
        e.exec_start = now;
        e.protected_until = e.deadline;
        if shortest < e.slice {
            e.protected_until = e.deadline.min(e.vruntime + e.virtual_time(u64::from(shortest)));
        }
    }

    fn stop(&mut self) {
        self.running = None;
    }

    fn verdict(&mut self, all: &[Entity], wakee: usize, arrival: Arrival) -> Verdict {
        let Some(running) = self.running else { return Verdict::Certain(true) };
        if !self.on(Feature::WakeupPreemption) {
            return Verdict::Certain(false);
        }
        let (running, woken) = (&all[running], &all[wakee]);
        if woken.policy == Policy::Idle {
            return Verdict::Certain(false);
        }
        if running.policy == Policy::Idle {
            return Verdict::Certain(true);
        }
        if woken.policy == Policy::Batch {
            return Verdict::Certain(false);
        }
        let shorter = woken.slice < running.slice && self.on(Feature::PreemptShort);
        if matches!(arrival, Arrival::Fresh | Arrival::Undelayed) && !shorter {
            return Verdict::Certain(false);
        }
        if !shorter
            && self.on(Feature::NextBuddy)
            && self.buddy.is_none_or(|buddy| woken.deadline < all[buddy].deadline)
        {
            self.buddy = Some(wakee);
        }
        Verdict::Pick(if shorter { Protection::Ignored } else { Protection::Honoured })
    }

    /// What follows for the protection of the running entity.
    fn preempted(&mut self, all: &mut [Entity], verdict: Verdict, yes: bool) {
        let Some(running) = self.running else { return };
        let shortest = self.shortest(all).unwrap();
        let e = &mut all[running];
        match (verdict, yes) {
            (_, true) => e.protected_until = e.vruntime,
            (Verdict::Pick(_), false) if self.features.on(Feature::RunToParity) => {
                e.protected_until = e.protected_until.min(e.vruntime + e.virtual_time(u64::from(shortest)));
            }
            (_, false) => {}
        }
    }

    fn yield_running(&mut self, all: &mut [Entity], now: u64) {
        self.charge(all, now);
        let v = self.virtual_time(all);
        let Some(i) = self.running.filter(|_| self.members.len() > 1) else { return };
        self.forget_buddy(i);
        let e = &mut all[i];
        if e.vruntime <= v {
            e.vruntime = e.vruntime.max(e.deadline);
            renew(e);
        }
        e.protected_until = e.vruntime;
    }

    fn reweight(&mut self, all: &mut [Entity], i: usize, params: TaskParams, now: u64) {
        self.charge(all, now);
        let (v, lag) = (self.virtual_time(all), self.clamped_lag(all, i));
        let (from, to) = (all[i].w(), i128::from(params.weight().get()));
        if from != to {
            self.forget(all, i, lag);
            let e = &mut all[i];
            e.vruntime = v - lag * from / to;
            e.deadline = v + (e.deadline - v) * from / to;
            if self.running == Some(i) {
                e.protected_until = v + (e.protected_until - v) * from / to;
            }
            if e.delayed {
                e.lag = e.lag * from / to;
            }
        }
        self.apply(&mut all[i], params);
    }

    fn apply(&self, e: &mut Entity, params: TaskParams) {
        e.weight = params.weight();
        e.policy = params.policy;
        e.custom = params.slice.is_some();
        e.slice = params.slice.map_or(self.base_slice, |slice| slice.nanos());
    }
}

/// A request that is over is followed by the next. True if it was over.
fn renew(e: &mut Entity) -> bool {
    let over = e.vruntime >= e.deadline;
    if over {
        e.deadline = e.vruntime + e.request();
    }
    over
}

/// Plays `script` beside the model it names; panics if the queue does otherwise.
///
/// The first byte chooses policy and weather, the second the number of entities; then each eight bytes are a step.
pub(crate) fn follow(script: &[u8]) {
    let [kind, entities, steps @ ..] = script else { return };
    let steps: Vec<u64> =
        steps.chunks(8).map(|step| step.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))).collect();
    let entities = 2 + usize::from(*entities) % 24;
    match kind % 5 {
        4 => drop(cfs::play(cfs::START, entities, &steps)),
        weather => {
            drop(properties::play(properties::WEATHERS[usize::from(weather)], entities, twin::USUAL_ORIGINS, &steps))
        }
    }
}

/// Says how to play a script again if it fails.
struct Replay<'a> {
    kind: u8,
    entities: usize,
    steps: &'a [u64],
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        const LONGEST: usize = 500;
        if thread::panicking() && self.steps.len() <= LONGEST && (2..26).contains(&self.entities) {
            let steps: String = self.steps.iter().map(|step| format!("{:016x}", step.swap_bytes())).collect();
            let (kind, entities) = (self.kind, self.entities - 2);
            eprintln!("SCRIPT={kind:02x}{entities:02x}{steps} cargo test -p sched-core --lib replay -- --ignored");
        }
    }
}

/// Plays the script in the environment, as a failure printed it.
#[cfg(test)]
#[test]
#[ignore = "asks for SCRIPT"]
fn replay() {
    let script = std::env::var("SCRIPT").expect("SCRIPT is set to what a failure printed");
    let bytes: Option<Vec<u8>> =
        script.as_bytes().chunks(2).map(|pair| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok()).collect();
    follow(&bytes.expect("SCRIPT is hexadecimal"));
}
