//! Load tracking, as it is seen from outside.

use sched_core::{CpuId, Feature, Spawn};

use crate::machine::{MS, Machine, TICK, machine, nice};

fn util(m: &Machine, cpu: u32) -> u64 {
    m.load(CpuId(cpu)).util_avg()
}

fn run(m: &Machine, cpu: u32, ticks: u32) {
    for _ in 0..ticks {
        m.advance(TICK);
        m.cpu(cpu).tick();
        m.cpu(cpu).leave_interrupt();
    }
}

#[test]
fn a_busy_cpu_is_used_in_full_and_an_idle_one_forgets() {
    let m = machine(1);
    let _task = m.cpu(0).spawn("task");
    m.cpu(0).leave_interrupt();
    run(&m, 0, 250);
    assert!((1022..=1025).contains(&util(&m, 0)), "{}", util(&m, 0));
    assert!((1022..=1025).contains(&m.load(CpuId(0)).load_avg()));
    m.cpu(0).block();
    // 32 periods of 1.048576 ms halve it.
    m.advance(33_554_432);
    assert!((505..=515).contains(&util(&m, 0)), "{}", util(&m, 0));
    m.advance(3_000 * MS);
    assert_eq!(util(&m, 0), 0);
}

#[test]
fn two_tasks_halve_the_use_of_each_and_load_the_cpu_twice() {
    let m = machine(1);
    let (a, b) = (m.cpu(0).spawn("a"), m.cpu(0).spawn("b"));
    m.cpu(0).leave_interrupt();
    run(&m, 0, 500);
    let (a, b) = (m.load_of(&a).unwrap(), m.load_of(&b).unwrap());
    for one in [a, b] {
        assert!((430..=600).contains(&one.util_avg()), "{one:?}");
        assert!((1010..=1024).contains(&one.load_avg()), "{one:?}");
    }
    let all = m.load(CpuId(0));
    assert!((2030..=2050).contains(&all.load_avg()) && (2030..=2050).contains(&all.runnable_avg()), "{all:?}");
}

#[test]
fn load_counts_weight() {
    let m = machine(1);
    let task = m.cpu(0).spawn("task");
    m.cpu(0).leave_interrupt();
    run(&m, 0, 250);
    m.cpu(0).set_params(&task, nice(5)).unwrap();
    m.cpu(0).leave_interrupt();
    assert!((330..=336).contains(&m.load(CpuId(0)).load_avg()), "{:?}", m.load(CpuId(0)));
    run(&m, 0, 1);
    assert!((330..=336).contains(&m.load_of(&task).unwrap().load_avg()));
}

#[test]
fn a_task_that_wakes_elsewhere_takes_its_load_along() {
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    run(&m, 0, 250);
    m.cpu(0).block();
    m.cpu(0).set_affinity(&task, &[1]).unwrap();
    m.cpu(0).wake(&task);
    m.cpu(1).leave_interrupt();
    assert!(util(&m, 0) < 20, "{}", util(&m, 0));
    assert!((1000..=1025).contains(&util(&m, 1)), "{}", util(&m, 1));
}

#[test]
fn a_task_that_is_moved_takes_its_load_along() {
    let m = machine(2);
    let (_stays, moves) = (m.cpu(0).spawn_on("stays", &[0]), m.cpu(0).spawn_on("moves", &[0]));
    m.cpu(0).leave_interrupt();
    run(&m, 0, 250);
    assert!(m.load(CpuId(0)).load_avg() > 2000);
    m.cpu(1).set_affinity(&moves, &[1]).unwrap();
    m.cpu(0).leave_interrupt();
    assert!((1000..=1045).contains(&m.load(CpuId(0)).load_avg()), "{:?}", m.load(CpuId(0)));
    assert!((1000..=1045).contains(&m.load(CpuId(1)).load_avg()), "{:?}", m.load(CpuId(1)));
}

#[test]
fn a_sleep_on_an_idle_cpu_takes_as_much_of_the_load_as_one_on_a_busy_cpu() {
    // 32 periods of 1024 * 1024 ns.
    let half_life = 33_554_432;
    for (nanos, expected) in [(0, 1000..=1025), (half_life, 500..=515), (1000 * MS, 0..=5)] {
        let m = machine(2);
        let task = m.cpu(0).spawn_on("task", &[0]);
        m.cpu(0).leave_interrupt();
        run(&m, 0, 250);
        m.cpu(0).block();
        m.advance(nanos);
        m.cpu(1).set_affinity(&task, &[1]).unwrap();
        m.cpu(1).wake(&task);
        let load = m.load_of(&task).unwrap();
        assert!(expected.contains(&load.load_avg()) && expected.contains(&load.util_avg()), "{nanos}: {load:?}");
        assert!(util(&m, 0) < 20, "{} is left behind", util(&m, 0));
    }
}

#[test]
fn a_task_that_is_moved_is_not_taken_for_a_new_one() {
    let m = machine(2);
    let (_stays, moves) = (m.cpu(0).spawn_on("stays", &[0]), m.cpu(0).spawn_on("moves", &[0]));
    m.cpu(0).leave_interrupt();
    run(&m, 0, 250);
    let before = m.load_of(&moves).unwrap();
    m.cpu(1).set_affinity(&moves, &[1]).unwrap();
    m.cpu(0).leave_interrupt();
    let after = m.load_of(&moves).unwrap();
    assert_eq!((after.util_avg(), after.runnable_avg()), (before.util_avg(), before.runnable_avg()));
}

#[test]
fn a_task_that_ends_leaves_nothing() {
    let m = machine(1);
    let _task = m.cpu(0).spawn("task");
    m.cpu(0).leave_interrupt();
    run(&m, 0, 250);
    m.cpu(0).exit();
    assert!(m.load(CpuId(0)).load_avg() < 20, "{:?}", m.load(CpuId(0)));
}

#[test]
fn the_estimate_is_that_of_who_is_awake() {
    let m = machine(1);
    let task = m.cpu(0).spawn("task");
    m.cpu(0).leave_interrupt();
    run(&m, 0, 250);
    m.cpu(0).block();
    assert_eq!(m.load(CpuId(0)).util_est(), 0, "nobody is awake");
    m.advance(100 * MS);
    m.cpu(0).wake(&task);
    assert!(m.load(CpuId(0)).util_est() > 1000, "what it used before its sleep");
    assert!(util(&m, 0) < 200);
}

#[test]
fn nothing_is_estimated_without_the_rule() {
    let m = machine(1);
    m.set_feature(Feature::UtilEst, false).unwrap();
    let task = m.cpu(0).spawn("task");
    m.cpu(0).leave_interrupt();
    run(&m, 0, 250);
    m.cpu(0).block();
    m.cpu(0).wake(&task);
    assert_eq!((m.load_of(&task).unwrap().util_est(), m.load(CpuId(0)).util_est()), (0, 0));
}

#[test]
fn a_queue_has_the_load_of_its_tasks() {
    // All of them were queued for long, on one CPU or the other, and some have moved, slept, changed weight or ended.
    let m = machine(2);
    let mut tasks: Vec<_> = (0..8).map(|i| m.cpu(i % 2).spawn_on(&format!("{i}"), &[i % 2])).collect();
    for round in 0..60_u32 {
        for cpu in [0, 1] {
            m.cpu(cpu).leave_interrupt();
            run(&m, cpu, 3);
        }
        let i = round as usize % tasks.len();
        match round % 4 {
            0 => m.cpu(0).set_affinity(&tasks[i], &[round / 4 % 2]).unwrap(),
            1 => m.cpu(1).set_params(&tasks[i], nice(round as i32 % 7 - 3)).unwrap(),
            2 => {
                let cpu = m.cpu(round / 4 % 2);
                let asleep = tasks.iter().position(|task| cpu.runs(task));
                if let Some(asleep) = asleep {
                    cpu.block();
                    m.advance(MS * u64::from(round));
                    m.cpu(round / 8 % 2).wake(&tasks[asleep]);
                }
            }
            _ if round % 20 == 3 && !m.cpu(0).is_idle() => {
                let dead = m.cpu(0).exit();
                tasks.retain(|task| !std::sync::Arc::ptr_eq(task, &dead));
                tasks.push(m.cpu(0).spawn("new"));
            }
            _ => {}
        }
        for cpu in [0, 1] {
            m.cpu(cpu).leave_interrupt();
        }
    }
    for cpu in [0, 1] {
        run(&m, cpu, 1);
        let all = m.load(CpuId(cpu));
        let here: Vec<_> = tasks.iter().filter(|task| task.sched.cpu() == CpuId(cpu)).collect();
        let sum = |signal: fn(&sched_core::Signals) -> u64| -> u64 {
            here.iter().map(|task| signal(&m.load_of(task).expect("nobody sleeps"))).sum()
        };
        // A waiting task's own signals are as of its last event: a task or two behind in rounding and in decay.
        let (load, estimate) = (sum(|s| s.load_avg()), sum(|s| u64::from(s.util_est())));
        assert!(all.load_avg().abs_diff(load) <= load / 10 + 20, "CPU {cpu}: {all:?}, its tasks' load {load}");
        assert_eq!(u64::from(all.util_est()), estimate, "CPU {cpu}");
    }
}

/// Two tasks that used CPU 0 for long, asleep for 30 ms.
fn two_sleepers(m: &Machine) -> [std::sync::Arc<crate::machine::Task>; 2] {
    let tasks = ["x", "y"].map(|name| m.cpu(0).spawn_on(name, &[0]));
    m.cpu(0).leave_interrupt();
    run(m, 0, 250);
    while !m.cpu(0).is_idle() {
        m.cpu(0).block();
    }
    m.advance(30 * MS);
    tasks
}

#[test]
fn of_two_that_slept_here_the_one_that_stays_keeps_its_load() {
    // The first wake-up brings the queue up to date, and the second takes the other task away.
    let m = machine(2);
    let [moves, stays] = two_sleepers(&m);
    m.cpu(1).set_affinity(&moves, &[0, 1]).unwrap();
    m.cpu(1).wake(&stays);
    m.cpu(1).wake(&moves);
    assert_eq!(m.loads(), [1, 1]);
    m.cpu(0).leave_interrupt();
    let (queue, task) = (m.load(CpuId(0)), m.load_of(&stays).unwrap());
    assert!(queue.load_avg().abs_diff(task.load_avg()) <= 8, "{queue:?} has one task, {task:?}");
}

#[test]
fn looking_at_a_load_does_not_change_it() {
    let left = [false, true].map(|look| {
        let m = machine(2);
        let [moves, _stays] = two_sleepers(&m);
        m.cpu(1).set_affinity(&moves, &[1]).unwrap();
        if look {
            m.load(CpuId(0));
        }
        m.cpu(1).wake(&moves);
        m.load(CpuId(0)).load_avg()
    });
    assert!(left[0] > 500 && left[0].abs_diff(left[1]) <= 8, "{left:?}");
}

#[test]
fn who_left_is_forgotten_before_somebody_comes() {
    let m = machine(2);
    let moves = m.cpu(0).spawn_on("moves", &[0]);
    m.cpu(0).leave_interrupt();
    run(&m, 0, 250);
    m.cpu(0).block();
    m.cpu(1).set_affinity(&moves, &[1]).unwrap();
    m.advance(300 * MS);
    m.cpu(1).wake(&moves);
    let comes = m.cpu(1).spawn_on("comes", &[0]);
    let (queue, task) = (m.load(CpuId(0)), m.load_of(&comes).unwrap());
    assert!(queue.load_avg().abs_diff(task.load_avg()) <= 8, "{queue:?} has one task, {task:?}");
    assert!(queue.util_avg().abs_diff(task.util_avg()) <= 8, "{queue:?} has one task, {task:?}");
}

#[test]
fn a_light_new_task_is_expected_to_use_little() {
    let m = machine(1);
    let hog = m.cpu(0).spawn("hog");
    m.cpu(0).leave_interrupt();
    run(&m, 0, 250);
    m.cpu(0).block();
    m.advance(30 * MS);
    m.cpu(0).wake(&hog);
    m.cpu(0).leave_interrupt();
    let queue = m.load(CpuId(0));
    let new = m.cpu(0).spawn_with("new", Spawn { params: nice(19), ..Spawn::default() });
    let expected = queue.util_avg() * 15 / (queue.load_avg() + 1);
    assert_eq!(m.load_of(&new).unwrap().util_avg(), expected, "by weight, from {queue:?}");
}

#[test]
fn the_estimate_of_a_delayed_sleeper_is_taken_off_once() {
    // Linux 6.12 took it off at the sleep and again when the sleeper left at last.
    let m = machine(1);
    let (debtor, other) = (m.cpu(0).spawn("debtor"), m.cpu(0).spawn("other"));
    m.cpu(0).leave_interrupt();
    run(&m, 0, 100);
    // Both know what they use.
    m.cpu(0).block();
    m.cpu(0).block();
    m.cpu(0).wake(&debtor);
    m.cpu(0).wake(&other);
    m.cpu(0).leave_interrupt();
    let all = m.load(CpuId(0)).util_est();
    m.cpu(0).tick_until_runs(&debtor);
    m.advance(2 * MS);
    m.cpu(0).block();
    assert!(m.load_of(&debtor).is_some(), "it owes nothing: the test is wrong");
    let one = m.load(CpuId(0)).util_est();
    assert!(one > 0 && one < all, "{one} of {all}");
    run(&m, 0, 10);
    assert!(m.load_of(&debtor).is_none(), "it still owes: the test is wrong");
    assert_eq!(m.load(CpuId(0)).util_est(), one);
}
