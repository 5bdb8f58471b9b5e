//! # What it is
//! What entities get from a queue on a CPU with a tick, against what an ideal machine would give them.
//!
//! # How it works
//! [`Machine`] runs entities that compute, sleep, yield or are reweighted, and keeps the ideal service beside the real one.
//! EEVDF promises that the two never differ by more than a request;
//! a tick adds its length, because a request that is over is only noticed then.
//!
//! # Invariants
//! 1. Nobody is ever ahead of the ideal or behind it by more than its own request, a tick, and the longest request of the queue.
//!    (Where a tick is longer than the requests, the tick is what they last, and everybody else may be late by one.)
//!
//! # Cost
//! A few seconds without optimisation.

use std::{vec, vec::Vec};

use super::machine::{MS, Machine, SECOND, idle, nice, with_slice};
use crate::params::TaskParams;

/// A small source of numbers that look random.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % sides
    }
}

/// I1, for everybody.
fn within_bounds(machine: &Machine) {
    let longest = (0..machine.len()).map(|i| machine.slice(i)).max().unwrap();
    for i in 0..machine.len() {
        let bound = (machine.slice(i) + machine.tick + longest) as i64;
        let ahead = machine.ahead(i);
        assert!(ahead.abs() <= bound, "{i}, {:?}, is ahead by {ahead}, more than {bound}", machine.params(i));
    }
}

fn mixes() -> Vec<Vec<TaskParams>> {
    vec![
        vec![nice(0); 2],
        vec![nice(0); 7],
        vec![nice(0), nice(5)],
        vec![nice(-20), nice(19)],
        vec![nice(0), nice(0), idle(), idle()],
        vec![nice(-20), nice(-20), nice(19), nice(19), idle()],
        (-20..20).map(nice).collect(),
        vec![with_slice(nice(0), 100_000), with_slice(nice(0), 100 * MS), nice(0)],
        vec![with_slice(nice(5), 100_000), with_slice(nice(-5), 100 * MS), with_slice(nice(19), 20 * MS), nice(0)],
        vec![with_slice(nice(-20), 100 * MS), with_slice(nice(19), 100 * MS), with_slice(idle(), 100 * MS)],
    ]
}

/// Runs a mix for `nanos`; `watch` looks after each tick.
fn run_mix(base_slice: u64, hz: u64, mix: &[TaskParams], nanos: u64, watch: impl FnMut(&Machine)) {
    let mut machine = Machine::new(base_slice, hz);
    for &params in mix {
        machine.fork(params);
    }
    machine.reschedule();
    machine.run_watched(nanos, watch);
    machine.queue.charge(machine.now);
    let total: u64 = (0..machine.len()).map(|i| machine.received(i)).sum();
    assert_eq!(total, nanos, "somebody ran all the time");
}

#[test]
fn everybody_gets_a_share_by_weight_within_a_request_and_a_tick() {
    for (hz, base_slice) in [(250, 2_800_000), (300, 2_800_000), (1000, 2_800_000), (1000, 1_400_000), (100, 20 * MS)] {
        for mix in mixes() {
            run_mix(base_slice, hz, &mix, 2 * SECOND, within_bounds);
        }
    }
}

#[test]
fn a_tick_longer_than_the_requests_costs_at_most_a_tick_for_each_of_the_others() {
    for (hz, base_slice) in [(100, 700_000), (100, 2_800_000), (250, 700_000)] {
        for mix in mixes() {
            run_mix(base_slice, hz, &mix, 2 * SECOND, |machine| {
                for i in 0..machine.len() {
                    let bound = (machine.slice(i) + machine.tick * machine.len() as u64) as i64;
                    assert!(machine.ahead(i).abs() <= bound, "{i} is ahead by {}", machine.ahead(i));
                }
            });
        }
    }
}

#[test]
fn nice_0_and_nice_5_share_1024_to_335() {
    let mut machine = Machine::with(&[nice(0), nice(5)]);
    machine.reschedule();
    machine.run_watched(100 * SECOND, within_bounds);
    let share = machine.received(0) as f64 / (100 * SECOND) as f64;
    assert!((share / (1024.0 / 1359.0) - 1.0).abs() < 0.001, "{share}");
    let ratio = machine.received(0) as f64 / machine.received(1) as f64;
    assert!((ratio / (1024.0 / 335.0) - 1.0).abs() < 0.001, "{ratio}");
}

#[test]
fn the_lightest_beside_the_heaviest_gets_its_turns() {
    // KallistiOS/KallistiOS#1295: the lowest of three priorities got no time.
    let mut machine = Machine::with(&[nice(-20), nice(0), nice(19)]);
    machine.reschedule();
    // 15 / 89800 of the time is a tick in 24 s.
    machine.run_watched(100 * SECOND, within_bounds);
    assert!(machine.received(2) >= 3 * machine.tick, "{}", machine.received(2));
}

#[test]
fn sleeping_gains_no_more_than_the_lag_limit() {
    for (sleeper, hog) in
        [(nice(0), nice(0)), (nice(10), nice(0)), (nice(-10), nice(0)), (with_slice(nice(0), 100_000), nice(0))]
    {
        let mut machine = Machine::with(&[sleeper, hog]);
        machine.reschedule();
        let mut dice = Dice(7);
        let limit = (2_800_000 + machine.tick) as i64;
        for _ in 0..2000 {
            machine.run(dice.roll(20) * MS + 1);
            assert!(machine.ahead(0) <= limit, "{sleeper:?} is ahead by {}", machine.ahead(0));
            // It leaves when it has had more than its share, for longer than it would take to make up for it.
            if machine.ahead(0) > 0 {
                machine.sleep(0);
                machine.run(dice.roll(100) * MS + 1);
                machine.wake(0);
            }
        }
    }
}

#[test]
fn tasks_that_sleep_often_still_share_by_weight() {
    // scx#419: virtual time clamped up to now at each wake-up made nice 5 and nice -5 share alike.
    let mut machine = Machine::with(&[nice(-5), nice(5)]);
    machine.reschedule();
    for _ in 0..50_000 {
        machine.run(250_000);
        let Some(running) = machine.running() else { panic!("nobody runs") };
        machine.sleep(running);
        machine.run(10_000);
        machine.wake(running);
    }
    let ratio = machine.received(0) as f64 / machine.received(1) as f64;
    // The light one has the CPU to itself while the heavy one sleeps, a twenty-fifth of the time.
    assert!(ratio > 5.0, "{ratio}, at weights of 9.3 to 1");
}

#[test]
fn a_storm_of_nice_changes_keeps_everybody_within_bounds() {
    // asterinas#2208, asterinas#2235: nice changed in a loop until the arithmetic overflowed.
    let mut machine = Machine::with(&[nice(0); 6]);
    machine.reschedule();
    let mut dice = Dice(1);
    for _ in 0..20_000 {
        let i = dice.roll(6) as usize;
        let params = if dice.roll(10) == 0 { idle() } else { nice(dice.roll(40) as i32 - 20) };
        machine.set_params(i, params);
        machine.run_watched(dice.roll(2 * MS), |machine| {
            for i in 0..machine.len() {
                // A change of others' weights can put anybody behind those again, for a tick each.
                let (most, least) = (2_800_000 + 5 * machine.tick as i64, -(machine.tick as i64));
                let lag = machine.lag(i);
                assert!((least..=most).contains(&lag), "{i} is owed {lag} ns");
            }
        });
    }
}

#[test]
fn changing_nice_back_and_forth_gains_nothing() {
    // Entity 0 makes itself light when it has run and heavy when it waits, each time on a tick's eve.
    let mut machine = Machine::with(&[nice(0); 3]);
    machine.reschedule();
    for round in 0..5000 {
        machine.set_params(0, nice(if round % 2 == 0 { 19 } else { -20 }));
        machine.run_watched(4 * MS - 1, within_bounds);
    }
}

#[test]
fn a_storm_of_yields_neither_starves_nor_favours_the_yielder() {
    // 79104becf42b in Linux: each yield pushed the deadline on, without bound; the yielder was then starved for seconds.
    // scx#3471: a task that yielded was credited as if it had slept, and monopolised the CPU.
    let mut machine = Machine::with(&[nice(0), nice(0), nice(5)]);
    machine.reschedule();
    // Its request, that of each of the others as long as they weigh as much, and ticks for each to be noticed.
    let patience = 3 * (2_800_000 + machine.tick);
    for _ in 0..20_000 {
        if machine.running() == Some(0) {
            machine.run(10_000);
            for _ in 0..3 {
                machine.queue.yield_running(machine.now);
            }
            machine.yield_running();
        } else {
            machine.run(100_000);
        }
        assert!(machine.now - machine.last_pick(0) <= patience, "the yielder waits");
        assert!(machine.ahead(0) <= (2_800_000 + machine.tick) as i64);
    }
    // It stops yielding, and from now on has its share.
    let before = machine.received(0);
    machine.run(10 * SECOND);
    let share = (machine.received(0) - before) as f64 / (10 * SECOND) as f64;
    assert!((share / (1024.0 / 2383.0) - 1.0).abs() < 0.01, "{share}");
}

#[test]
fn yielders_among_themselves_take_turns() {
    let mut machine = Machine::with(&[nice(0); 4]);
    machine.reschedule();
    for _ in 0..40_000 {
        machine.run(1000);
        machine.yield_running();
        assert!(machine.farthest_from_zero() <= 10 * MS as i64);
    }
    for i in 0..4 {
        assert!(machine.received(i).abs_diff(10 * MS) <= 4000, "{i} has had {}", machine.received(i));
    }
}

#[test]
fn a_fresh_task_starves_nobody() {
    // asterinas#1192: a fresh task began far below the others and kept the CPU until it had caught up with them.
    let mut machine = Machine::with(&[nice(0), nice(5), nice(-5)]);
    machine.reschedule();
    machine.run(100 * SECOND);
    let ahead: Vec<i64> = (0..3).map(|i| machine.ahead(i)).collect();
    machine.fork(nice(0));
    machine.run_watched(SECOND, |machine| {
        for (i, &ahead) in ahead.iter().enumerate() {
            let change = machine.ahead(i) - ahead;
            assert!(change.abs() <= 2 * (2 * 2_800_000 + machine.tick) as i64, "{i} is {change} off since the fork");
        }
        within_bounds(machine);
    });
}

#[test]
fn short_requests_do_not_starve_a_long_one() {
    // Wake-ups with shorter requests preempt whatever protection there is; they must live on their share.
    let short = with_slice(nice(0), 100_000);
    let mut machine = Machine::with(&[with_slice(nice(0), 20 * MS), short, short, short, short]);
    machine.reschedule();
    let mut dice = Dice(3);
    for _ in 0..20_000 {
        machine.run(dice.roll(400_000));
        let i = 1 + dice.roll(4) as usize;
        if machine.queued(i) {
            machine.sleep(i);
        } else {
            machine.wake(i);
        }
        let behind = -machine.ahead(0);
        assert!(behind <= (2 * 20 * MS + machine.tick) as i64, "the long one is behind by {behind}");
    }
}

#[test]
fn a_lone_entity_runs_for_days_beside_the_zero_point() {
    // b3d99f43c72b in Linux: with one entity the zero point stood still until the products of the average overflowed.
    for params in [nice(0), nice(-20), nice(19), idle(), with_slice(idle(), 100 * MS)] {
        let mut machine = Machine::with(&[params]);
        machine.reschedule();
        let request = params.weight().virtual_time(machine.slice(0) + machine.tick).get();
        machine.run_watched(40 * SECOND, |machine| {
            assert!(machine.farthest_from_zero() <= request, "{params:?}: {}", machine.farthest_from_zero());
        });
        // A CPU without ticks: nobody looks for an hour at a time.
        for _ in 0..1000 {
            machine.pass(3600 * SECOND);
            machine.tick();
            assert_eq!(machine.farthest_from_zero(), 0, "it has just been charged a whole request");
        }
        // Then it is as fair as ever.
        let other = machine.fork(nice(0));
        let (before, start) = (machine.received(other), machine.now);
        machine.run(SECOND);
        let weights = f64::from(1024 + params.weight().get());
        let ideal = (machine.now - start) as f64 * 1024.0 / weights;
        let error = (machine.received(other) - before) as f64 - ideal;
        assert!(error.abs() <= (2 * machine.slice(0) + machine.tick) as f64, "{params:?}: off by {error}");
    }
}

#[test]
fn a_long_idle_queue_starts_as_it_stopped() {
    let mut machine = Machine::with(&[nice(0), nice(5)]);
    machine.reschedule();
    machine.run(SECOND);
    machine.sleep(0);
    machine.sleep(1);
    let start = machine.virtual_time();
    for _ in 0..100 {
        let v = machine.virtual_time();
        machine.now += 1000 * 3600 * SECOND;
        machine.tick();
        assert_eq!(machine.virtual_time(), v);
        machine.wake(0);
        machine.wake(1);
        machine.reschedule();
        machine.pass(MS);
        machine.sleep(0);
        machine.sleep(1);
        assert!((machine.virtual_time() - start).get() <= 100 * 2 * MS as i64);
    }
}

#[test]
fn a_request_of_the_base_slice_fits_the_tick() {
    // A 3 ms request lasts four ticks of 1 ms; 2.8 ms lasts three, and one of 4 ms.
    for (hz, ticks) in [(1000, 3), (250, 1), (100, 1)] {
        let mut machine = Machine::new(2_800_000, hz);
        machine.fork(nice(0));
        machine.fork(nice(0));
        machine.reschedule();
        machine.run(SECOND);
        let switches = machine.switches;
        machine.run(10 * SECOND);
        assert_eq!(machine.switches - switches, 10 * hz / ticks, "{hz} Hz");
    }
}
