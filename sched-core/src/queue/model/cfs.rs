//! # What it is
//! The definition of CFS on one level, written as plainly as possible, and random scripts that follow it beside the queue.
//!
//! # How it works
//! A model queue is a list of members. Whoever is asked for is found by looking at all of them: the smallest vruntime,
//! and of equals the one that has waited longest. Virtual times are `i128` and do not wrap; the queue's do.
//! Each operation is done twice, and everything that can be seen is compared after it.
//!
//! # Invariants
//! 1. A virtual time `x` of the model is `origin + x`, wrapped, in the queue.
//! 2. `min_vruntime` never goes back.
//!
//! # Cost
//! O(n) an operation.

use core::ptr::NonNull;
use std::{sync::Arc, vec::Vec};

#[cfg(test)]
use proptest::prelude::*;

use super::{
    super::LONGEST_CHARGE,
    Replay,
    twin::{Real, WOKEN},
};
use crate::{
    entity::{EntityRef, SchedEntity},
    features::{Feature, FeatureSet, Switchable},
    params::{Algorithm, CfsTunables, Policy, TaskParams, Tunables},
    policy::{Arrival, Departure, cfs::Cfs},
    queue::{AnyPolicy, FairQueue},
    sync::Spin,
    vtime::VTime,
    weight::Nice,
};

const TICK: u64 = 4_000_000;
const MS: u64 = 1_000_000;
const TUNABLES: CfsTunables = Tunables::for_cpus(8).cfs;
/// What scripts turn on and off.
const FEATURES: [Feature; 6] = [
    Feature::GentleFairSleepers,
    Feature::StartDebit,
    Feature::NextBuddy,
    Feature::LastBuddy,
    Feature::BaseSlice,
    Feature::WakeupPreemption,
];

struct Entity {
    real: Arc<SchedEntity<Spin>>,
    params: TaskParams,
    /// As its queue has it.
    applied: TaskParams,
    vruntime: i128,
    /// Of those with the same vruntime, who waits longest.
    since: u64,
    /// Between two queues: how far it was ahead of `min_vruntime`.
    ahead: Option<i128>,
    exec_start: u64,
    sum_exec: u64,
    picked_at: u64,
    /// The queue it is on, or slept on.
    home: usize,
    on_rq: bool,
}

struct Side {
    real: Real,
    origin: u64,
    features: Switchable,
    members: Vec<usize>,
    running: Option<usize>,
    min: i128,
    next: Option<usize>,
    last: Option<usize>,
    skip: Option<usize>,
    spread_over: u64,
}

struct Twin {
    // Before `all`: the trees let go of their entities before those die.
    sides: [Side; 2],
    all: Vec<Entity>,
    now: u64,
    turn: u64,
}

fn nice(nice: i32) -> TaskParams {
    TaskParams { nice: Nice::new(nice).unwrap(), ..TaskParams::default() }
}

fn policy(params: TaskParams, policy: Policy) -> TaskParams {
    TaskParams { policy, ..params }
}

fn vslice(params: TaskParams, real: u64) -> i128 {
    i128::from(params.weight().virtual_time(real).get())
}

fn cfs(real: &Real) -> &Cfs<Spin> {
    match &real.policy {
        AnyPolicy::Cfs(cfs) => cfs,
        AnyPolicy::Eevdf(_) => unreachable!(),
    }
}

impl Side {
    fn new(origin: u64) -> Self {
        let mut real: Real = FairQueue::new(&Tunables::for_cpus(8).with(Algorithm::Cfs), TICK as u32);
        match &mut real.policy {
            AnyPolicy::Cfs(cfs) => cfs.min_vruntime = VTime::from_raw(origin),
            AnyPolicy::Eevdf(_) => unreachable!(),
        }
        Self {
            real,
            origin,
            features: Switchable::default(),
            members: Vec::new(),
            running: None,
            min: 0,
            next: None,
            last: None,
            skip: None,
            spread_over: 0,
        }
    }

    fn raw(&self, model: i128) -> VTime {
        VTime::from_raw(self.origin.wrapping_add(model as u64))
    }

    fn on(&self, feature: Feature) -> bool {
        self.features.on(feature)
    }

    /// Who waits, in order.
    fn line(&self, all: &[Entity]) -> Vec<usize> {
        let mut line: Vec<_> = self.members.iter().copied().filter(|&i| Some(i) != self.running).collect();
        line.sort_by_key(|&i| (all[i].vruntime, all[i].since));
        line
    }

    fn slice(&self, all: &[Entity], i: usize) -> u64 {
        let joins = !all[i].on_rq;
        let nr = self.members.len() as u64 + u64::from(joins);
        let weight = |i: usize| u64::from(all[i].applied.weight().get());
        let total: u64 = self.members.iter().map(|&i| weight(i)).sum::<u64>() + if joins { weight(i) } else { 0 };
        let period = if nr <= 8 { u64::from(TUNABLES.latency) } else { nr * u64::from(TUNABLES.min_granularity) };
        let slice = period * weight(i) / total;
        let idle = all[i].applied.policy == Policy::Idle;
        let least = if idle { TUNABLES.idle_min_granularity } else { TUNABLES.min_granularity };
        if self.on(Feature::BaseSlice) { slice.max(u64::from(least)) } else { slice }
    }

    fn follow(&mut self, all: &[Entity]) {
        if let Some(smallest) = self.members.iter().map(|&i| all[i].vruntime).min() {
            self.min = self.min.max(smallest);
        }
    }

    fn forget(&mut self, i: usize) {
        for buddy in [&mut self.next, &mut self.last, &mut self.skip] {
            *buddy = buddy.filter(|&buddy| buddy != i);
        }
    }

    fn affordable(&self, all: &[Entity], i: usize, left: usize) -> bool {
        let granularity = vslice(all[left].applied, u64::from(TUNABLES.wakeup_granularity));
        all[i].vruntime - all[left].vruntime <= granularity
    }

    fn pick(&self, all: &[Entity]) -> Option<usize> {
        // The running one is preferred to nobody it is not before.
        let mut order = self.line(all);
        if let Some(running) = self.running {
            let at = order.iter().position(|&i| all[running].vruntime < all[i].vruntime).unwrap_or(order.len());
            order.insert(at, running);
        }
        let left = *order.first()?;
        let mut best = left;
        if self.skip == Some(left)
            && let Some(&second) = order.get(1)
            && self.affordable(all, second, left)
        {
            best = second;
        }
        let affordable = |buddy: &usize| self.affordable(all, *buddy, left);
        self.next.filter(affordable).or(self.last.filter(affordable)).or(Some(best))
    }
}

impl Twin {
    fn new(origins: [u64; 2], n: usize) -> Self {
        let entity = |_| Entity {
            real: Arc::new(SchedEntity::new()),
            params: TaskParams::default(),
            applied: TaskParams::default(),
            vruntime: 0,
            since: 0,
            ahead: None,
            exec_start: 0,
            sum_exec: 0,
            picked_at: 0,
            home: 0,
            on_rq: false,
        };
        Self { sides: origins.map(Side::new), all: (0..n).map(entity).collect(), now: 1_000_000_000, turn: 0 }
    }

    fn reference(&self, i: usize) -> EntityRef<Spin> {
        // SAFETY: the entity lives in an `Arc` until the queues are gone, or until it is off every queue.
        unsafe { EntityRef::new(NonNull::from(&*self.all[i].real)) }
    }

    fn waits(&mut self, i: usize) {
        self.turn += 1;
        self.all[i].since = self.turn;
        let side = &mut self.sides[self.all[i].home];
        let far = (self.all[i].vruntime - side.min).abs() > 3 * i128::from(TUNABLES.latency);
        side.spread_over += u64::from(far);
    }

    fn charge_model(&mut self, q: usize) {
        let side = &mut self.sides[q];
        let Some(i) = side.running else { return };
        let e = &mut self.all[i];
        if self.now > e.exec_start {
            let ran = self.now - e.exec_start;
            e.exec_start = self.now;
            e.sum_exec += ran;
            e.vruntime += vslice(e.applied, ran.min(LONGEST_CHARGE));
            side.follow(&self.all);
        }
    }

    fn charge(&mut self, q: usize) {
        assert!(!self.sides[q].real.charge(self.now), "a turn ends at a tick");
        self.charge_model(q);
        self.check();
    }

    fn tick(&mut self, q: usize) -> bool {
        let answer = self.sides[q].real.tick(self.now);
        self.charge_model(q);
        let side = &mut self.sides[q];
        let expected = match side.running {
            Some(i) if side.members.len() > 1 => {
                let e = &self.all[i];
                let slice = side.slice(&self.all, i).min(u64::from(TUNABLES.latency));
                let ran = e.sum_exec - e.picked_at;
                if ran > slice {
                    side.forget(i);
                    true
                } else {
                    let first = side.line(&self.all)[0];
                    ran >= u64::from(TUNABLES.min_granularity)
                        && e.vruntime - self.all[first].vruntime > i128::from(slice)
                }
            }
            _ => false,
        };
        assert_eq!(answer, expected, "whether the turn is over");
        self.check();
        answer
    }

    fn enqueue(&mut self, i: usize, q: usize, arrival: Arrival) {
        let (entity, params) = (self.reference(i), self.all[i].params);
        let from = self.all[i].home;
        if arrival == Arrival::Woken && from != q {
            let old = &self.sides[from].real;
            let there = (old.min_vruntime(), old.load_time(), 0);
            let _ = self.sides[q].real.comes_from(entity, there, self.now);
        }
        self.sides[q].real.enqueue(entity, params, arrival, self.now);
        self.charge_model(q);
        let there = self.sides[from].min;
        let side = &self.sides[q];
        self.all[i].applied = params;
        let credit = match params.policy {
            Policy::Idle => TUNABLES.min_granularity,
            _ => TUNABLES.latency,
        };
        let credit = i128::from(if side.on(Feature::GentleFairSleepers) { credit / 2 } else { credit });
        let debit = if side.on(Feature::StartDebit) { vslice(params, side.slice(&self.all, i)) } else { 0 };
        let e = &mut self.all[i];
        e.vruntime = match (arrival, e.ahead.take()) {
            (_, Some(ahead)) => side.min + ahead,
            (Arrival::Fresh, _) => side.min + debit,
            (Arrival::Woken, _) if self.now.saturating_sub(e.exec_start) > 60_000 * MS => side.min - credit,
            (Arrival::Woken, _) => {
                let own = if from == q { e.vruntime } else { side.min + e.vruntime - there };
                own.max(side.min - credit)
            }
            _ => unreachable!(),
        };
        e.home = q;
        e.on_rq = true;
        self.sides[q].members.push(i);
        self.waits(i);
        self.check();
    }

    fn dequeue(&mut self, i: usize, departure: Departure) {
        let (entity, q) = (self.reference(i), self.all[i].home);
        _ = self.sides[q].real.dequeue(entity, departure, self.now);
        self.charge_model(q);
        let side = &mut self.sides[q];
        if departure == Departure::Move {
            self.all[i].ahead = Some(self.all[i].vruntime - side.min);
        }
        self.all[i].on_rq = false;
        side.members.retain(|&member| member != i);
        side.running = side.running.filter(|&running| running != i);
        side.forget(i);
        side.follow(&self.all);
        self.check();
        if departure == Departure::Exit {
            let fresh = Twin::new([0; 2], 1).all.remove(0);
            self.all[i] = Entity { params: self.all[i].params, ..fresh };
        }
    }

    fn reschedule(&mut self, q: usize) -> Option<usize> {
        self.charge(q);
        let expected = self.sides[q].pick(&self.all);
        let picked = self.sides[q].real.pick(self.now, |_| panic!("nobody is delayed"));
        assert_eq!(picked, expected.map(|i| self.reference(i)), "the pick is {expected:?}");
        if let Some(i) = expected {
            // Who is picked needs no preference, whether it ran already or not.
            self.sides[q].forget(i);
        }
        if expected != self.sides[q].running {
            self.sides[q].real.stop(self.now);
            if let Some(prev) = self.sides[q].running.take() {
                self.waits(prev);
            }
            if let Some(i) = expected {
                let entity = self.reference(i);
                self.sides[q].real.start(entity, self.now);
                self.sides[q].running = Some(i);
                self.all[i].exec_start = self.now;
                self.all[i].picked_at = self.all[i].sum_exec;
            }
        }
        self.check();
        expected
    }

    fn preempts(&mut self, wakee: usize, arrival: Arrival) -> bool {
        let (entity, q) = (self.reference(wakee), self.all[wakee].home);
        let answer = self.sides[q].real.preempts(entity, arrival, |_| panic!("nobody is delayed"));
        let side = &mut self.sides[q];
        let Some(running) = side.running else {
            assert!(answer);
            return true;
        };
        let (curr, woken) = (&self.all[running], &self.all[wakee]);
        let (curr_idle, woken_idle) = (curr.applied.policy == Policy::Idle, woken.applied.policy == Policy::Idle);
        let crowded = side.members.len() >= 8;
        if side.on(Feature::NextBuddy) && crowded && arrival != Arrival::Fresh && !woken_idle {
            side.next = Some(wakee);
        }
        let granularity = vslice(woken.applied, u64::from(TUNABLES.wakeup_granularity));
        let expected = if curr_idle && !woken_idle {
            true
        } else {
            woken.applied.policy == Policy::Normal
                && side.on(Feature::WakeupPreemption)
                && curr.vruntime - woken.vruntime > granularity
        };
        assert_eq!(answer, expected, "preemption by {wakee}");
        if expected {
            side.next = Some(wakee).filter(|_| !woken_idle).or(side.next);
            if crowded && !curr_idle && side.on(Feature::LastBuddy) {
                side.last = Some(running);
            }
        }
        self.check();
        answer
    }

    fn yield_running(&mut self, q: usize) {
        self.sides[q].real.yield_running(self.now);
        self.charge_model(q);
        let side = &mut self.sides[q];
        if let Some(i) = side.running.filter(|_| side.members.len() > 1) {
            side.forget(i);
            side.skip = Some(i);
        }
        self.check();
    }

    fn set_params(&mut self, i: usize, params: TaskParams) {
        self.all[i].params = params;
        if self.all[i].on_rq {
            let (entity, q) = (self.reference(i), self.all[i].home);
            self.sides[q].real.reweight(entity, params, self.now);
            self.charge_model(q);
            self.all[i].applied = params;
            if self.sides[q].running != Some(i) {
                self.waits(i);
            }
            self.check();
        }
    }

    fn set_feature(&mut self, q: usize, feature: Feature, on: bool) {
        self.sides[q].real.set_feature(feature, on);
        self.sides[q].features.set(feature, on);
        let side = &mut self.sides[q];
        (side.next, side.last, side.skip) = (None, None, None);
    }

    fn check(&self) {
        for (q, side) in self.sides.iter().enumerate() {
            let (real, there) = (cfs(&side.real), &side.real.members);
            assert_eq!(real.min_vruntime, side.raw(side.min), "min_vruntime");
            let name = |i: Option<usize>| i.map(|i| self.reference(i));
            assert_eq!(there.next_buddy, name(side.next), "next buddy");
            assert_eq!(real.last_buddy, name(side.last), "last buddy");
            assert_eq!(real.skip_buddy, name(side.skip), "skip buddy");
            assert_eq!(there.running, name(side.running));
            assert_eq!((there.nr as usize, there.nr_delayed), (side.members.len(), 0));
            let weight: u64 = side.members.iter().map(|&i| u64::from(self.all[i].applied.weight().get())).sum();
            assert_eq!(there.weight, weight, "weight");
            assert_eq!(real.nr_spread_over, side.spread_over, "spread");
            there.timeline.check(&there.right);
            assert_eq!(there.timeline.first(), name(side.line(&self.all).first().copied()), "first in line");
            for &i in &side.members {
                let (key, own) = (there.key(self.reference(i)), there.own(self.reference(i)));
                assert_eq!(key.vruntime, side.raw(self.all[i].vruntime), "vruntime of {i} on {q}");
                assert_eq!(own.on_rq, self.all[i].on_rq);
                assert_eq!(self.all[i].real.sum_exec(), self.all[i].sum_exec, "service of {i}");
            }
        }
    }
}

/// Cuts small numbers out of a word.
struct Word(u64);

impl Word {
    fn take(&mut self, limit: u64) -> u64 {
        let taken = self.0 % limit;
        self.0 /= limit;
        taken
    }
}

/// Does what `word` says. Who was picked, if somebody was asked for.
fn step(twin: &mut Twin, word: u64) -> Option<usize> {
    let mut word = Word(word);
    let (kind, q) = (word.take(16), word.take(2) as usize);
    let i = word.take(twin.all.len() as u64) as usize;
    let passes = match word.take(8) {
        0 => 0,
        1 => 61_000 * MS * word.take(2),
        2..=4 => word.take(1_000_000),
        _ => word.take(TICK),
    };
    match kind {
        0..=3 => {
            twin.now += passes;
            if twin.tick(q) { twin.reschedule(q) } else { None }
        }
        4 | 5 => {
            twin.now += passes;
            twin.reschedule(q)
        }
        6 => {
            twin.yield_running(q);
            twin.reschedule(q)
        }
        7 => {
            let kind = [Policy::Normal, Policy::Normal, Policy::Batch, Policy::Idle][word.take(4) as usize];
            twin.set_params(i, policy(nice(word.take(40) as i32 - 20), kind));
            None
        }
        8 => {
            twin.set_feature(q, FEATURES[word.take(6) as usize], word.take(2) == 0);
            None
        }
        9..=11 => {
            twin.now += passes;
            let running = twin.sides[q].running?;
            twin.dequeue(running, if word.take(8) == 0 { Departure::Exit } else { Departure::Sleep });
            twin.reschedule(q)
        }
        12 if twin.all[i].on_rq => {
            let from = twin.all[i].home;
            twin.dequeue(i, Departure::Move);
            twin.enqueue(i, 1 - from, Arrival::Moved);
            None
        }
        _ if !twin.all[i].on_rq => {
            let new = twin.all[i].exec_start == 0;
            let arrival = if new { Arrival::Fresh } else { WOKEN };
            twin.enqueue(i, q, arrival);
            if twin.preempts(i, arrival) { twin.reschedule(q) } else { None }
        }
        _ => None,
    }
}

pub(super) fn play(origins: [u64; 2], entities: usize, script: &[u64]) -> Vec<Option<usize>> {
    let _replay = Replay { kind: 4, entities, steps: script };
    let mut twin = Twin::new(origins, entities);
    script.iter().map(|&word| step(&mut twin, word)).collect()
}

pub(super) const START: [u64; 2] = [VTime::START.raw(); 2];

#[cfg(test)]
proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_does_what_the_model_says(script in prop::collection::vec(any::<u64>(), 1..2000), entities in 2_usize..20) {
        play(START, entities, &script);
    }

    #[test]
    fn the_schedule_does_not_depend_on_where_virtual_time_starts(script in prop::collection::vec(any::<u64>(), 1..600), entities in 2_usize..12) {
        let usual = play(START, entities, &script);
        for origins in [[0, 0], [0_u64.wrapping_sub(1_000_000), 7], [1 << 63, (1 << 63) - 1_000_000]] {
            prop_assert_eq!(&usual, &play(origins, entities, &script));
        }
    }
}

/// Plays random scripts until `steps` are done.
#[cfg(test)]
pub(super) fn long_run(seed: u64, steps: u64, mut progress: impl FnMut(u64)) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut done = 0;
    while done < steps {
        let script: Vec<u64> = (0..dice.usize(1..20_000)).map(|_| dice.u64(..)).collect();
        play(START, dice.usize(2..24), &script);
        done += script.len() as u64;
        progress(done);
    }
}

// Rules.

fn busy(all: &[TaskParams]) -> Twin {
    let mut twin = Twin::new(START, all.len());
    for (i, &params) in all.iter().enumerate() {
        twin.all[i].params = params;
        twin.enqueue(i, 0, Arrival::Fresh);
    }
    twin.reschedule(0);
    twin
}

fn run(twin: &mut Twin, ticks: u64) {
    for _ in 0..ticks {
        twin.now += TICK;
        if twin.tick(0) {
            twin.reschedule(0);
        }
    }
}

#[test]
fn shares_follow_weights() {
    // Whoever runs gives way at the latest a tick after its slice, or when it is a slice ahead of the first in line.
    for (all, ticks) in [
        (std::vec![nice(0), nice(5)], 25_000),
        (std::vec![nice(0); 7], 25_000),
        (std::vec![nice(-20), nice(0), nice(19)], 250_000),
        ((-5..=5).map(nice).collect(), 100_000),
    ] {
        let mut twin = busy(&all);
        run(&mut twin, ticks);
        let total: u64 = all.iter().map(|params| u64::from(params.weight().get())).sum();
        for (e, params) in twin.all.iter().zip(&all) {
            let due = (ticks * TICK) as f64 * f64::from(params.weight().get()) / total as f64;
            // Two latencies of the crowd, and a tick: what one turn can be early or late.
            let bound = (2 * u64::from(TUNABLES.latency).max(3 * MS * all.len() as u64) + 2 * TICK) as f64;
            assert!((e.sum_exec as f64 - due).abs() <= bound, "{params:?}: {} for {due}", e.sum_exec);
        }
    }
}

#[test]
fn min_vruntime_follows_who_is_there_and_never_goes_back() {
    // 3fe69747dab9 in Linux: the smallest vruntime was taken over those that wait, without the one that runs.
    let mut twin = busy(&[nice(0), nice(0)]);
    let running = twin.sides[0].running.unwrap();
    twin.now += MS;
    twin.charge(0);
    let (min, other) = (twin.sides[0].min, twin.all[1 - running].vruntime);
    assert!(min <= other && min <= twin.all[running].vruntime);
    // And older ones followed the one that had just left.
    twin.now += 500 * MS;
    twin.dequeue(running, Departure::Sleep);
    assert_eq!(twin.sides[0].min, other);
}

#[test]
fn a_long_sleeper_is_placed_where_sleepers_are() {
    // Linux before 6.3: it was compared with where it had been, and starved for hours if the difference had changed its sign.
    let mut twin = busy(&[nice(0), nice(0)]);
    let running = twin.sides[0].running.unwrap();
    twin.now += 20_000 * MS;
    twin.dequeue(running, Departure::Sleep);
    twin.reschedule(0);
    twin.now += 61_000 * MS;
    twin.charge(0);
    // As if virtual time had gone on for long enough meanwhile to look like the past.
    let entity = twin.reference(running);
    let ahead = twin.sides[0].min + (1 << 62);
    let raw = twin.sides[0].raw(ahead);
    twin.sides[0].real.members.set_key(entity, |key| key.vruntime = raw);
    twin.enqueue(running, 0, WOKEN);
    assert_eq!(twin.all[running].vruntime, twin.sides[0].min - i128::from(TUNABLES.latency / 2));
}

#[test]
fn a_wake_up_elsewhere_is_measured_by_both_queues() {
    // The first mend of the rule above took the new queue's min_vruntime for both.
    let mut twin = busy(&[nice(0), nice(0), nice(0)]);
    twin.dequeue(2, Departure::Move);
    twin.enqueue(2, 1, Arrival::Moved);
    twin.reschedule(0);
    twin.reschedule(1);
    twin.now += 10_000 * MS;
    twin.charge(1);
    assert!(twin.sides[1].min > twin.sides[0].min + 9_000 * i128::from(MS));
    let runs = twin.sides[0].running.unwrap();
    twin.now += MS;
    twin.dequeue(runs, Departure::Sleep);
    let ahead = twin.all[runs].vruntime - twin.sides[0].min;
    assert!(ahead > 0);
    twin.enqueue(runs, 1, WOKEN);
    assert_eq!(twin.all[runs].vruntime - twin.sides[1].min, ahead);
}

#[test]
fn twenty_sleepers_do_not_starve_one_that_computes() {
    let mut twin = busy(&[nice(0); 21]);
    let hog = 0;
    while twin.sides[0].running != Some(hog) {
        run(&mut twin, 1);
    }
    for i in 1..21 {
        twin.dequeue(i, Departure::Sleep);
    }
    let (before, start) = (twin.all[hog].sum_exec, twin.now);
    for round in 0..2000 {
        let i = 1 + round % 20;
        if !twin.all[i].on_rq {
            twin.enqueue(i, 0, WOKEN);
            if twin.preempts(i, WOKEN) {
                twin.reschedule(0);
            }
        }
        run(&mut twin, 1);
        if let Some(running) = twin.sides[0].running.filter(|&running| running != hog) {
            twin.dequeue(running, Departure::Sleep);
            twin.reschedule(0);
        }
    }
    let share = (twin.all[hog].sum_exec - before) as f64 / (twin.now - start) as f64;
    assert!(share > 1.0 / 21.0, "{share}");
}

#[test]
fn a_nice_change_leaves_virtual_times_alone() {
    // Linux of 2016: taking an entity out and putting it back moved min_vruntime, a penalty at each change.
    let mut twin = busy(&[nice(0), nice(0)]);
    run(&mut twin, 3);
    let before = (twin.sides[0].min, twin.all[0].vruntime, twin.all[1].vruntime);
    for level in [-20, 19, 0, 7] {
        twin.set_params(0, nice(level));
        twin.set_params(1, nice((-level).min(19)));
        assert_eq!((twin.sides[0].min, twin.all[0].vruntime, twin.all[1].vruntime), before);
    }
}

#[test]
fn the_period_of_a_crowd_counts_who_joins() {
    // The ninth stretches the period to nine granularities; its share of that is its debit.
    let mut all = std::vec![nice(0); 8];
    all.push(nice(-10));
    let twin = busy(&all);
    let share = 9 * u64::from(TUNABLES.min_granularity) * 9548 / (8 * 1024 + 9548);
    assert_eq!(twin.all[8].vruntime - twin.sides[0].min, vslice(nice(-10), share));
}

#[test]
fn nobody_of_a_crowd_runs_for_longer_than_the_latency() {
    let mut all = std::vec![nice(0); 30];
    all.push(nice(-20));
    let mut twin = busy(&all);
    while twin.sides[0].running != Some(30) {
        run(&mut twin, 1);
    }
    let picked_at = twin.all[30].sum_exec;
    // Its share of 31 granularities is 69 ms.
    run(&mut twin, u64::from(TUNABLES.latency) / TICK);
    assert_eq!(twin.sides[0].running, Some(30));
    twin.now += TICK;
    assert!(twin.tick(0), "it has had {} ns", twin.all[30].sum_exec - picked_at);
}

#[test]
fn a_light_one_gives_way_after_the_minimum_granularity() {
    for (ran, expected) in [(TUNABLES.min_granularity - 1, false), (TUNABLES.min_granularity, true)] {
        let mut twin = Twin::new(START, 2);
        twin.all[0].params = nice(19);
        twin.enqueue(0, 0, Arrival::Fresh);
        twin.reschedule(0);
        twin.now += 100 * MS;
        twin.enqueue(1, 0, Arrival::Fresh);
        twin.preempts(1, Arrival::Fresh);
        twin.dequeue(1, Departure::Sleep);
        twin.dequeue(0, Departure::Sleep);
        twin.now += 30 * MS;
        twin.enqueue(0, 0, WOKEN);
        twin.reschedule(0);
        twin.enqueue(1, 0, WOKEN);
        twin.now += u64::from(ran);
        assert_eq!(twin.tick(0), expected, "after {ran} ns");
    }
}

#[test]
fn who_has_had_its_slice_is_no_longer_preferred_as_the_one_that_was_preempted() {
    let mut twin = busy(&[nice(0); 9]);
    let running = twin.sides[0].running.unwrap();
    let sleeper = (running + 1) % 9;
    twin.dequeue(sleeper, Departure::Sleep);
    run(&mut twin, 20);
    let running = twin.sides[0].running.unwrap();
    twin.now += 4 * TICK;
    twin.enqueue(sleeper, 0, WOKEN);
    assert!(twin.preempts(sleeper, WOKEN));
    assert_eq!(twin.sides[0].last, Some(running));
    // The tick comes before the switch.
    assert!(twin.tick(0));
    assert_eq!(twin.sides[0].last, None);
}

#[test]
fn who_yields_is_no_longer_preferred_as_the_one_that_was_preempted() {
    let mut twin = busy(&[nice(0); 9]);
    let running = twin.sides[0].running.unwrap();
    let sleeper = (running + 1) % 9;
    twin.dequeue(sleeper, Departure::Sleep);
    run(&mut twin, 20);
    let running = twin.sides[0].running.unwrap();
    twin.now += 4 * TICK;
    twin.enqueue(sleeper, 0, WOKEN);
    assert!(twin.preempts(sleeper, WOKEN));
    assert_eq!(twin.sides[0].last, Some(running));
    // The yield comes before the switch.
    twin.yield_running(0);
    assert_eq!((twin.sides[0].last, twin.sides[0].skip), (None, Some(running)));
}

#[test]
fn a_sleep_is_long_beyond_a_minute() {
    for (slept, long) in [(60_000 * MS, false), (60_000 * MS + 1, true)] {
        let mut twin = busy(&[nice(0), nice(0)]);
        let running = twin.sides[0].running.unwrap();
        twin.now += 1000 * MS;
        twin.dequeue(running, Departure::Sleep);
        let asleep = twin.all[running].vruntime;
        twin.now += slept;
        twin.enqueue(running, 0, WOKEN);
        // Nobody ran meanwhile: where it was is ahead of where sleepers are placed.
        let credited = twin.sides[0].min - i128::from(TUNABLES.latency / 2);
        assert!(asleep > credited);
        assert_eq!(twin.all[running].vruntime, if long { credited } else { asleep }, "after {slept} ns");
    }
}
