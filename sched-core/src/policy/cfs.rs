//! # What it is
//! CFS, the completely fair scheduler, as Linux had it from 4.5 to 6.5, on one level.
//!
//! # How it works
//! The entity with the smallest vruntime runs. `min_vruntime` follows the smallest vruntime and never goes back; it is where
//! others are placed: a new entity a slice after it (START_DEBIT), a wakee half a latency before it, as credit for its sleep.
//!
//! A *slice* is an entity's share of the time in which everybody should run once. The *tick* ends the turn of who had its slice,
//! or is a slice ahead of the first in line. A *wakee* preempts who is more than the wake-up granularity ahead of it.
//!
//! *Buddies* are preferred in a pick as long as that costs nobody more than the granularity: the wakee that preempted (`next`),
//! and who was preempted by it (`last`). Who yielded (`skip`) is passed over within the same bound.
//!
//! # Invariants
//! 1. `min_vruntime` never goes back, and is never ahead of everybody on the queue by more than the credit of a sleeper.
//! 2. Buddies are on the queue.
//! 3. In the timeline an entity's deadline is its vruntime.
//!
//! # Cost
//! A slice costs one division; all else is comparisons.

use super::{Arrival, Departure, Discipline, Protection, Verdict};
use crate::{
    entity::{EntityRef, Key, Own},
    features::{Feature, FeatureSet},
    members::Members,
    params::{CfsTunables, Policy},
    platform::Nanos,
    sync::Family,
    vtime::{VSpan, VTime},
    weight::Weight,
};

/// Who slept longer than this is placed without looking at where it was: that may be too long ago to compare.
const LONG_SLEEP: Nanos = 60_000_000_000;

/// The state of CFS on one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cfs<F: Family> {
    pub(crate) min_vruntime: VTime,
    pub(crate) last_buddy: Option<EntityRef<F>>,
    pub(crate) skip_buddy: Option<EntityRef<F>>,
    tunables: CfsTunables,
    /// Counts entities that were found more than three latencies away from `min_vruntime`, where features can be changed.
    pub(crate) nr_spread_over: u64,
}

/// A vruntime ahead of another one, against the granularity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lead {
    Behind,
    Within,
    Beyond,
}

impl<F: Family> Cfs<F> {
    /// For an empty queue.
    pub(crate) fn new(tunables: CfsTunables) -> Self {
        Self { min_vruntime: VTime::START, last_buddy: None, skip_buddy: None, tunables, nr_spread_over: 0 }
    }

    /// The share of `entity` of the time in which everybody should run once.
    fn slice<X: FeatureSet>(&self, members: &Members<F, X>, key: &Key, own: &Own) -> u64 {
        let joins = !own.on_rq;
        let nr = u64::from(members.nr) + u64::from(joins);
        let period = if nr > u64::from(self.tunables.nr_latency()) {
            nr * u64::from(self.tunables.min_granularity)
        } else {
            u64::from(self.tunables.latency)
        };
        let weight = u64::from(key.weight.get());
        let all = members.weight + if joins { weight } else { 0 };
        let slice = period * weight / all.max(1);
        if !members.on(Feature::BaseSlice) {
            return slice;
        }
        let least = match own.policy {
            Policy::Idle => self.tunables.idle_min_granularity,
            Policy::Normal | Policy::Batch => self.tunables.min_granularity,
        };
        slice.max(u64::from(least))
    }

    /// How far `ahead` is ahead of `behind`, against the wake-up granularity at the weight of the one behind.
    fn lead(&self, ahead: Key, behind: Key) -> Lead {
        let lead = ahead.vruntime - behind.vruntime;
        if lead <= VSpan::ZERO {
            Lead::Behind
        } else if lead > behind.weight.virtual_time(u64::from(self.tunables.wakeup_granularity)) {
            Lead::Beyond
        } else {
            Lead::Within
        }
    }

    /// I1: follows the smaller of the running entity's vruntime and that of the first in line.
    fn follow<X: FeatureSet>(&mut self, members: &Members<F, X>) {
        let running = members.running_key().map(|key| key.vruntime);
        let first = self.first(members).map(|entity| members.key(entity).vruntime);
        let smallest = match (running, first) {
            (Some(running), Some(first)) => Some(running.earlier(first)),
            (one, other) => one.or(other),
        };
        if let Some(smallest) = smallest {
            self.min_vruntime = self.min_vruntime.later(smallest);
        }
    }

    fn first<X: FeatureSet>(&self, members: &Members<F, X>) -> Option<EntityRef<F>> {
        members.timeline.first()
    }

    fn forget_buddies<X: FeatureSet>(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>) {
        members.forget_buddy(entity);
        self.last_buddy = self.last_buddy.filter(|buddy| *buddy != entity);
        self.skip_buddy = self.skip_buddy.filter(|buddy| *buddy != entity);
    }

    /// Nobody is preferred or passed over any more, but for the queue's `next` buddy.
    pub(crate) fn forget_all_buddies(&mut self) {
        (self.last_buddy, self.skip_buddy) = (None, None);
    }

    /// The queue's spread is watched where it can be experimented with.
    fn check_spread<X: FeatureSet>(&mut self, members: &Members<F, X>, entity: EntityRef<F>) {
        if X::SWITCHABLE {
            let distance = (members.key(entity).vruntime - self.min_vruntime).get().unsigned_abs();
            self.nr_spread_over += u64::from(distance > 3 * u64::from(self.tunables.latency));
        }
    }
}

impl<F: Family, X: FeatureSet> Discipline<F, X> for Cfs<F> {
    /// A turn ends at a tick, not at a charge.
    fn ran(&mut self, members: &mut Members<F, X>, _: EntityRef<F>) -> bool {
        self.follow(members);
        false
    }

    fn tick(&mut self, members: &mut Members<F, X>, running: EntityRef<F>) -> bool {
        if members.nr < 2 {
            return false;
        }
        let (key, own) = (members.key(running), members.own(running));
        let slice = self.slice(members, &key, &own).min(u64::from(self.tunables.latency));
        let ran = running.sum_exec() - own.prev_sum_exec;
        if ran > slice {
            self.forget_buddies(members, running);
            return true;
        }
        if ran < u64::from(self.tunables.min_granularity) {
            return false;
        }
        // Virtual against real nanoseconds: light entities give way sooner.
        self.first(members).is_some_and(|first| (key.vruntime - members.key(first).vruntime).get() > slice as i64)
    }

    fn place(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>, arrival: Arrival, now: Nanos) {
        let (key, own) = (members.key(entity), members.own(entity));
        let vruntime = match arrival {
            _ if own.relative => self.min_vruntime - own.vlag,
            Arrival::Fresh if members.on(Feature::StartDebit) => {
                self.min_vruntime + key.weight.virtual_time(self.slice(members, &key, &own))
            }
            Arrival::Fresh => self.min_vruntime,
            Arrival::Moved | Arrival::Undelayed => key.vruntime,
            Arrival::Woken => {
                let credit = match own.policy {
                    Policy::Idle => self.tunables.min_granularity,
                    Policy::Normal | Policy::Batch => self.tunables.latency,
                };
                let credit = if members.on(Feature::GentleFairSleepers) { credit / 2 } else { credit };
                let base = self.min_vruntime - VSpan::new(i64::from(credit));
                if now.saturating_sub(own.exec_start) > LONG_SLEEP { base } else { base.later(key.vruntime) }
            }
        };
        members.set_own(entity, |own| own.relative = false);
        members.set_key(entity, |key| key.vruntime = vruntime);
    }

    fn waits(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>) {
        members.set_key(entity, |key| key.deadline = key.vruntime);
        members.timeline.insert(&mut members.right, entity);
        self.check_spread(members, entity);
    }

    fn leaves_the_line(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>) {
        members.timeline.remove(&mut members.right, entity);
    }

    /// It is as far from `min_vruntime` here as it was there.
    fn comes_from(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>, zero: VTime) {
        members.set_key(entity, |key| key.vruntime = self.min_vruntime + (key.vruntime - zero));
    }

    /// Who moves takes its distance along; who sleeps comes back to where it was.
    fn departs(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>, departure: Departure) -> bool {
        let vlag = self.min_vruntime - members.key(entity).vruntime;
        members.set_own(entity, |own| {
            own.vlag = vlag;
            own.relative = departure == Departure::Move;
        });
        false
    }

    fn has_left(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>, _: Departure) {
        self.forget_buddies(members, entity);
        self.follow(members);
    }

    fn settles(&mut self, _: &mut Members<F, X>, _: EntityRef<F>) -> bool {
        false
    }

    fn choose(&mut self, members: &mut Members<F, X>, _: Protection) -> Option<EntityRef<F>> {
        let first = self.first(members);
        let sooner = |a: EntityRef<F>, b: EntityRef<F>| members.key(a).vruntime < members.key(b).vruntime;
        let left = match (members.running, first) {
            (Some(running), Some(first)) => Some(if sooner(running, first) { running } else { first }),
            (running, first) => running.or(first),
        }?;
        let affordable = |buddy: &EntityRef<F>| self.lead(members.key(*buddy), members.key(left)) < Lead::Beyond;
        let mut best = left;
        if self.skip_buddy == Some(left) {
            let second = if Some(left) == members.running {
                first
            } else {
                let second = members.timeline.second(&members.right);
                match (second, members.running) {
                    (Some(second), Some(running)) => Some(if sooner(running, second) { running } else { second }),
                    (second, running) => second.or(running),
                }
            };
            best = second.filter(affordable).unwrap_or(left);
        }
        let buddy = members.next_buddy.filter(affordable).or_else(|| self.last_buddy.filter(affordable));
        Some(buddy.unwrap_or(best))
    }

    fn goes_on(&mut self, members: &mut Members<F, X>, running: EntityRef<F>) {
        self.forget_buddies(members, running);
    }

    fn starts(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>) {
        self.forget_buddies(members, entity);
    }

    fn preemption(
        &mut self,
        members: &mut Members<F, X>,
        running: EntityRef<F>,
        wakee: EntityRef<F>,
        arrival: Arrival,
    ) -> Verdict {
        let (mine, theirs) = (members.own(running).policy, members.own(wakee).policy);
        let crowded = members.nr >= self.tunables.nr_latency();
        if members.on(Feature::NextBuddy) && crowded && arrival != Arrival::Fresh && theirs != Policy::Idle {
            members.next_buddy = Some(wakee);
        }
        match (mine, theirs) {
            (Policy::Idle, Policy::Normal | Policy::Batch) => return Verdict::Yes,
            (_, Policy::Batch | Policy::Idle) => return Verdict::No,
            _ if !members.on(Feature::WakeupPreemption) => return Verdict::No,
            _ => {}
        }
        match self.lead(members.key(running), members.key(wakee)) {
            Lead::Beyond => Verdict::Yes,
            Lead::Behind | Lead::Within => Verdict::No,
        }
    }

    fn decided(
        &mut self,
        members: &mut Members<F, X>,
        running: EntityRef<F>,
        wakee: EntityRef<F>,
        _: Verdict,
        preempts: bool,
    ) {
        let gentle = |entity: EntityRef<F>| members.own(entity).policy != Policy::Idle;
        if !preempts {
            return;
        }
        let (for_wakee, for_running) = (gentle(wakee), gentle(running));
        if for_wakee {
            members.next_buddy = Some(wakee);
        }
        if for_running && members.on(Feature::LastBuddy) && members.nr >= self.tunables.nr_latency() {
            self.last_buddy = Some(running);
        }
    }

    fn yields(&mut self, members: &mut Members<F, X>, running: EntityRef<F>) {
        self.forget_buddies(members, running);
        self.skip_buddy = Some(running);
    }

    /// CFS lets vruntime be.
    fn reweight(&mut self, _: &Members<F, X>, _: EntityRef<F>, key: &mut Key, _: &mut Own, weight: Weight) {
        key.weight = weight;
    }

    fn reweight_away(&mut self, key: &mut Key, _: &mut Own, weight: Weight) {
        key.weight = weight;
    }
}
