//! # What it is
//! One test for each mistake that schedulers of this kind have been seen to make, named for what must hold.
//!
//! # How it works
//! Where somebody reported the mistake in public, the test says where.
//!
//! # Invariants
//! 1. A test here fails if its rule is broken, whatever the random scripts find.
//!
//! # Cost
//! Milliseconds each.

use super::{
    machine::{MS, Machine, SECOND, idle, nice, with_slice},
    twin::{Twin, USUAL_ORIGINS},
};
use crate::policy::eevdf::{Arrival, Departure};

/// Two queues with a base slice of 2.8 ms at 250 Hz.
fn twin(all: &[crate::params::TaskParams]) -> Twin {
    Twin::new(2_800_000, 4_000_000, USUAL_ORIGINS, all)
}

#[test]
fn a_yield_never_gives_service_back() {
    // 1 waits while 0 runs for a second, and is reweighted when it starts:
    // its lag is held within the limit, and its old deadline lies before its new place.
    let mut twin = twin(&[nice(0), nice(0)]);
    twin.enqueue(0, 0, Arrival::Fresh);
    twin.enqueue(1, 0, Arrival::Fresh);
    twin.start(0);
    twin.now += SECOND;
    assert_eq!(twin.reschedule(0), Some(1));
    twin.set_params(1, nice(1));
    twin.yield_running(0);
}

#[test]
fn a_yield_storm_does_not_hold_the_zero_point_back() {
    // 2ab99ad7faef and b3d99f43c72b in Linux: with a zero point that stands still, the products of the average overflow.
    let mut machine = Machine::with(&[nice(0), nice(0)]);
    machine.reschedule();
    for _ in 0..10_000 {
        machine.pass(500);
        machine.yield_running();
        assert!(machine.farthest_from_zero() < 20 * MS as i64, "{}", machine.farthest_from_zero());
    }
}
