//! # What it is
//! The decisions that make a fair queue's policy: where an entity is placed, who is picked, who preempts, what a yield costs.
//! The [queue](crate::queue) does the rest, and asks.
//!
//! # How it works
//! A [`Discipline`] is asked at the points where policies differ, and is told what it must keep sums of.
//! [`eevdf`] and [`cfs`] are the two there are; they share accounting, timeline, statistics and everything above.
//!
//! # Invariants
//! 1. A pick from a queue that is not empty is somebody.
//! 2. Who waits was announced by `waits`, and is by `leaves_the_line` before the key changes.
//!
//! # Cost
//! That of the policy's own sums.

pub(crate) mod average;
pub(crate) mod cfs;
pub(crate) mod eevdf;

use crate::{
    entity::{EntityRef, Key, Own},
    features::FeatureSet,
    members::Members,
    platform::Nanos,
    sync::Family,
    vtime::VTime,
    weight::Weight,
};

/// How an entity comes to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// For the first time.
    Fresh,
    /// After a sleep.
    Woken,
    /// From another queue, without having slept.
    Moved,
    /// After a sleep during which it waited on (see [`Discipline::departs`]).
    Undelayed,
}

/// Why an entity leaves its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// To sleep: its request is over.
    Sleep,
    /// To die: it does not wait on.
    Exit,
    /// To another queue: its request goes on there.
    Move,
}

/// Whether the running entity's protection counts in a pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// It counts.
    Honoured,
    /// It does not.
    Ignored,
}

/// Whether a wakee preempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It does not, and nothing else follows.
    No,
    /// It does.
    Yes,
    /// It does if it is picked now.
    IfPicked(Protection),
}

/// The decisions of a policy.
pub(crate) trait Discipline<F: Family, X: FeatureSet> {
    /// `running` was charged. True when somebody else should be considered.
    fn ran(&mut self, members: &mut Members<F, X>, running: EntityRef<F>) -> bool;

    /// The tick, after the charge. True when somebody else should be considered.
    fn tick(&mut self, members: &mut Members<F, X>, running: EntityRef<F>) -> bool;

    /// `entity`, which is in no line, gets its place here.
    fn place(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>, arrival: Arrival, now: Nanos);

    /// `entity` starts to wait. Links it into the timeline.
    fn waits(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>);

    /// `entity` no longer waits. Unlinks it.
    fn leaves_the_line(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>);

    /// `entity` slept where `zero` was the virtual time to measure by, and will wake here. Called before [`place`](Self::place).
    fn comes_from(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>, zero: VTime);

    /// `entity` is about to leave; it still counts. Settles what it takes along. True if it is to wait on, asleep.
    fn departs(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>, departure: Departure) -> bool;

    /// `entity` has left, and counts no longer.
    fn has_left(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>, departure: Departure);

    /// The delayed `entity` wakes up: settles its lag. True if it must be placed anew with it.
    fn settles(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>) -> bool;

    /// Who should run; perhaps a delayed one.
    fn choose(&mut self, members: &mut Members<F, X>, protection: Protection) -> Option<EntityRef<F>>;

    /// `running` was picked, and goes on.
    fn goes_on(&mut self, members: &mut Members<F, X>, running: EntityRef<F>);

    /// `entity` was picked and runs from now on.
    fn starts(&mut self, members: &mut Members<F, X>, entity: EntityRef<F>);

    /// Whether `wakee`, which was just queued, should preempt `running`.
    fn preemption(
        &mut self,
        members: &mut Members<F, X>,
        running: EntityRef<F>,
        wakee: EntityRef<F>,
        arrival: Arrival,
    ) -> Verdict;

    /// What follows for `running` after a verdict other than [`Verdict::No`]: it will be preempted by `wakee`, or not.
    fn decided(
        &mut self,
        members: &mut Members<F, X>,
        running: EntityRef<F>,
        wakee: EntityRef<F>,
        verdict: Verdict,
        preempts: bool,
    );

    /// `running` lets others go first. It is not alone.
    fn yields(&mut self, members: &mut Members<F, X>, running: EntityRef<F>);

    /// Changes the weight of `entity`, which counts here, in copies of what it has.
    fn reweight(&mut self, members: &Members<F, X>, entity: EntityRef<F>, key: &mut Key, own: &mut Own, weight: Weight);

    /// Changes the weight of an entity that is on no queue.
    fn reweight_away(&mut self, key: &mut Key, own: &mut Own, weight: Weight);
}
