//! # What it is
//! Load tracking against published values, against the definition of its sums, and against what has gone wrong elsewhere.
//!
//! # How it works
//! An entity or a queue is updated in steps of random length; `model` knows the sums without rounding.
//!
//! # Invariants
//! 1. Steps are given in units of 1024 ns unless they are called nanoseconds.
//!
//! # Cost
//! A few hundred steps a case.

mod model;

use super::*;
use crate::weight::Nice;
use model::Model;
use proptest::prelude::*;
use std::vec::Vec;

const PERIOD_NANOS: u64 = PERIOD << UNIT_SHIFT;
const NICE_0: Weight = Weight::NICE_0;

const ABSENT: Input = Input::task(NICE_0, Presence::Absent);
const RUNNING: Input = Input::task(NICE_0, Presence::Running);

/// An entity attached to an empty queue at time 0 with nothing in it.
fn blank() -> Signals {
    Signals::queue()
}

fn step(signals: &mut Signals, units: u64, input: Input) -> bool {
    signals.update(signals.last_update.after(units << UNIT_SHIFT), input)
}

fn averages(signals: &Signals) -> (u64, u64, u64) {
    (signals.load_avg, signals.runnable_avg, signals.util_avg)
}

fn after_periods(signals: &mut Signals, periods: u64, input: Input) -> (u64, u64, u64) {
    for _ in 0..periods {
        assert!(step(signals, PERIOD, input));
    }
    averages(signals)
}

fn floors_hold(queue: &Signals) {
    for (sum, avg) in
        [(queue.load_sum, queue.load_avg), (queue.runnable_sum, queue.runnable_avg), (queue.util_sum, queue.util_avg)]
    {
        assert!(sum >= avg * MIN_DIVIDER, "sum {sum} is too small for {avg}");
    }
}

fn weights() -> impl Strategy<Value = Weight> {
    (-20..20).prop_map(|nice| Weight::of(Nice::new(nice).unwrap()))
}

fn presences() -> impl Strategy<Value = Presence> {
    prop_oneof![
        Just(Presence::Absent),
        Just(Presence::Delayed),
        Just(Presence::Waiting),
        Just(Presence::Running),
        Just(Presence::Running)
    ]
}

/// Steps in units: inside a period, a few periods, many, a whole number of them, and none.
fn steps() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 1..1024u64,
        8 => 1024..8192u64,
        2 => 8192..100_000u64,
        1 => 100_000..3_000_000u64,
        2 => (1..70u64).prop_map(|periods| periods * 1024),
        1 => Just(0)
    ]
}

// Published values.

#[test]
fn powers_are_the_roots_of_a_half_rounded_down() {
    for (n, power) in POWERS.into_iter().enumerate() {
        let exact = (-(n as f64) / 32.0).exp2() * f64::from(u32::MAX);
        assert_eq!(power, exact as u32, "n = {n}");
    }
}

#[test]
fn the_full_sum_is_where_rounding_stops_it() {
    let y = (-1.0f64 / 32.0).exp2();
    let (mut sum, mut periods) = (PERIOD, 0);
    loop {
        let next = (sum as f64 * y) as u64 + PERIOD;
        if next == sum {
            break;
        }
        (sum, periods) = (next, periods + 1);
    }
    assert_eq!(sum, MAX_SUM);
    assert!((340..350).contains(&periods), "reached after {periods} periods");
}

#[test]
fn decay_gives_the_published_values() {
    assert_eq!(Decay::over(33).of(1024), 501);
    assert_eq!(Decay::over(1).of(MAX_SUM), MIN_DIVIDER);
    assert_eq!(Decay::over(2017).of(u64::MAX), 0);
    assert_eq!(Decay::over(2016).of(u64::MAX), 0);
    assert_eq!(Decay::over(64).of(u64::MAX) >> 62, 0);
    assert_eq!(Decay::over(u64::MAX).of(u64::MAX), 0);
}

#[test]
fn an_entity_that_always_runs_has_the_published_averages() {
    let published = [
        (1, (21, 21, 21)),
        (2, (43, 43, 43)),
        (4, (85, 85, 85)),
        (8, (162, 163, 163)),
        (16, (300, 300, 300)),
        (32, (512, 512, 512)),
        (64, (768, 768, 768)),
        (128, (960, 960, 960)),
        (256, (1020, 1020, 1020)),
        (345, (1023, 1024, 1024)),
    ];
    let mut signals = blank();
    let mut passed = 0;
    for (periods, expected) in published {
        assert_eq!(after_periods(&mut signals, periods - passed, RUNNING), expected, "after {periods} periods");
        passed = periods;
    }
    assert_eq!(after_periods(&mut signals, 32, ABSENT), (511, 512, 512));
    assert_eq!(after_periods(&mut signals, 32, ABSENT), (255, 256, 256));
}

#[test]
fn half_of_the_time_settles_at_506() {
    let mut signals = blank();
    for _ in 0..500 {
        after_periods(&mut signals, 1, RUNNING);
        after_periods(&mut signals, 1, ABSENT);
    }
    assert_eq!(signals.util_avg, 506);
}

#[test]
fn the_longest_idle_leaves_nothing_and_overflows_nothing() {
    for idle in [2016 * PERIOD_NANOS, 2017 * PERIOD_NANOS, 1 << 40, 1 << 62, i64::MAX as u64] {
        let mut signals = blank();
        signals.update(PeltTime(345 * PERIOD_NANOS), Input::queue(1 << 30, 10_000, Some(&())));
        let before = signals.last_update;
        assert!(signals.update(before.after(idle), Input::queue::<()>(0, 0, None)));
        assert!(signals.is_decayed(), "{signals:?}");
        assert_eq!(averages(&signals), (0, 0, 0));
        assert!(signals.period_contrib < 1024);
        assert!((0..1024).contains(&before.after(idle).since(signals.last_update)));
    }
    // As long, but busy.
    let mut signals = blank();
    assert!(signals.update(PeltTime(i64::MAX as u64), RUNNING));
    assert_eq!(averages(&signals), (1024, 1024, 1024));
}

// Bounds and convergence.

#[test]
fn a_busy_entity_rises_to_full_and_stays() {
    let mut signals = blank();
    let mut last = (0, 0, 0);
    for _ in 0..2000 {
        let now = after_periods(&mut signals, 1, RUNNING);
        assert!(now.0 >= last.0 && now.1 >= last.1 && now.2 >= last.2, "{last:?} -> {now:?}");
        last = now;
    }
    assert_eq!(last, (1023, 1024, 1024));
}

/// I2 names 1025 and not 1024, because this happens: updates a period apart, 44 units into each,
/// where the decayed rest of the old period is all but whole and loses nothing to rounding.
#[test]
fn util_may_stand_one_above_full() {
    let mut signals = blank();
    step(&mut signals, 44, RUNNING);
    let (load, _, util) = after_periods(&mut signals, 2000, RUNNING);
    assert_eq!((load, util), (1024, 1025));
    assert_eq!(signals.cpu_util(Capacity::FULL), 1024);

    // No other phase or distance stands higher.
    for periods in 1..40 {
        for phase in 0..1024 {
            let mut signals = blank();
            step(&mut signals, 400 * PERIOD + phase, RUNNING);
            for _ in 0..600 / periods {
                step(&mut signals, periods * PERIOD, RUNNING);
            }
            assert!(signals.load_avg <= 1024 && signals.util_avg <= 1025, "{periods} {phase} {signals:?}");
        }
    }
}

#[test]
fn time_below_a_unit_is_kept_for_the_next_update() {
    let mut signals = blank();
    assert!(!signals.update(PeltTime(1023), RUNNING));
    assert_eq!(signals.last_update, PeltTime(0));
    assert!(!signals.update(PeltTime(1024 + 1000), RUNNING));
    assert_eq!((signals.last_update, signals.load_sum, signals.period_contrib), (PeltTime(1024), 1, 1));
    assert!(!signals.update(PeltTime(2048), RUNNING));
    assert_eq!((signals.load_sum, signals.util_sum), (2, 2048));
}

#[test]
fn each_presence_counts_for_what_it_is() {
    for (presence, sums) in [
        (Presence::Absent, (0, 0, 0)),
        (Presence::Delayed, (100, 0, 0)),
        (Presence::Waiting, (100, 102_400, 0)),
        (Presence::Running, (100, 102_400, 102_400)),
    ] {
        let mut signals = blank();
        step(&mut signals, 100, Input::task(NICE_0, presence));
        assert_eq!((signals.load_sum, signals.runnable_sum, signals.util_sum), sums, "{presence:?}");
    }
    // A queue without load counts nothing, whatever it is told.
    let mut queue = blank();
    step(&mut queue, 5000, Input::queue(0, 3, Some(&())));
    assert!(queue.is_decayed());
}

proptest! {
    /// I1, I2, I6: the definition of the sums, and the bounds.
    #[test]
    fn an_entity_follows_the_exact_sums(
        weight in weights(),
        moves in prop::collection::vec((steps(), presences()), 1..200),
    ) {
        let mut signals = blank();
        let mut model = Model::default();
        for (units, presence) in moves {
            let input = Input::task(weight, presence);
            let before = signals;
            let partial = model.partial();
            model.pass(units, [input.load as f64, f64::from(input.runnable), f64::from(input.running)]);
            let passed = step(&mut signals, units, input);
            prop_assert_eq!(passed, partial + units >= PERIOD);
            prop_assert_eq!(u64::from(signals.period_contrib), model.partial());
            if !passed {
                prop_assert_eq!(averages(&before), averages(&signals));
            }
            prop_assert!(signals.load_sum <= signals.divider());
            prop_assert!(signals.load_avg <= u64::from(weight.get()));
            prop_assert!(signals.runnable_avg <= 1025 && signals.util_avg <= 1025);

            let exact = model.sums();
            let sums = [signals.load_sum as f64, signals.runnable_sum as f64 / 1024.0, signals.util_sum as f64 / 1024.0];
            for (sum, exact) in sums.into_iter().zip(exact) {
                prop_assert!((sum - exact).abs() <= 140.0, "{} for {}", sum, exact);
            }
            if passed {
                let divider = signals.divider() as f64;
                for (avg, exact) in [(signals.runnable_avg, exact[1]), (signals.util_avg, exact[2])] {
                    prop_assert!((avg as f64 - 1024.0 * exact / divider).abs() <= 4.0);
                }
                let exact = f64::from(weight.get()) * exact[0] / divider;
                let bound = 1.0 + f64::from(weight.get()) * 4.0 / 1024.0;
                prop_assert!((signals.load_avg as f64 - exact).abs() <= bound);
            }
        }
    }

    /// I6 for queues: the bound grows with what was counted, and by nothing else.
    #[test]
    fn a_queue_follows_the_exact_sums(
        moves in prop::collection::vec((steps(), 0..5_000_000u64, 0..500u32, any::<bool>()), 1..150),
    ) {
        let mut queue = blank();
        let mut model = Model::default();
        let (mut most_load, mut most_runnable) = (0u64, 0u32);
        for (units, load, runnable, running) in moves {
            let (runnable, running) = if load == 0 { (0, false) } else { (runnable, running) };
            (most_load, most_runnable) = (most_load.max(load), most_runnable.max(runnable));
            model.pass(units, [load as f64, f64::from(runnable), f64::from(u8::from(running))]);
            step(&mut queue, units, Input::queue(load, runnable, running.then_some(&())));
            let exact = model.sums();
            prop_assert!((queue.load_sum as f64 - exact[0]).abs() <= 140.0 * most_load as f64);
            prop_assert!((queue.runnable_sum as f64 / 1024.0 - exact[1]).abs() <= 140.0 * f64::from(most_runnable));
            prop_assert!((queue.util_sum as f64 / 1024.0 - exact[2]).abs() <= 140.0);
        }
    }

    /// A queue is the sum of its entities, as long as both see the same updates: within one of 1024 per entity
    /// for runnable and util, and within that, and a 250th of all weights, for load.
    #[test]
    fn a_queue_is_the_sum_of_its_entities(
        weights in prop::collection::vec(weights(), 1..12),
        moves in prop::collection::vec((steps(), any::<u32>(), 0..16usize), 1..200),
    ) {
        let mut queue = Signals::queue();
        let mut entities: Vec<_> = weights
            .iter()
            .map(|&weight| {
                let mut entity = Signals::task(weight);
                queue.attach(&mut entity, weight);
                entity
            })
            .collect();
        let all: u64 = weights.iter().map(|weight| u64::from(weight.get())).sum();
        for (units, queued, current) in moves {
            let presence = |i: usize| match queued >> (2 * i) & 3 {
                0 => Presence::Absent,
                1 => Presence::Delayed,
                _ if i == current => Presence::Running,
                _ => Presence::Waiting,
            };
            let inputs: Vec<_> = weights.iter().enumerate().map(|(i, &weight)| Input::task(weight, presence(i))).collect();
            let input = Input::queue(
                inputs.iter().map(|input| input.load * u64::from(input.weight)).sum(),
                inputs.iter().map(|input| input.runnable).sum(),
                inputs.iter().find(|input| input.running == 1),
            );
            for (entity, input) in entities.iter_mut().zip(inputs) {
                step(entity, units, input);
            }
            step(&mut queue, units, input);
            for entity in &entities {
                prop_assert_eq!(entity.last_update, queue.last_update);
                prop_assert_eq!(entity.period_contrib, queue.period_contrib);
            }
            let sum = |of: fn(&Signals) -> u64| entities.iter().map(of).sum::<u64>();
            let n = entities.len() as u64;
            prop_assert!(queue.load_avg.abs_diff(sum(Signals::load_avg)) <= n + all / 250);
            prop_assert!(queue.runnable_avg.abs_diff(sum(Signals::runnable_avg)) <= n);
            prop_assert!(queue.util_avg.abs_diff(sum(Signals::util_avg)) <= n);
        }
    }

    /// I5: what a clock that steps back does.
    #[test]
    fn a_step_back_is_ignored(
        moves in prop::collection::vec((steps(), presences()), 1..50),
        back in 1..u64::from(u32::MAX),
    ) {
        let mut signals = blank();
        signals.last_update = PeltTime(1 << 40);
        for (units, presence) in moves {
            step(&mut signals, units, Input::task(NICE_0, presence));
        }
        let (before, earlier) = (signals, PeltTime(signals.last_update.nanos() - back));
        prop_assert!(!signals.update(earlier, RUNNING));
        prop_assert_eq!(signals, Signals { last_update: earlier, ..before });
        // Time goes on from there.
        step(&mut signals, 1, RUNNING);
        prop_assert_eq!(signals.last_update, earlier.after(1024));
    }

    /// I3, I4: tasks come and go in every way, for long.
    #[test]
    fn coming_and_going_leaves_no_debt(
        weights in prop::collection::vec((weights(), weights()), 2..8),
        moves in prop::collection::vec((steps(), 0..8usize, 0..5u8), 1..200),
    ) {
        let mut queue = Signals::queue();
        let mut tasks: Vec<_> = weights.iter().map(|&(weight, _)| (Signals::task(weight), weight)).collect();
        for (units, index, action) in moves {
            let runs = index % tasks.len();
            let now = queue.last_update.after(units << UNIT_SHIFT);
            let load = tasks.iter().filter(|(task, _)| task.is_attached()).map(|(_, weight)| u64::from(weight.get())).sum();
            let runnable = tasks.iter().filter(|(task, _)| task.is_attached()).count() as u32;
            let current = tasks[runs].0.is_attached().then_some(&());
            for (i, (task, weight)) in tasks.iter_mut().enumerate().filter(|(_, (task, _))| task.is_attached()) {
                task.update(now, Input::task(*weight, if i == runs { Presence::Running } else { Presence::Waiting }));
            }
            queue.update(now, Input::queue(load, runnable, current));
            let (task, weight) = &mut tasks[runs];
            match (action, task.is_attached()) {
                (_, false) => {
                    task.guess(*weight, &queue, Capacity::FULL);
                    queue.attach(task, *weight);
                }
                (0 | 1, true) => {
                    queue.detach(task, *weight);
                    floors_hold(&queue);
                }
                (2, true) => {
                    let new = if *weight == weights[runs].0 { weights[runs].1 } else { weights[runs].0 };
                    queue.reweight(task, *weight, new);
                    *weight = new;
                }
                (_, true) => {
                    let mut removed = Removed::default();
                    task.leave(queue.last_update, 0, *weight, &mut removed);
                    queue.remove(removed);
                    floors_hold(&queue);
                }
            }
            prop_assert!(queue.load_sum != 0 || queue.load_avg == 0);
        }
        for (mut task, weight) in tasks {
            if task.is_attached() {
                queue.detach(&mut task, weight);
            }
        }
        floors_hold(&queue);
        queue.update(queue.last_update.after(1 << 50), Input::queue::<()>(0, 0, None));
        prop_assert!(queue.is_decayed() && averages(&queue) == (0, 0, 0));
    }
}

// New tasks, attaching, leaving.

fn busy_queue(util_avg: u64, load_avg: u64) -> Signals {
    Signals { util_avg, load_avg, ..Signals::queue() }
}

#[test]
fn a_new_task_is_guessed_from_its_queue() {
    let nice_5 = Weight::of(Nice::new(5).unwrap());
    for (weight, util, load, capacity, expected) in [
        // Nothing known: half of the CPU.
        (NICE_0, 0, 0, 1024, 512),
        (NICE_0, 0, 0, 400, 200),
        // As much per weight as the others.
        (NICE_0, 300, 2047, 1024, 150),
        (NICE_0, 300, 1200, 1024, 255),
        (nice_5, 300, 1023, 1024, 98),
        // At most half of what is free.
        (NICE_0, 800, 1023, 1024, 112),
        // Nothing is free.
        (NICE_0, 1024, 1023, 1024, 0),
        (NICE_0, 1023, 1023, 1024, 0),
        (NICE_0, 600, 1023, 500, 0),
    ] {
        let mut task = Signals::task(weight);
        assert_eq!(averages(&task), (u64::from(weight.get()), 0, 0));
        assert!(!task.is_attached());
        task.guess(weight, &busy_queue(util, load), Capacity::new(capacity));
        assert_eq!(averages(&task), (u64::from(weight.get()), expected, expected));
    }
    assert_eq!(averages(&Signals::group()), (0, 0, 0));
}

#[test]
fn a_crowd_of_new_tasks_does_not_fill_the_cpu_on_paper() {
    let mut queue = Signals::queue();
    let utils: Vec<_> = (0..4)
        .map(|_| {
            let mut task = Signals::task(NICE_0);
            task.guess(NICE_0, &queue, Capacity::FULL);
            queue.attach(&mut task, NICE_0);
            task.util_avg
        })
        .collect();
    assert_eq!(utils, [512, 256, 128, 64]);
    assert_eq!(queue.util_avg, 960);
}

#[test]
fn attaching_rebuilds_the_sums_in_the_queues_time() {
    let mut queue = Signals::queue();
    step(&mut queue, 5 * PERIOD + 300, Input::queue(3000, 2, Some(&())));
    let mut task = Signals { load_avg: 700, runnable_avg: 500, util_avg: 400, ..Signals::task(NICE_0) };
    let before = queue;
    queue.attach(&mut task, NICE_0);
    let divider = 46_718 + 300;
    assert_eq!((task.last_update, task.period_contrib), (queue.last_update, 300));
    assert_eq!(task.load_sum, 700 * divider / 1024);
    assert_eq!((task.runnable_sum, task.util_sum), (500 * divider, 400 * divider));
    assert_eq!(queue.load_avg, before.load_avg + 700);
    assert_eq!(queue.load_sum, before.load_sum + 1024 * task.load_sum);
    assert_eq!(queue.util_sum, before.util_sum + task.util_sum);

    // And detaching takes out the same.
    queue.detach(&mut task, NICE_0);
    assert_eq!(averages(&queue), averages(&before));
    assert!(!task.is_attached());
    assert_eq!(averages(&task), (700, 500, 400));

    // A task with no load left has a sum of at least 1.
    let mut task = Signals { load_avg: 0, ..Signals::task(NICE_0) };
    queue.attach(&mut task, NICE_0);
    assert_eq!(task.load_sum, 1);
}

#[test]
fn a_new_weight_moves_the_queue_by_the_difference() {
    let (old, new) = (NICE_0, Weight::of(Nice::new(-5).unwrap()));
    let mut queue = Signals::queue();
    let mut task = Signals::task(old);
    queue.attach(&mut task, old);
    assert_eq!(queue.load_avg, 1024);
    queue.reweight(&mut task, old, new);
    assert_eq!((task.load_avg, queue.load_avg), (3121, 3121));
    assert_eq!(queue.load_sum, 3121 * task.load_sum);
    queue.reweight(&mut task, new, old);
    queue.detach(&mut task, old);
    assert_eq!((queue.load_avg, queue.load_sum), (0, 0));
}

#[test]
fn a_sleeper_that_wakes_elsewhere_takes_its_decayed_share_along() {
    let mut queue = Signals::queue();
    let mut stays = Signals::task(NICE_0);
    let mut goes = Signals::task(NICE_0);
    queue.attach(&mut stays, NICE_0);
    queue.attach(&mut goes, NICE_0);
    // Both run in turns, then one sleeps for 32 periods while the queue goes on.
    for i in 0..200 {
        let (a, b) =
            if i % 2 == 0 { (Presence::Running, Presence::Waiting) } else { (Presence::Waiting, Presence::Running) };
        step(&mut stays, PERIOD, Input::task(NICE_0, a));
        step(&mut goes, PERIOD, Input::task(NICE_0, b));
        step(&mut queue, PERIOD, Input::queue(2048, 2, Some(&())));
    }
    for _ in 0..32 {
        step(&mut stays, PERIOD, RUNNING);
        step(&mut queue, PERIOD, Input::queue(1024, 1, Some(&())));
    }
    let awake = goes.util_avg;
    let mut removed = Removed::default();
    goes.leave(queue.last_update(), 0, NICE_0, &mut removed);
    assert!(!goes.is_attached());
    assert!(goes.util_avg.abs_diff(awake / 2) <= 1);
    assert_eq!(removed.util_avg, goes.util_avg);
    queue.remove(removed);
    assert!(queue.load_avg.abs_diff(stays.load_avg) <= 4, "{queue:?} {stays:?}");
    assert!(queue.util_avg.abs_diff(stays.util_avg) <= 2);
    assert!(queue.runnable_avg.abs_diff(stays.runnable_avg) <= 2);
    // It arrives with what it left with.
    let mut other = Signals::queue();
    other.attach(&mut goes, NICE_0);
    assert_eq!(averages(&other), averages(&goes));
}

// What went wrong elsewhere.

/// The part of the present period still to come was divided by as if it were idle: a busy loop swung between 1002 and 1024.
#[test]
fn a_busy_loop_does_not_swing_with_the_phase_of_the_period() {
    for units in [1, 97, 250, 500, 976, 1000, 1023, 1025, 3907] {
        let mut signals = blank();
        step(&mut signals, 2000 * PERIOD, RUNNING);
        for i in 0..3000 {
            step(&mut signals, units, RUNNING);
            let (load, runnable, util) = averages(&signals);
            assert!(
                (1022..=1024).contains(&load) && (1023..=1025).contains(&runnable) && (1023..=1025).contains(&util),
                "update {i} of {units} units: {load} {runnable} {util}"
            );
        }
    }
}

/// Many tasks left; their sums had been rounded up, their averages down: a sum of 0 stood beside an average above 0.
#[test]
fn a_sum_never_falls_below_what_its_average_needs() {
    let mut queue = Signals::queue();
    let mut tasks: Vec<_> = (0..64)
        .map(|i| {
            let mut task = Signals { util_avg: 17 + i, runnable_avg: 29 + i, load_avg: 3 * i, ..Signals::task(NICE_0) };
            queue.attach(&mut task, NICE_0);
            task
        })
        .collect();
    step(&mut queue, 777, Input::queue::<()>(0, 0, None));
    for (i, task) in tasks.iter_mut().enumerate() {
        // Each was updated at a step of its own, so each was rounded differently.
        step(task, i as u64 * 12 + 10, RUNNING);
        queue.detach(task, NICE_0);
        floors_hold(&queue);
    }
    let mut queue = Signals { util_avg: 3, util_sum: 3 * MIN_DIVIDER + 50, ..Signals::queue() };
    let mut task = Signals { util_avg: 2, util_sum: 3 * MIN_DIVIDER + 100, ..Signals::queue() };
    queue.detach(&mut task, NICE_0);
    assert_eq!((queue.util_avg, queue.util_sum), (1, MIN_DIVIDER));
}

/// More was removed than the queue knew of: its load became an enormous number.
#[test]
fn removing_more_than_there_is_stops_at_zero() {
    let mut queue = Signals::queue();
    let mut task = Signals { util_avg: 200, runnable_avg: 300, ..Signals::task(NICE_0) };
    queue.attach(&mut task, NICE_0);
    let mut removed = Removed { load_avg: 1, runnable_avg: 1, util_avg: 1 };
    task.leave(queue.last_update(), 0, NICE_0, &mut removed);
    assert_eq!(removed, Removed { load_avg: 1025, runnable_avg: 301, util_avg: 201 });
    queue.remove(removed);
    assert!(queue.is_decayed());
    assert_eq!(averages(&queue), (0, 0, 0));
    queue.add_estimate(&Signals { util_est: 5, ..task });
    queue.subtract_estimate(&Signals { util_est: 9, ..task });
    assert_eq!(queue.util_est(), 0);
}

/// The last task left, and what it had contributed stayed for ever.
#[test]
fn after_the_last_task_a_queue_decays_to_nothing() {
    enum Way {
        Detached,
        Removed,
        Sleeps,
    }
    for way in [Way::Detached, Way::Removed, Way::Sleeps] {
        let mut queue = Signals::queue();
        let mut task = Signals::task(NICE_0);
        queue.attach(&mut task, NICE_0);
        for _ in 0..100 {
            step(&mut task, 3907, RUNNING);
            step(&mut queue, 3907, Input::queue(1024, 1, Some(&())));
        }
        assert!(queue.util_avg > 1000);
        let mut removed = Removed::default();
        match way {
            Way::Detached => queue.detach(&mut task, NICE_0),
            Way::Removed => task.leave(queue.last_update(), 0, NICE_0, &mut removed),
            Way::Sleeps => {}
        }
        queue.remove(removed);
        if !task.is_attached() {
            // Also after a refresh: the sums are gone, and not only the averages.
            for _ in 0..2 {
                assert!(queue.util_avg <= 2 && queue.runnable_avg <= 2 && queue.load_avg <= 5, "{queue:?}");
                step(&mut queue, PERIOD, Input::queue::<()>(0, 0, None));
            }
        }
        // Whether it was taken out or went to sleep and never came back: it ends, in many small steps as in a big one.
        let mut at_once = queue;
        step(&mut at_once, 1000 * PERIOD, Input::queue::<()>(0, 0, None));
        assert!(at_once.is_decayed() && averages(&at_once) == (0, 0, 0));
        for _ in 0..20_000 {
            step(&mut queue, 100, Input::queue::<()>(0, 0, None));
        }
        assert!(queue.is_decayed() && averages(&queue) == (0, 0, 0), "{queue:?}");
    }
}

/// I7. The mark lay in bit 0, where it was part of the number: estimates were one too high, and their sum by one a task.
#[test]
fn the_mark_of_an_estimate_is_no_part_of_it() {
    let mut queue = Signals::queue();
    let mut task = Signals { util_avg: 300, ..Signals::queue() };
    task.note_sleep();
    assert_eq!(task.util_est(), 300);
    assert_eq!(task.util_est, 300 | 1 << 31);
    for _ in 0..3 {
        queue.add_estimate(&task);
    }
    assert_eq!((queue.util_est(), queue.util_est), (900, 900));
    assert_eq!(queue.cpu_util(Capacity::FULL), 900);
    for _ in 0..3 {
        queue.subtract_estimate(&task);
    }
    assert_eq!(queue.util_est, 0);
    // A refresh takes the mark away, and nothing else.
    step(&mut task, PERIOD, RUNNING);
    assert_eq!(task.util_est, 300);
}

// The estimate.

#[test]
fn an_estimate_rises_at_once_and_falls_by_a_quarter() {
    let asleep = |estimate, util_avg, runnable_avg| {
        let mut task = Signals { util_est: estimate, util_avg, runnable_avg, ..Signals::queue() };
        task.note_sleep();
        assert_ne!(task.util_est & ESTIMATE_IS_CURRENT, 0);
        task.util_est()
    };
    assert_eq!(asleep(0, 0, 0), 0);
    assert_eq!(asleep(100, 500, 900), 500);
    assert_eq!(asleep(500, 500, 500), 500);
    assert_eq!(asleep(500, 491, 491), 500, "within the margin");
    assert_eq!(asleep(500, 490, 490), 497);
    assert_eq!(asleep(500, 100, 100), 400);
    assert_eq!(asleep(500, 100, 110), 400);
    assert_eq!(asleep(500, 100, 111), 500, "starved, not small");

    // Sleeping again before util was refreshed tells nothing new.
    let mut task = Signals { util_est: 500, util_avg: 100, runnable_avg: 100, ..Signals::queue() };
    for _ in 0..5 {
        task.note_sleep();
        assert_eq!(task.util_est(), 400);
    }
    task.util_est = 500 | ESTIMATE_IS_CURRENT;
    task.util_avg = 900;
    task.note_sleep();
    assert_eq!(task.util_est(), 500);
}

#[test]
fn a_cpus_util_is_the_greater_of_used_and_expected_and_is_capped() {
    let queue = |util_avg, util_est| Signals { util_avg, util_est, ..Signals::queue() };
    assert_eq!(queue(300, 200).cpu_util(Capacity::FULL), 300);
    assert_eq!(queue(300, 400).cpu_util(Capacity::FULL), 400);
    assert_eq!(queue(300, 2000).cpu_util(Capacity::FULL), 1024);
    assert_eq!(queue(700, 600).cpu_util(Capacity::new(512)), 512);
}

// The clock.

#[test]
fn the_clock_runs_at_the_speed_of_the_machine() {
    let mut clock = PeltClock::new(1000);
    assert_eq!(clock.now(), PeltTime(1000));
    clock.advance(1 << 20, Capacity::FULL, Capacity::FULL);
    assert_eq!(clock.now().nanos(), 1000 + (1 << 20));
    clock.advance(1 << 20, Capacity::new(512), Capacity::new(256));
    assert_eq!(clock.now().nanos(), 1000 + (1 << 20) + (1 << 17));
    clock.advance(1 << 60, Capacity::new(2000), Capacity::new(1023));
    assert_eq!(clock.now().nanos(), 1000 + (1 << 20) + (1 << 17) + (1023 << 50));
}

#[test]
fn an_idle_cpu_gives_the_time_back_that_a_slow_one_took() {
    let mut clock = PeltClock::new(0);
    let mut queue = Signals::queue();
    let half = Capacity::new(512);
    clock.advance(40_000_000, half, Capacity::FULL);
    queue.update(clock.now(), Input::queue(1024, 1, Some(&())));
    assert_eq!(clock.now().nanos(), 20_000_000);
    clock.go_idle(40_000_000, 40_000_500, &queue);
    assert_eq!((clock.now().nanos(), clock.lost_idle_time()), (40_000_000, 0));
    clock.advance_idle(50_000_000);
    assert_eq!(clock.now().nanos(), 50_000_000);
    // Nobody advances it, and somebody asks.
    assert_eq!(clock.while_idle(40_000_500 + 7), PeltTime(40_000_007));
    assert_eq!(clock.while_idle(30_000_000), PeltTime(40_000_000));
    // A task clock that steps back does not take it along.
    clock.advance_idle(45_000_000);
    assert_eq!(clock.now().nanos(), 50_000_000);
}

#[test]
fn a_saturated_cpu_had_no_idle_time_to_give() {
    let mut clock = PeltClock::new(0);
    let mut queue = Signals::queue();
    let half = Capacity::new(512);
    for _ in 0..1000 {
        clock.advance(4_000_000, half, Capacity::FULL);
        queue.update(clock.now(), Input::queue(1024, 1, Some(&())));
    }
    let shown = clock.now();
    assert_eq!(shown.nanos(), 2_000_000_000);
    clock.go_idle(4_000_000_000, 4_000_000_000, &queue);
    assert_eq!((clock.now(), clock.lost_idle_time()), (shown, 2_000_000_000));
    // From here it keeps its distance.
    clock.advance_idle(4_100_000_000);
    assert_eq!(clock.now().nanos(), 2_100_000_000);
    clock.advance(1_000_000, Capacity::FULL, Capacity::FULL);
    assert_eq!(clock.now().nanos(), 2_101_000_000);
    assert_eq!(clock.while_idle(4_000_000_009).nanos(), 2_000_000_009);
}

proptest! {
    /// Clock I1, I2, I3: it never steps back, never leads, and is behind by what was lost after each snap.
    #[test]
    fn the_clock_never_steps_back_and_never_leads(
        moves in prop::collection::vec((0..50_000_000u64, 1..=1024u16, 1..=1024u16, 0..3u8), 1..300),
    ) {
        let (mut task_clock, mut clock, mut queue) = (0, PeltClock::new(0), Signals::queue());
        let mut last = 0;
        for (delta, capacity, frequency, what) in moves {
            task_clock += delta;
            if what > 0 {
                clock.advance(delta, Capacity::new(capacity), Capacity::new(frequency));
                queue.update(clock.now(), Input::queue(1024, 1, Some(&())));
            }
            if what < 2 {
                clock.go_idle(task_clock, task_clock, &queue);
                prop_assert_eq!(clock.now().nanos() + clock.lost_idle_time(), task_clock);
                prop_assert_eq!(clock.while_idle(task_clock + delta).nanos(), clock.now().nanos() + delta);
                queue.update(clock.now(), Input::queue::<()>(0, 0, None));
            }
            let now = clock.now().nanos();
            prop_assert!(last <= now && now <= task_clock);
            last = now;
        }
    }
}
