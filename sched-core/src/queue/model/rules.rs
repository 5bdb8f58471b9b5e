//! # What it is
//! One test for each mistake that schedulers of this kind have been seen to make, named for what must hold.
//!
//! # How it works
//! Where somebody reported the mistake in public, the test says where.
//! Mistakes that need time to show are in [`fairness`](super::fairness).
//!
//! # Invariants
//! 1. A test here fails if its rule is broken, whatever the random scripts find.
//!
//! # Cost
//! Milliseconds each.

use super::{
    machine::{MS, Machine, SECOND, idle, nice, with_slice},
    twin::{Twin, USUAL_ORIGINS, WOKEN, eevdf},
};
use crate::{
    entity::Key,
    features::Feature,
    params::{Policy, Slice, TaskParams},
    policy::{Arrival, Departure, average::Average},
    vtime::{VSpan, VTime},
    weight::{Nice, Weight},
};

const BASE_SLICE: u32 = 2_800_000;
const TICK: u32 = 4_000_000;

/// Two queues with a base slice of 2.8 ms at 250 Hz.
fn twin(all: &[TaskParams]) -> Twin {
    Twin::new(BASE_SLICE, TICK, USUAL_ORIGINS, all)
}

/// The entities of `all`, on queue 0, where 0 runs.
pub(super) fn busy(all: &[TaskParams]) -> Twin {
    let mut twin = twin(all);
    for i in 0..all.len() {
        twin.enqueue(i, 0, Arrival::Fresh);
    }
    twin.start(0);
    twin
}

fn of(nice: i32) -> Weight {
    Weight::of(Nice::new(nice).unwrap())
}

fn at(raw: i64) -> VTime {
    VTime::from_raw(raw as u64)
}

// The average and who is eligible.

#[test]
fn v_is_rounded_down_so_that_somebody_is_eligible() {
    // Truncation rounds a negative sum up, past everybody.
    let mut average = Average::starting_at(at(0));
    average.add(at(-1), of(0));
    average.add(at(0), of(1));
    assert!(average.eligible(at(-1)));
    assert!(!average.eligible(at(0)));
    assert_eq!(average.virtual_time(None), at(-1));
    assert_eq!(average.sum(), 820);
    assert!(average.eligible(at(-1)), "V is eligible, wherever the zero point is");
    assert!(!average.eligible(at(0)));
}

#[test]
fn the_running_entity_counts_in_v() {
    let mut average = Average::starting_at(at(0));
    average.add(at(0), of(0));
    let running = Key {
        deadline: at(500),
        vruntime: at(300),
        weight: of(0),
        slice: BASE_SLICE,
        place: crate::entity::Place::NOWHERE,
    };
    assert_eq!(average.virtual_time(Some(running)), at(150));
    assert_eq!(average.weight(), 1024, "but is not kept in it");
    assert!(average.and(Some(running)).eligible(at(150)));
    assert!(!average.eligible(at(150)));
}

#[test]
fn eligibility_survives_products_of_more_than_64_bits() {
    let mut average = Average::starting_at(at(0));
    for _ in 0..50_000 {
        average.add(at(1000), of(-20));
    }
    for far in [1i64 << 40, 1 << 50, 1 << 60] {
        assert!(!average.eligible(at(far)), "{far} virtual ns ahead");
        assert!(average.eligible(at(-far)), "{far} virtual ns behind");
    }
}

#[test]
fn of_the_eligible_the_earliest_deadline_is_picked() {
    // 3 has the earliest deadline of all, but has had more than its share.
    let mut twin =
        busy(&[nice(0), with_slice(nice(0), 20 * MS), with_slice(nice(0), 10 * MS), with_slice(nice(0), 100_000)]);
    twin.now += 10 * MS;
    twin.charge(0);
    twin.stop(0);
    twin.start(3);
    twin.now += 30 * MS;
    assert_eq!(twin.reschedule(0), Some(2));
    twin.dequeue(2, Departure::Sleep);
    assert_eq!(twin.reschedule(0), Some(1));
}

#[test]
fn of_equal_deadlines_the_one_that_waits_is_picked() {
    let mut twin = busy(&[nice(0), nice(0)]);
    twin.stop(0);
    let first = twin.pick(0).unwrap();
    twin.start(first);
    // Alike in everything, and the protection of the running one is over as soon as the other is preferred for its slice.
    twin.set_params(1 - first, with_slice(nice(0), 100_000));
    assert_eq!(twin.key(0).deadline, twin.key(1).deadline);
    assert!(twin.preempts(1 - first, WOKEN));
    assert_eq!(twin.reschedule(0), Some(1 - first));
}

#[test]
fn a_lone_entity_is_not_asked_to_give_way() {
    // A reschedule was asked for by the number of all tasks of the CPU, not of the fair ones.
    let mut twin = busy(&[nice(0), nice(0)]);
    twin.dequeue(1, Departure::Sleep);
    for _ in 0..100 {
        twin.now += u64::from(TICK);
        assert!(!twin.charge(0));
    }
    twin.enqueue(1, 0, WOKEN);
    twin.now += u64::from(TICK);
    assert!(twin.charge(0));
}

// Coming and going.

#[test]
fn a_new_entity_starts_at_v_of_the_queue_it_joins() {
    // nanvix/nanvix#2533: a new thread inherited what was left of its creator's quantum.
    let mut twin = twin(&[nice(0), nice(0), nice(0), nice(3)]);
    for (i, q) in [(0, 0), (1, 0), (2, 1)] {
        twin.enqueue(i, q, Arrival::Fresh);
    }
    twin.start(0);
    twin.start(2);
    twin.now += 77 * SECOND;
    twin.charge(0);
    twin.charge(1);
    for q in [0, 1] {
        let v = twin.sides[q].virtual_time();
        twin.enqueue(3, q, Arrival::Fresh);
        let key = twin.key(3);
        assert_eq!(key.vruntime, v);
        assert_eq!((key.deadline - v).get(), of(3).virtual_time(u64::from(BASE_SLICE)).get() / 2, "half a request");
        twin.dequeue(3, Departure::Sleep);
        twin.forget(3);
    }
}

#[test]
fn lag_survives_a_sleep_whoever_runs() {
    // lkml.iu.edu 2602.2/04151: the running entity was left out of the weight that inflates the lag.
    // And in 6.13 the lag of a heavy one evaporated beside a light one.
    for others in [nice(-20), nice(0), nice(19), idle()] {
        for mine in [nice(-20), nice(0), nice(19), idle()] {
            for (first, second) in [(0, 1), (1, 0)] {
                let mut twin = twin(&[mine, others]);
                twin.enqueue(0, 0, Arrival::Fresh);
                twin.enqueue(1, 0, Arrival::Fresh);
                twin.start(first);
                twin.now += 3 * MS;
                twin.charge(0);
                let lag = twin.lag(0);
                assert_ne!(lag, 0);
                if first == 1 {
                    twin.sleep_at_once(0);
                } else {
                    twin.sleep_at_once(0);
                    twin.start(second);
                }
                twin.now += 50 * MS;
                twin.charge(0);
                twin.enqueue(0, 0, WOKEN);
                assert!((twin.lag(0) - lag).abs() <= 2, "{mine:?} beside {others:?}: {lag} became {}", twin.lag(0));
            }
        }
    }
}

#[test]
fn v_stays_when_one_joins_or_leaves_at_lag_0() {
    // lkml.iu.edu 2602.2/04151, again.
    let mut twin = busy(&[nice(0), nice(-3), nice(7), nice(-20)]);
    twin.dequeue(3, Departure::Sleep);
    twin.now += 3 * MS;
    twin.charge(0);
    let (v, lags) = (twin.sides[0].virtual_time(), [0, 1, 2].map(|i| twin.lag(i)));
    assert_eq!(twin.own(3).vlag, VSpan::ZERO);
    for _ in 0..3 {
        twin.enqueue(3, 0, WOKEN);
        assert_eq!((twin.sides[0].virtual_time(), [0, 1, 2].map(|i| twin.lag(i))), (v, lags));
        twin.dequeue(3, Departure::Sleep);
        assert_eq!((twin.sides[0].virtual_time(), [0, 1, 2].map(|i| twin.lag(i))), (v, lags));
    }
}

#[test]
fn an_entity_that_returns_to_an_empty_queue_starts_at_v() {
    // 6.12 backports divided by the weight of an empty queue.
    let mut twin = busy(&[nice(0), nice(0)]);
    twin.now += 3 * MS;
    twin.charge(0);
    twin.dequeue(1, Departure::Sleep);
    assert_ne!(twin.own(1).vlag, VSpan::ZERO);
    twin.dequeue(0, Departure::Sleep);
    let v = twin.sides[0].virtual_time();
    twin.enqueue(1, 0, WOKEN);
    assert_eq!(twin.key(1).vruntime, v);
}

#[test]
fn a_heavy_entity_with_lag_joins_a_light_queue_without_overflow() {
    for lightest in [nice(19), idle()] {
        let mut twin = busy(&[lightest, with_slice(nice(-20), 100 * MS), with_slice(nice(-20), 100 * MS)]);
        // The heavy ones wait far longer than they may be remembered for, then leave, and come back one by one.
        twin.now += 3600 * SECOND;
        twin.charge(0);
        for i in [1, 2] {
            twin.dequeue(i, Departure::Sleep);
            assert_eq!(twin.own(i).vlag, of(-20).virtual_time(104 * MS), "clamped");
            twin.enqueue(i, 0, WOKEN);
            twin.dequeue(i, Departure::Move);
        }
        for i in [1, 2] {
            twin.enqueue(i, 0, WOKEN);
        }
        assert!(twin.reschedule(0).is_some_and(|picked| picked != 0));
    }
}

#[test]
fn a_move_keeps_lag_and_the_rest_of_the_request() {
    let mut twin = twin(&[nice(0), nice(0), nice(5)]);
    for (i, q) in [(0, 0), (1, 0), (2, 1)] {
        twin.enqueue(i, q, Arrival::Fresh);
    }
    twin.start(0);
    twin.start(2);
    twin.now += 900 * MS;
    twin.charge(1);
    twin.now += MS;
    twin.charge(0);
    let (lag, left) = (twin.lag(1), twin.key(1).deadline - twin.key(1).vruntime);
    twin.dequeue(1, Departure::Move);
    assert_eq!(i128::from(twin.own(1).vlag.get()), lag.min(i128::from(of(0).virtual_time(6_800_000).get())));
    twin.enqueue(1, 1, WOKEN);
    assert_eq!(twin.key(1).deadline - twin.key(1).vruntime, left);
}

#[test]
fn a_sleep_ends_the_request() {
    let mut twin = busy(&[nice(0), nice(0)]);
    twin.now += MS;
    twin.sleep_at_once(0);
    twin.enqueue(0, 0, WOKEN);
    assert_eq!((twin.key(0).deadline - twin.key(0).vruntime).get(), i64::from(BASE_SLICE));
}

#[test]
fn the_lag_limit_follows_the_longest_slice_of_the_queue() {
    // With the limit of its own slice, an entity of short requests lost fair lag beside one of long requests.
    let mut twin = busy(&[with_slice(nice(0), 60 * MS), with_slice(nice(0), 100_000)]);
    twin.now += 60 * MS;
    twin.charge(0);
    let lag = twin.lag(1);
    assert!(lag > 20 * MS as i128);
    twin.dequeue(1, Departure::Sleep);
    assert_eq!(i128::from(twin.own(1).vlag.get()), lag);
    twin.enqueue(1, 0, WOKEN);
    twin.now += SECOND;
    twin.charge(0);
    twin.dequeue(1, Departure::Sleep);
    assert_eq!(twin.own(1).vlag.get(), 64 * MS as i64, "60 ms and a tick");
}

// Reweights.

#[test]
fn v_and_all_lags_stay_when_one_is_reweighted() {
    // lkml.iu.edu 2602.2/04151: a reweight shifted the average. `Twin::set_params` compares V and the lag.
    for who in [0, 1, 2] {
        let mut twin = busy(&[nice(0), nice(-3), nice(7)]);
        twin.now += 3 * MS;
        twin.charge(0);
        for params in [nice(5), nice(-20), idle(), nice(19), nice(0)] {
            let lags: std::vec::Vec<_> = (0..3).map(|i| twin.weighted_lag(i)).collect();
            let total = |twin: &Twin| twin.sides[0].model.total_weight(&twin.model);
            let before = total(&twin);
            twin.set_params(who, params);
            let v_rounding = 2 + (before + twin.model[who].w()) / total(&twin);
            for (i, lag) in lags.iter().enumerate().filter(|&(i, _)| i != who) {
                let change = (twin.weighted_lag(i) - lag).abs();
                assert!(change <= twin.model[i].w() * v_rounding, "the lag of {i} changed by {change}");
            }
        }
    }
}

#[test]
fn a_reweight_scales_deadline_and_protection_with_the_lag() {
    let mut twin = busy(&[with_slice(nice(0), 40 * MS), with_slice(nice(0), 40 * MS)]);
    twin.now += 10 * MS;
    twin.charge(0);
    let v = twin.sides[0].virtual_time();
    let before = [twin.key(0).deadline - v, twin.own(0).protected_until - v, twin.key(1).deadline - v];
    twin.set_params(0, nice(5));
    twin.set_params(1, nice(5));
    let after = [twin.key(0).deadline - v, twin.own(0).protected_until - v, twin.key(1).deadline - v];
    for (before, after) in before.into_iter().zip(after) {
        assert!((before.scaled(1024, 335).get() - after.get()).abs() <= 4, "{before:?} became {after:?}");
    }
}

#[test]
fn a_heavy_entity_may_become_the_lightest_with_any_lag() {
    // In 6.9 the product of lag and old weight overflowed, nobody was eligible, and the kernel crashed.
    let mut twin = busy(&[nice(0), nice(-20), nice(-20)]);
    twin.now += 3600 * SECOND;
    twin.charge(0);
    let v = twin.sides[0].virtual_time();
    twin.set_params(1, idle());
    let lag = (v - twin.key(1).vruntime).get();
    let limit = Weight::IDLE.virtual_time(6_800_000).get();
    assert!((limit - 100_000..=limit).contains(&lag), "{lag} of {limit}");
    twin.dequeue(2, Departure::Sleep);
    twin.params[2] = idle();
    twin.enqueue(2, 0, WOKEN);
    assert!(twin.reschedule(0).is_some());
}

#[test]
fn a_reweight_does_not_protect_anew() {
    let mut twin = busy(&[nice(0), nice(0)]);
    let protected_until = twin.own(0).protected_until;
    twin.now += 2 * MS;
    twin.set_params(0, with_slice(nice(0), 100 * MS));
    assert_eq!(twin.own(0).protected_until, protected_until);
    twin.now += MS;
    assert!(twin.charge(0));
    assert_eq!(twin.reschedule(0), Some(1));
}

#[test]
fn a_lone_entity_may_be_reweighted() {
    let mut twin = busy(&[nice(0)]);
    for round in 0..100 {
        twin.now += 3 * MS;
        twin.set_params(0, nice(round % 40 - 20));
        assert_eq!(twin.lag(0), 0);
    }
}

#[test]
fn the_order_holds_when_one_that_waits_is_changed() {
    // embassy-rs/embassy#4666: a priority changed while its task was in a sorted queue broke the order. `Twin` checks it.
    let mut twin = busy(&[nice(0); 8]);
    for round in 0..400 {
        twin.now += 100_000 * (round % 70);
        let slice = Some(Slice::clamped(100_000 * (1 + round * 7 % 50)));
        twin.set_params(round as usize % 8, TaskParams { slice, ..nice(round as i32 % 40 - 20) });
        twin.reschedule(0);
    }
}

#[test]
fn what_ran_before_a_reweight_is_charged_at_the_old_weight() {
    let mut twin = busy(&[nice(0), nice(0)]);
    let before = twin.key(0).vruntime;
    twin.now += 2 * MS;
    twin.set_params(1, nice(3));
    assert_eq!((twin.key(0).vruntime - before).get(), 2 * MS as i64);
    twin.now += 500_000;
    twin.set_params(0, nice(19));
    assert_eq!(twin.received(0), 2_500_000);
    let lag = twin.weighted_lag(0);
    // Half of 2 ms were the other's, and 526 / 1550 of the rest.
    let ahead = 1_000_000 + 500_000 * 526 / (1024 + 526);
    assert!((lag + 1024 * ahead).abs() < 1024 * 10, "{lag}");
}

// The clock.

#[test]
fn a_clock_that_steps_back_charges_nothing() {
    let mut twin = busy(&[nice(0), nice(0)]);
    twin.now += MS;
    twin.charge(0);
    let (received, vruntime) = (twin.received(0), twin.key(0).vruntime);
    twin.now -= 500_000;
    assert!(!twin.charge(0));
    twin.now += 500_000;
    assert!(!twin.charge(0));
    assert_eq!((twin.received(0), twin.key(0).vruntime), (received, vruntime));
    twin.now += 1;
    twin.charge(0);
    assert_eq!(twin.received(0), received + 1);
}

#[test]
fn a_clock_that_jumps_ahead_by_years_overflows_nothing() {
    for params in [nice(-20), nice(0), nice(19), idle()] {
        for jump in [1 << 53, 1 << 60, 1 << 63] {
            // One alone, and one beside another.
            let mut twin = busy(&[params, nice(0)]);
            twin.dequeue(1, Departure::Sleep);
            twin.now += jump;
            twin.charge(0);
            twin.enqueue(1, 0, WOKEN);
            assert_eq!(twin.lag(0), 0);
            let mut twin = busy(&[params, nice(0)]);
            twin.now += jump;
            assert_eq!(twin.reschedule(0), Some(1));
            assert_eq!(twin.received(0), jump);
            twin.now += u64::from(TICK);
            assert_eq!(twin.reschedule(0), Some(1));
        }
    }
}

#[test]
fn what_runs_between_two_ticks_is_charged() {
    // CMSIS_5#228, #1000: time was sampled at the tick, and a task that always stopped before it was never charged.
    let mut machine = Machine::with(&[nice(0), nice(0)]);
    machine.sleep(0);
    machine.reschedule();
    for _ in 0..1000 {
        machine.run(100_000);
        machine.wake(0);
        machine.reschedule();
        machine.run(u64::from(TICK) - 200_000);
        machine.sleep(0);
        machine.run(100_000);
    }
    assert_eq!(machine.received(0) + machine.received(1), 4 * SECOND);
    assert!(machine.received(0) < 2 * SECOND + 8 * MS, "{}", machine.received(0));
}

#[test]
fn a_request_that_was_overrun_is_followed_by_one_from_now() {
    // tock#2051: a subtraction overflowed when more than the slice had elapsed.
    let mut twin = busy(&[nice(0), nice(0)]);
    twin.now += 10 * SECOND;
    assert!(twin.charge(0));
    assert_eq!((twin.key(0).deadline - twin.key(0).vruntime).get(), i64::from(BASE_SLICE));
}

// Protection and wake-ups.

#[test]
fn a_running_entity_is_protected_for_the_shortest_slice() {
    // 1 has had more than its share; 0 runs; 2 has an earlier deadline than 0 all the time.
    let mut twin = busy(&[with_slice(nice(0), 50 * MS), with_slice(nice(0), 20 * MS), with_slice(nice(0), 3 * MS)]);
    twin.stop(0);
    twin.start(1);
    twin.now += 10 * MS;
    twin.charge(0);
    twin.stop(0);
    twin.start(0);
    twin.now += 3 * MS - 1;
    assert!(!twin.charge(0));
    assert_eq!(twin.pick(0), Some(0));
    twin.now += 1;
    assert!(twin.charge(0));
    assert_eq!(twin.pick(0), Some(2));
}

#[test]
fn a_wakeup_preempts_only_with_an_earlier_deadline_and_lag() {
    let mut twin = busy(&[with_slice(nice(0), 50 * MS), with_slice(nice(0), MS), with_slice(nice(0), 60 * MS)]);
    for i in [1, 2] {
        twin.dequeue(i, Departure::Sleep);
    }
    twin.now += 100_000;
    twin.enqueue(2, 0, WOKEN);
    assert!(!twin.preempts(2, WOKEN), "a later deadline");
    twin.enqueue(1, 0, WOKEN);
    assert!(twin.preempts(1, WOKEN), "a shorter request and an earlier deadline");
    assert_eq!(twin.reschedule(0), Some(1));
}

#[test]
fn a_wakeup_that_does_not_preempt_ends_protection_after_a_slice() {
    let mut twin = busy(&[with_slice(nice(0), 50 * MS), with_slice(nice(0), 60 * MS)]);
    assert_eq!(twin.own(0).protected_until, twin.key(0).deadline);
    let asleep = 1;
    twin.dequeue(asleep, Departure::Sleep);
    twin.now += MS;
    twin.enqueue(asleep, 0, WOKEN);
    assert!(!twin.preempts(asleep, WOKEN));
    let left = (twin.own(0).protected_until - twin.key(0).vruntime).get();
    assert!(left <= 50 * MS as i64);
    assert_eq!(twin.reschedule(0), Some(0));
}

#[test]
fn policies_decide_about_wakeups_before_lag_does() {
    let policy = |policy| TaskParams { policy, ..with_slice(nice(0), 100_000) };
    let long = |policy| TaskParams { policy, ..with_slice(nice(0), 100 * MS) };
    for (running, wakee, arrival, expected) in [
        (Policy::Idle, Policy::Normal, Arrival::Fresh, true),
        (Policy::Idle, Policy::Batch, WOKEN, true),
        (Policy::Idle, Policy::Idle, WOKEN, false),
        (Policy::Normal, Policy::Idle, WOKEN, false),
        (Policy::Normal, Policy::Batch, WOKEN, false),
        (Policy::Batch, Policy::Normal, WOKEN, true),
        (Policy::Normal, Policy::Normal, WOKEN, true),
    ] {
        let mut twin = twin(&[long(running), policy(wakee)]);
        twin.enqueue(0, 0, Arrival::Fresh);
        twin.start(0);
        twin.now += MS;
        twin.enqueue(1, 0, arrival);
        assert_eq!(twin.preempts(1, arrival), expected, "{wakee:?} wakes while {running:?} runs");
    }
}

#[test]
fn a_fork_does_not_preempt_unless_its_requests_are_shorter() {
    for (slice, expected) in [(None, false), (Some(Slice::MIN), true)] {
        let mut twin = twin(&[nice(0), TaskParams { slice, ..nice(0) }]);
        twin.enqueue(0, 0, Arrival::Fresh);
        twin.start(0);
        twin.now += MS;
        twin.enqueue(1, 0, Arrival::Fresh);
        assert_eq!(twin.preempts(1, Arrival::Fresh), expected);
    }
}

#[test]
fn anybody_who_wakes_on_an_idle_queue_runs() {
    let mut twin = twin(&[idle()]);
    twin.enqueue(0, 0, Arrival::Fresh);
    assert!(twin.preempts(0, Arrival::Fresh));
    assert_eq!(twin.reschedule(0), Some(0));
}

#[test]
fn protection_is_over_at_its_very_end_also_for_a_tick() {
    let mut twin = busy(&[nice(0), nice(0)]);
    // At nice 0 virtual time is real time.
    twin.now += (twin.own(0).protected_until - twin.key(0).vruntime).get() as u64;
    // Somebody else charges in the same nanosecond, and the tick has nothing left to charge.
    assert!(twin.charge(0));
    assert_eq!(twin.key(0).vruntime, twin.own(0).protected_until);
    let now = twin.now;
    assert!(twin.sides[0].real.tick(now));
}

#[test]
fn a_shorter_request_preempts_whoever_is_preferred() {
    let mut twin = busy(&[with_slice(nice(0), 50 * MS), with_slice(nice(0), 50 * MS), with_slice(nice(0), 100_000)]);
    twin.set_feature(0, Feature::NextBuddy, true);
    twin.dequeue(1, Departure::Sleep);
    twin.dequeue(2, Departure::Sleep);
    twin.now += MS;
    twin.enqueue(1, 0, WOKEN);
    twin.preempts(1, WOKEN);
    assert!(twin.sides[0].real.members.next_buddy.is_some(), "the buddy is who woke first");
    twin.enqueue(2, 0, WOKEN);
    assert!(twin.preempts(2, WOKEN), "a pick without protection has no preference either");
}

#[test]
fn without_parity_a_wakeup_waits_for_a_base_slice() {
    // In Linux short wake-ups preempted without limit where RUN_TO_PARITY was off: nobody made progress.
    let base = u64::from(Slice::BASE.nanos());
    for (ran, expected) in [(base - 1, false), (base, true)] {
        let mut twin = busy(&[with_slice(nice(0), 40 * MS), with_slice(nice(0), 10 * MS)]);
        // An earlier deadline, and nothing else that would help it.
        twin.set_feature(0, Feature::PreemptShort, false);
        twin.set_feature(0, Feature::RunToParity, false);
        twin.dequeue(1, Departure::Sleep);
        // The rule counts from a pick.
        twin.stop(0);
        twin.start(0);
        twin.now += ran;
        twin.enqueue(1, 0, WOKEN);
        assert_eq!(twin.preempts(1, WOKEN), expected, "after {ran} ns");
    }
}

// Yields.

#[test]
fn a_yield_gives_up_one_request_and_only_if_eligible() {
    // 79104becf42b in Linux: each yield pushed the deadline on.
    let mut twin = busy(&[nice(0), nice(0)]);
    twin.now += 100;
    twin.charge(0);
    twin.stop(0);
    twin.start(1);
    let deadline = twin.key(1).deadline;
    twin.yield_running(0);
    assert_eq!(twin.key(1).vruntime, deadline, "it gave up the rest");
    let (vruntime, deadline) = (twin.key(1).vruntime, twin.key(1).deadline);
    for _ in 0..1000 {
        twin.yield_running(0);
    }
    assert_eq!((twin.key(1).vruntime, twin.key(1).deadline), (vruntime, deadline), "it had nothing left to give up");
    assert_eq!(twin.reschedule(0), Some(0));
}

#[test]
fn a_yield_of_a_lone_entity_costs_nothing() {
    // DragonOS#1894: yield must not add a penalty of its own.
    let mut twin = busy(&[nice(0)]);
    twin.now += 100;
    twin.charge(0);
    let vruntime = twin.key(0).vruntime;
    twin.yield_running(0);
    assert_eq!(twin.key(0).vruntime, vruntime);
}

#[test]
fn a_yield_never_gives_service_back() {
    // 1 waits while 0 runs for a second, and is reweighted when it starts:
    // its lag is held within the limit, and its old deadline lies before its new place.
    let mut twin = busy(&[nice(0), nice(0)]);
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

// Nothing there.

#[test]
fn an_empty_queue_has_nobody_and_no_slice() {
    let mut queue = eevdf(BASE_SLICE, TICK);
    assert_eq!(queue.nr_runnable(), 0);
    assert!(queue.pick(0, |_| ()).is_none());
    assert!(!queue.charge(1000));
    queue.yield_running(2000);
    queue.stop(3000);
    assert_eq!(queue.virtual_time(), VTime::START);
    let there = &queue.members;
    assert_eq!((there.slices.shortest(), there.slices.longest()), (BASE_SLICE, BASE_SLICE));
    assert_eq!(queue.pick_failures(), 0);
}

// What users saw.

#[test]
fn the_weights_are_those_of_who_is_there() {
    // DragonOS#1977: the current entity was subtracted from sums that it was not in.
    let mut twin = busy(&[nice(0), nice(5), nice(-5)]);
    let weights = |twin: &Twin| (twin.sides[0].real.members.weight, twin.sides[0].real.waiting().weight());
    assert_eq!(weights(&twin), (1024 + 335 + 3121, 335 + 3121));
    twin.stop(0);
    assert_eq!(weights(&twin), (1024 + 335 + 3121, 1024 + 335 + 3121));
    twin.start(2);
    assert_eq!(weights(&twin), (1024 + 335 + 3121, 1024 + 335));
    twin.dequeue(2, Departure::Exit);
    assert_eq!(weights(&twin), (1024 + 335, 1024 + 335));
}

#[test]
fn everybody_is_placed_within_its_limit_on_every_path() {
    // deepin-community/kernel#1175: entities were placed far from V, and waited for seconds.
    let within = |twin: &Twin, i: usize, path: &str| {
        let longest = u64::from(twin.sides[twin.home[i].unwrap()].real.members.longest_slice());
        let limit = i128::from(twin.params[i].weight().virtual_time(longest + u64::from(TICK)).get());
        assert!(twin.lag(i).abs() <= limit + 2, "{path}: {} is beyond {limit}", twin.lag(i));
    };
    for mine in [nice(-20), nice(0), nice(19), idle()] {
        for other in [nice(-20), nice(19)] {
            let mut twin = busy(&[mine, other]);
            // Far more than a request at once, as on a CPU whose tick was late.
            twin.now += 500 * MS;
            twin.sleep_at_once(0);
            twin.enqueue(0, 0, WOKEN);
            within(&twin, 0, "wake-up");
            twin.dequeue(0, Departure::Move);
            twin.enqueue(0, 1, Arrival::Moved);
            within(&twin, 0, "move");
            twin.dequeue(0, Departure::Move);
            twin.enqueue(0, 0, Arrival::Moved);
            twin.set_params(0, nice(3));
            within(&twin, 0, "reweight");
        }
    }
}
