//! Load tracking, as it is seen from outside.

use sched_core::CpuId;

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
fn a_crowd_that_comes_and_goes_leaves_no_load() {
    let m = machine(2);
    for round in 0..20 {
        let tasks: Vec<_> = (0..10).map(|i| m.cpu(round % 2).spawn(&format!("{round}.{i}"))).collect();
        for cpu in [0, 1] {
            m.cpu(cpu).leave_interrupt();
            run(&m, cpu, 20);
        }
        for cpu in [0, 1] {
            while !m.cpu(cpu).is_idle() {
                if round % 3 == 0 {
                    _ = m.cpu(cpu).block()
                } else {
                    _ = m.cpu(cpu).exit()
                }
                m.advance(MS);
            }
        }
        drop(tasks);
    }
    m.advance(10_000 * MS);
    for cpu in [0, 1] {
        let load = m.load(CpuId(cpu));
        assert_eq!((load.load_avg(), load.runnable_avg(), load.util_avg(), load.util_est()), (0, 0, 0, 0));
    }
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
