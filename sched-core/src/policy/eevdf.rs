//! # What it is
//! EEVDF, earliest eligible virtual deadline first (Stoica and Abdel-Wahab, 1995), with what Linux added to it.
//!
//! # How it works
//! *Eligible* is who has had no more than its share: `vruntime <= V` (see [`average`](super::average)).
//! Of the eligible, the one with the earliest deadline runs; a deadline is the end of a request of one slice in virtual time.
//!
//! *Lag* is kept: who leaves takes `V - v` along, held within the longest slice and a tick, and is placed that far from V again.
//! Who falls asleep with negative lag would escape its debt by sleeping it away;
//! so it is *delayed*: it waits on, asleep, until it would be picked, and only then leaves.
//!
//! *Protection* keeps who was picked running for the shortest slice of the queue, unless a wakee with a shorter slice comes.
//!
//! # Invariants
//! 1. A pick has the earliest deadline of all eligible, unless the running one is protected or a buddy is preferred.
//! 2. A reweight, and joining or leaving at lag 0, leave V and the lag of all others as they were, up to rounding.
//!    Lag that an entity takes along is the others' loss or gain in proportion to their weights, until it returns.
//! 3. Delay pays a debt and never earns credit (DELAY_ZERO).
//! 4. One yield costs at most one request.
//!
//! # Cost
//! Sums in O(1); a placement, a departure and a renewal cost one division.

use super::{Arrival, Departure, Discipline, Protection, Verdict, average::Average};
use crate::{
    entity::{EntityRef, Key, Own},
    features::{Feature, FeatureSet},
    members::Members,
    params::{Policy, Slice},
    platform::Nanos,
    sync::Family,
    vtime::{VSpan, VTime},
    weight::Weight,
};

/// The state of EEVDF on one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Eevdf {
    /// Of the waiting entities, delayed ones included.
    pub(crate) waiting: Average,
    tick: u32,
    /// Picks that found nobody eligible. Stays 0 unless the arithmetic is wrong.
    pub(crate) pick_failures: u64,
}

impl Eevdf {
    /// For an empty queue. `tick` is in nanoseconds.
    pub(crate) fn new(tick: u32) -> Self {
        Self { waiting: Average::new(), tick, pick_failures: 0 }
    }

    fn virtual_time<F: Family, X: FeatureSet>(&mut self, members: &Members<F, X>) -> VTime {
        self.waiting.virtual_time(members.running_key())
    }

    #[inline(always)]
    fn everybody<F: Family, X: FeatureSet>(&self, members: &Members<F, X>) -> Average {
        self.waiting.and(members.running_key())
    }

    /// How far from V an entity of this weight may be remembered: its virtual time for the longest request and a tick.
    fn lag_limit<F: Family, X: FeatureSet>(&self, members: &Members<F, X>, weight: Weight) -> VSpan {
        weight.virtual_time(u64::from(members.longest_slice()) + u64::from(self.tick))
    }

    /// Remembers V - v within its limit, and returns it without one.
    /// A delayed entity has no more debt than it fell asleep with, and no credit.
    #[inline(always)]
    fn settle_lag<F: Family, X: FeatureSet>(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>) -> VSpan {
        let key = members.key(entity);
        let unlimited = self.virtual_time(members) - key.vruntime;
        let lag = unlimited.clamp_to(self.lag_limit(members, key.weight));
        let zero = members.on(Feature::DelayZero);
        members.set_own(entity, |own| {
            own.vlag = match own.delayed {
                false => lag,
                true if zero => lag.max(own.vlag).min(VSpan::ZERO),
                true => lag.max(own.vlag),
            };
        });
        unlimited
    }
}

impl<F: Family, X: FeatureSet> Discipline<F, X> for Eevdf {
    #[inline(always)]
    fn ran(&mut self, members: &mut Members<F, X>, running: EntityRef<F>) -> bool {
        let (vruntime, renewed) = members.set_key(running, |key| (key.vruntime, renew(key)));
        if renewed {
            // Moves v0 along with V, also while one entity runs alone for long.
            self.virtual_time(members);
        }
        let over = members.nr > 1 && (renewed || vruntime >= members.own(running).protected_until);
        if over {
            members.forget_buddy(running);
        }
        over
    }

    /// Asks the question of [`ran`](Self::ran) also if somebody else charged at this very moment,
    /// as happens at every tick on a machine whose clock moves with its ticks.
    #[inline(always)]
    fn tick(&mut self, members: &mut Members<F, X>, running: EntityRef<F>) -> bool {
        members.nr > 1 && members.key(running).vruntime >= members.own(running).protected_until
    }

    /// The lag it left with is kept. Joining moves V towards the joiner, so the lag is inflated by (W + w) / W beforehand:
    /// after the join it is what it was. The deadline is kept too if the entity left in the middle of a request.
    #[inline]
    fn place(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>, arrival: Arrival, _: Nanos) {
        let (vlag, weight) = (members.own(entity).vlag, members.key(entity).weight);
        let queued = self.everybody(members).weight();
        let lag = if queued != 0 && vlag != VSpan::ZERO && members.on(Feature::PlaceLag) {
            vlag.scaled(queued + u64::from(weight.get()), queued)
        } else {
            VSpan::ZERO
        };
        let vruntime = self.virtual_time(members) - lag;
        let relative = members.set_own(entity, |own| core::mem::take(&mut own.relative));
        let goes_on = relative && members.on(Feature::PlaceRelDeadline);
        let half = arrival == Arrival::Fresh && members.on(Feature::PlaceDeadlineInitial);
        members.set_key(entity, |key| {
            key.vruntime = vruntime;
            key.deadline = if goes_on {
                vruntime + (key.deadline - VTime::from_raw(0))
            } else {
                let request = key.weight.virtual_time(u64::from(key.slice)).get();
                vruntime + VSpan::new(if half { request / 2 } else { request })
            };
        });
    }

    #[inline(always)]
    fn waits(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>) {
        let key = members.key(entity);
        self.waiting.add(key.vruntime, key.weight);
        members.timeline.insert(&mut members.right, entity);
    }

    #[inline(always)]
    fn leaves_the_line(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>) {
        let key = members.key(entity);
        members.timeline.remove(&mut members.right, entity);
        self.waiting.remove(key.vruntime, key.weight);
    }

    /// Everybody measures by the V of its own queue.
    fn comes_from(&mut self, _: &mut Members<F, X>, _: EntityRef<F>, _: VTime) {}

    /// Who falls asleep in debt waits on. V is rounded down and vruntimes are whole, so a lag below 0 says "not eligible".
    #[inline]
    fn departs(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>, departure: Departure) -> bool {
        let lag = self.settle_lag(members, entity);
        departure == Departure::Sleep
            && lag < VSpan::ZERO
            && members.on(Feature::DelayDequeue)
            && !members.own(entity).delayed
    }

    /// Who moves goes on with its request.
    #[inline]
    fn has_left(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>, departure: Departure) {
        if departure == Departure::Move && members.on(Feature::PlaceRelDeadline) {
            members.set_key(entity, |key| key.deadline = VTime::from_raw(0) + (key.deadline - key.vruntime));
            members.set_own(entity, |own| own.relative = true);
        }
    }

    #[inline]
    fn settles(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>) -> bool {
        let unlimited = self.settle_lag(members, entity);
        members.own(entity).vlag != unlimited
    }

    #[inline]
    fn choose(&mut self, members: &mut Members<F, X>, protection: Protection) -> Option<EntityRef<F>> {
        if members.nr == 1 {
            return members.running.or(members.timeline.first());
        }
        let everybody = self.everybody(members);
        let contender = members.running.filter(|running| everybody.eligible(members.key(*running).vruntime));
        if members.on(Feature::PickBuddy)
            && let Some(buddy) = members.next_buddy
            && everybody.eligible(members.key(buddy).vruntime)
            && protection == Protection::Honoured
        {
            return Some(buddy);
        }
        if let Some(running) = contender
            && protection == Protection::Honoured
            && members.key(running).vruntime < members.own(running).protected_until
        {
            return contender;
        }
        let v = || { everybody }.virtual_time(None);
        let best = members.timeline.earliest(&members.right, |vruntime| everybody.eligible(vruntime), v);
        match (contender, best) {
            (Some(running), Some(waiting)) => {
                let sooner = members.key(running).deadline < members.key(waiting).deadline;
                Some(if sooner { running } else { waiting })
            }
            (None, None) if members.nr > 0 => {
                debug_assert!(false, "nobody is eligible");
                self.pick_failures += 1;
                members.timeline.first().or(members.running)
            }
            (contender, best) => contender.or(best),
        }
    }

    fn goes_on(&mut self, _: &mut Members<F, X>, _: EntityRef<F>) {}

    /// It is safe from its equals for the shortest slice of the queue, or to its deadline if that is earlier.
    #[inline]
    fn starts(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>) {
        members.forget_buddy(entity);
        let key = members.key(entity);
        let shortest = if members.on(Feature::RunToParity) { members.shortest_slice() } else { Slice::BASE.nanos() };
        let until = if shortest < key.slice {
            key.deadline.earlier(key.vruntime + key.weight.virtual_time(u64::from(shortest)))
        } else {
            key.deadline
        };
        members.set_own(entity, |own| own.protected_until = until);
    }

    fn preemption(
        &mut self,
        members: &mut Members<F, X>,
        running: EntityRef<F>,
        wakee: EntityRef<F>,
        arrival: Arrival,
    ) -> Verdict {
        if !members.on(Feature::WakeupPreemption) {
            return Verdict::No;
        }
        match (members.own(running).policy, members.own(wakee).policy) {
            (Policy::Idle, Policy::Normal | Policy::Batch) => return Verdict::Yes,
            (_, Policy::Batch | Policy::Idle) => return Verdict::No,
            _ => {}
        }
        if members.on(Feature::PreemptShort) && members.key(wakee).slice < members.key(running).slice {
            return Verdict::IfPicked(Protection::Ignored);
        }
        if matches!(arrival, Arrival::Fresh | Arrival::Undelayed) {
            return Verdict::No;
        }
        if members.on(Feature::NextBuddy) {
            prefer_sooner(members, wakee);
        }
        Verdict::IfPicked(Protection::Honoured)
    }

    fn decided(
        &mut self,
        members: &mut Members<F, X>,
        running: EntityRef<F>,
        _: EntityRef<F>,
        verdict: Verdict,
        preempts: bool,
    ) {
        let key = members.key(running);
        if preempts {
            // The pick that follows honours protection; it must come to the same answer.
            members.set_own(running, |own| own.protected_until = key.vruntime);
        } else if matches!(verdict, Verdict::IfPicked(_)) && members.on(Feature::RunToParity) {
            let until = key.vruntime + key.weight.virtual_time(u64::from(members.shortest_slice()));
            members.set_own(running, |own| own.protected_until = own.protected_until.earlier(until));
        }
    }

    /// Gives up the rest of the request, if it is eligible.
    fn yields(&mut self, members: &mut Members<F, X>, running: EntityRef<F>) {
        members.forget_buddy(running);
        if self.everybody(members).eligible(members.key(running).vruntime) {
            members.set_key(running, |key| {
                // A deadline that a reweight left behind must not give service back.
                key.vruntime = key.vruntime.later(key.deadline);
                renew(key);
            });
            // V moved by up to a request without anybody running: v0 moves along, also in a storm of yields.
            self.virtual_time(members);
        }
        let vruntime = members.key(running).vruntime;
        members.set_own(running, |own| own.protected_until = vruntime);
    }

    /// V, the lag and the place in the present request are kept; of the running one, the protection too,
    /// and of a delayed one, what it fell asleep with.
    fn reweight(
        &mut self,
        members: &Members<F, X>,
        entity: EntityRef<F>,
        key: &mut Key,
        own: &mut Own,
        weight: Weight,
    ) {
        let virtual_time = self.virtual_time(members);
        let rescale = rescale(key.weight, weight);
        let lag = (virtual_time - key.vruntime).clamp_to(self.lag_limit(members, key.weight));
        key.vruntime = virtual_time - rescale(lag);
        key.deadline = virtual_time + rescale(key.deadline - virtual_time);
        if members.running == Some(entity) {
            own.protected_until = virtual_time + rescale(own.protected_until - virtual_time);
        }
        if own.delayed {
            own.vlag = rescale(own.vlag);
        }
        key.weight = weight;
    }

    /// What it carries is scaled.
    fn reweight_away(&mut self, key: &mut Key, own: &mut Own, weight: Weight) {
        let rescale = rescale(key.weight, weight);
        own.vlag = rescale(own.vlag);
        if own.relative {
            key.deadline = VTime::from_raw(0) + rescale(key.deadline - VTime::from_raw(0));
        }
        key.weight = weight;
    }
}

fn rescale(from: Weight, to: Weight) -> impl Fn(VSpan) -> VSpan {
    move |span| span.scaled(u64::from(from.get()), u64::from(to.get()))
}

/// Ends a request whose deadline is reached, and starts the next from where the entity is now.
#[inline(always)]
fn renew(key: &mut Key) -> bool {
    let over = key.vruntime >= key.deadline;
    if over {
        key.deadline = key.vruntime + key.weight.virtual_time(u64::from(key.slice));
    }
    over
}

/// Makes `wakee` the next buddy, unless there is one with an earlier deadline.
///
/// Not inlined, so that a test can see whether the rule's code is there at all.
#[inline(never)]
fn prefer_sooner<F: Family, X: FeatureSet>(members: &mut Members<F, X>, wakee: EntityRef<F>) {
    let deadline = members.key(wakee).deadline;
    if members.next_buddy.is_none_or(|buddy| deadline < members.key(buddy).deadline) {
        members.next_buddy = Some(wakee);
    }
}
