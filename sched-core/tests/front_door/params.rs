//! Nice value, policy and slice can be changed at any time.

use sched_core::{Error, Policy, Reason, Slice, Spawn, Switch, TaskParams};

use crate::machine::{MS, Machine, TICK, Task, machine, nice};

#[test]
fn a_new_task_has_what_it_was_given() {
    let m = machine(1);
    let params = TaskParams { policy: Policy::Batch, slice: Some(Slice::clamped(5 * MS)), ..nice(-7) };
    let task = m.cpu(0).spawn_with("task", Spawn { params, ..Spawn::default() });
    assert_eq!(task.sched.params(), params);
    assert_eq!(m.cpu(0).spawn("plain").sched.params(), TaskParams::default());
}

/// How long each of two tasks runs on CPU 0 in a second.
fn shares(m: &Machine, tasks: [&Task; 2]) -> [u64; 2] {
    let before = tasks.map(|task| m.stats(task).sum_exec_runtime);
    for _ in 0..2500 {
        m.advance(TICK);
        m.cpu(0).tick();
        m.cpu(0).leave_interrupt();
    }
    let after = tasks.map(|task| m.stats(task).sum_exec_runtime);
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn the_weight_counts_whatever_the_task_was_doing_when_it_changed() {
    // Nice 5 weighs 335 against 1024.
    let fair = |[changed, other]: [u64; 2]| {
        let share = changed as f64 / (changed + other) as f64;
        assert!((share - 335.0 / 1359.0).abs() < 0.01, "share {share}");
    };
    for how in ["running", "waiting", "blocked", "leaving", "woken while leaving", "prepared"] {
        let m = machine(2);
        let cpu = m.cpu(0);
        let (task, other) = (cpu.spawn_on("task", &[0]), cpu.spawn_on("other", &[0]));
        cpu.tick_until_runs(if how == "waiting" { &other } else { &task });
        let change = || m.cpu(1).set_params(&task, nice(5)).unwrap();
        match how {
            "running" | "waiting" => change(),
            "blocked" => {
                cpu.block();
                change();
                m.cpu(1).wake(&task);
            }
            "leaving" => {
                while !cpu.leave(Reason::Preempt) {
                    m.advance(TICK);
                }
                change();
                cpu.arrive();
            }
            "woken while leaving" => {
                let sleep = cpu.prepare();
                assert!(cpu.leave(Reason::Block(sleep)));
                m.cpu(1).wake(&task);
                change();
                cpu.arrive();
            }
            _ => {
                let sleep = cpu.prepare();
                change();
                cpu.leave_interrupt();
                drop(sleep);
            }
        }
        assert_eq!(task.sched.params(), nice(5));
        cpu.leave_interrupt();
        fair(shares(&m, [&task, &other]));
    }
}

#[test]
fn before_its_spawn_a_task_takes_no_change() {
    let m = machine(1);
    let task = Machine::<Switch, Switch>::task("task");
    assert_eq!(m.cpu(0).set_params(&task, nice(5)), Err(Error::NotOurs));
    m.cpu(0).try_spawn(&task, Spawn::default()).unwrap();
    assert_eq!(task.sched.params(), TaskParams::default());
}

#[test]
fn a_dead_task_takes_a_change_and_nothing_comes_of_it() {
    let m = machine(1);
    let task = m.cpu(0).spawn("task");
    m.cpu(0).leave_interrupt();
    drop(m.cpu(0).exit());
    m.cpu(0).set_params(&task, nice(5)).unwrap();
    assert!(!m.cpu(0).need_resched());
    assert_eq!(m.loads(), [0]);
}

#[test]
fn a_change_asks_the_cpu_of_the_task_to_look_again() {
    let m = machine(2);
    let (task, _other) = (m.cpu(0).spawn_on("task", &[0]), m.cpu(0).spawn_on("other", &[0]));
    m.cpu(0).leave_interrupt();
    m.kicks();
    m.cpu(1).set_params(&task, nice(19)).unwrap();
    assert_eq!(m.kicks(), [0]);
    assert!(m.cpu(0).need_resched());
    m.cpu(0).leave_interrupt();
    m.cpu(0).set_params(&task, nice(0)).unwrap();
    assert_eq!(m.kicks(), [] as [u32; 0], "not by a kick to itself");
    assert!(m.cpu(0).need_resched());
}

#[test]
fn a_storm_of_changes_loses_nobody() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let tasks: Vec<_> = (0..5).map(|_| cpu.spawn("task")).collect();
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..5000 {
        let task = &tasks[rng.usize(0..5)];
        let policy = [Policy::Normal, Policy::Batch, Policy::Idle][rng.usize(0..3)];
        let slice = rng.bool().then(|| Slice::clamped(rng.u64(0..200 * MS)));
        cpu.set_params(task, TaskParams { policy, slice, ..nice(rng.i32(-20..20)) }).unwrap();
        m.advance(rng.u64(0..TICK));
        if rng.u8(0..4) == 0 {
            cpu.tick();
        }
        cpu.leave_interrupt();
    }
    assert_eq!(m.loads(), [5]);
    for task in &tasks {
        cpu.set_params(task, TaskParams::default()).unwrap();
    }
    for task in &tasks {
        cpu.tick_until_runs(task);
    }
}
