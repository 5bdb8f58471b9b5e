//! # What it is
//! What must hold of entities that sleep and wait on, rule by rule.
//!
//! # How it works
//! As in [`rules`](super::rules): small stories, each beside the model.
//!
//! # Invariants
//! 1. A test here fails if its rule is broken, whatever the random scripts find.
//!
//! # Cost
//! Milliseconds.

use super::{
    machine::{MS, idle, nice},
    rules::busy,
    twin::Twin,
};
use crate::{params::TaskParams, policy::Departure, vtime::VSpan};

/// 0 ran ahead of 1 and fell asleep: it is delayed, and 1 runs.
fn indebted(mine: TaskParams, other: TaskParams) -> Twin {
    let mut twin = busy(&[mine, other]);
    twin.now += 3 * MS;
    twin.dequeue(0, Departure::Sleep);
    assert!(twin.own(0).delayed);
    assert_eq!(twin.reschedule(0), Some(1));
    twin
}

#[test]
fn delay_pays_a_debt_and_earns_nothing() {
    // Linux 6.12: an entity that slept its negative lag away on the queue came back with positive lag.
    let mut twin = indebted(nice(0), nice(0));
    let debt = twin.own(0).vlag;
    assert!(debt < VSpan::ZERO);
    twin.now += MS;
    twin.charge(0);
    twin.undelay(0);
    assert!(twin.own(0).vlag > debt && twin.own(0).vlag <= VSpan::ZERO, "{:?}", twin.own(0).vlag);

    let mut twin = indebted(nice(0), nice(0));
    twin.now += 50 * MS;
    twin.charge(0);
    assert!(twin.lag(0) > 0, "it waits long enough to be owed something, were it awake");
    twin.undelay(0);
    assert_eq!(twin.own(0).vlag, VSpan::ZERO);
    assert!(twin.lag(0).abs() <= 1);
}

#[test]
fn a_debt_does_not_grow_while_its_owner_sleeps() {
    let mut twin = busy(&[nice(0), nice(0), nice(0)]);
    twin.stop(0);
    twin.start(2);
    twin.now += 6 * MS;
    twin.charge(0);
    twin.stop(0);
    twin.start(0);
    twin.now += 4 * MS;
    twin.dequeue(0, Departure::Sleep);
    assert!(twin.own(0).delayed);
    let debt = twin.own(0).vlag;
    // One who is further ahead leaves: V goes back.
    twin.dequeue(2, Departure::Move);
    assert!(twin.lag(0) < i128::from(debt.get()), "V did not go back: the test is wrong");
    twin.undelay(0);
    assert_eq!(twin.own(0).vlag, debt);
}

#[test]
fn a_delayed_entity_that_is_picked_leaves_and_the_pick_goes_on() {
    let mut twin = indebted(nice(0), nice(0));
    twin.now += 20 * MS;
    assert_eq!(twin.reschedule(0), Some(1));
    assert_eq!(twin.home[0], None, "its debt is paid");
    assert_eq!(twin.own(0).vlag, VSpan::ZERO);
}

#[test]
fn a_buddy_is_never_asleep() {
    // Linux 6.12: the preferred next entity was a delayed one.
    let mut twin = busy(&[nice(0), nice(0), nice(0)]);
    twin.now += 3 * MS;
    twin.charge(0);
    let q = &mut twin.sides[0].real;
    q.members.next_buddy = q.members.running;
    twin.dequeue(0, Departure::Sleep);
    assert!(twin.own(0).delayed);
    assert_eq!(twin.sides[0].real.members.next_buddy, None);
}

#[test]
fn a_delayed_entity_may_be_reweighted() {
    // The debt in units of service stays: what it fell asleep with is scaled too.
    for (from, to) in [(nice(0), nice(19)), (nice(19), nice(-20)), (nice(0), idle())] {
        let mut twin = indebted(from, nice(0));
        let debt = twin.own(0).vlag.get() * i64::from(from.weight().get());
        twin.set_params(0, to);
        let after = twin.own(0).vlag.get() * i64::from(to.weight().get());
        assert!((after - debt).abs() <= i64::from(to.weight().get()), "{debt} became {after}");
        twin.undelay(0);
    }
}
