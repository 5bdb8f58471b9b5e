//! Wake-ups: of whom, to where, and during the switch.

use std::sync::Arc;

use sched_core::{Reason, Slice, Spawn, Switch, TaskParams, TaskState, Woken};

use crate::machine::{Machine, TICK, Task, machine};

#[test]
fn a_task_woken_while_its_cpu_leaves_it_is_queued_once_after_the_cpu_has_left() {
    for cpus in [1, 2] {
        let m = machine(2);
        let task = m.cpu(0).spawn_on("task", if cpus == 1 { &[0] } else { &[0, 1] });
        m.cpu(0).leave_interrupt();
        assert!(m.cpu(0).runs(&task));
        let sleep = m.cpu(0).prepare();
        assert!(m.cpu(0).leave(Reason::Block(sleep)));

        assert_eq!(m.cpu(1).wake(&task), Woken::Yes);
        assert_eq!(task.state(), TaskState::Waking);
        assert_eq!(m.loads(), [0, 0], "queued while a CPU is on it");
        assert_eq!(m.cpu(1).wake(&task), Woken::No, "it is awake already");

        m.cpu(0).arrive();
        assert_eq!(task.state(), TaskState::Runnable);
        assert_eq!(m.loads().iter().sum::<u64>(), 1);
        m.cpus().for_each(|cpu| cpu.leave_interrupt());
        assert_eq!(m.cpus().filter(|cpu| cpu.runs(&task)).count(), 1);
    }
}

#[test]
fn a_task_woken_after_its_cpu_has_left_it_is_queued_at_once() {
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    m.cpu(0).block();
    assert_eq!(m.cpu(1).wake(&task), Woken::Yes);
    assert_eq!(m.loads(), [1, 0]);
    assert_eq!(m.cpu(1).wake(&task), Woken::No);
    assert_eq!(m.loads(), [1, 0]);
}

#[test]
fn waking_who_is_not_asleep_does_nothing() {
    let m = machine(2);
    let new = Machine::<Switch, Switch>::task("new");
    assert_eq!(m.cpu(0).wake(&new), Woken::No);

    let running = m.cpu(0).spawn_on("running", &[0]);
    m.cpu(0).leave_interrupt();
    let waiting = m.cpu(0).spawn_on("waiting", &[0]);
    for cpu in m.cpus() {
        assert_eq!(cpu.wake(&running), Woken::No);
        assert_eq!(cpu.wake(&waiting), Woken::No);
        assert_eq!(cpu.wake(m.idle(0)), Woken::No);
    }
    let dead = m.cpu(0).exit();
    assert!(Arc::ptr_eq(&dead, &running));
    assert_eq!(m.cpu(1).wake(&dead), Woken::No);
    m.kicks();
    assert_eq!(m.loads(), [1, 0]);
}

#[test]
fn waking_who_is_exiting_does_nothing() {
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    assert!(m.cpu(0).leave(Reason::Exit));
    assert_eq!(task.state(), TaskState::Dead);
    assert_eq!(m.cpu(1).wake(&task), Woken::No);
    assert!(m.cpu(0).arrive().is_some());
    assert_eq!(m.cpu(1).wake(&task), Woken::No);
    assert_eq!(m.loads(), [0, 0]);
}

/// Puts `who` to sleep, having run on `cpu`.
fn sleeper(m: &Machine, cpu: u32, cpus: &[u32]) -> Arc<Task> {
    let task = m.cpu(cpu).spawn_on("sleeper", &[cpu]);
    m.cpu(cpu).tick_until_runs(&task);
    m.cpu(cpu).block();
    m.cpu(cpu).set_affinity(&task, cpus).unwrap();
    task
}

#[test]
fn a_task_goes_back_to_its_last_cpu_if_that_is_idle() {
    let m = machine(4);
    for last in 0..4 {
        let task = sleeper(&m, last, &[0, 1, 2, 3]);
        m.cpu((last + 1) % 4).wake(&task);
        assert_eq!(task.sched.cpu().0, last, "all are idle");
        m.cpu(last).leave_interrupt();
        assert!(m.cpu(last).runs(&task));
        m.cpu(last).exit();
    }
}

#[test]
fn a_task_goes_to_an_idle_cpu_if_its_last_is_busy() {
    let m = machine(4);
    let task = sleeper(&m, 1, &[0, 1, 3]);
    let _busy: Vec<_> = [0, 1].map(|cpu| m.cpu(cpu).spawn_on("busy", &[cpu])).into();
    m.cpus().for_each(|cpu| cpu.leave_interrupt());
    m.kicks();
    // CPU 2 is idle but forbidden.
    m.cpu(0).wake(&task);
    assert_eq!(m.kicks(), [3]);
    m.cpu(3).leave_interrupt();
    assert_eq!(task.sched.cpu().0, 3);
    assert!(m.cpu(3).runs(&task));
}

#[test]
fn a_task_goes_to_its_last_cpu_if_none_is_idle() {
    let m = machine(3);
    let task = sleeper(&m, 2, &[0, 1, 2]);
    let busy: Vec<_> = [0, 1, 2, 2].map(|cpu| m.cpu(cpu).spawn_on("busy", &[cpu])).into();
    m.cpus().for_each(|cpu| cpu.leave_interrupt());
    m.cpu(0).wake(&task);
    assert_eq!(task.sched.cpu().0, 2, "though others have less to do");
    assert_eq!(m.loads(), [1, 1, 3]);
    drop(busy);
}

#[test]
fn a_task_whose_last_cpu_is_forbidden_goes_to_the_least_loaded_of_the_others() {
    let m = machine(4);
    let task = sleeper(&m, 0, &[1, 2, 3]);
    let _busy: Vec<_> = [1, 1, 2, 2, 3].map(|cpu| m.cpu(cpu).spawn_on("busy", &[cpu])).into();
    m.cpus().for_each(|cpu| cpu.leave_interrupt());
    m.cpu(0).wake(&task);
    assert_eq!(task.sched.cpu().0, 3);
}

#[test]
fn new_tasks_spread_over_the_allowed_cpus() {
    let m = machine(4);
    let _tasks: Vec<_> = (0..8).map(|_| m.cpu(0).spawn("task")).collect();
    assert_eq!(m.loads(), [2, 2, 2, 2]);
    let _more: Vec<_> = (0..4).map(|_| m.cpu(0).spawn_on("task", &[1, 3])).collect();
    assert_eq!(m.loads(), [2, 4, 2, 4]);
}

#[test]
fn every_woken_task_comes_to_run() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let tasks: Vec<_> = (0..20).map(|_| cpu.spawn("task")).collect();
    for task in &tasks {
        cpu.tick_until_runs(task);
        assert!(cpu.block());
    }
    assert!(cpu.is_idle());
    for task in &tasks {
        cpu.wake(task);
    }
    for task in &tasks {
        cpu.tick_until_runs(task);
        m.advance(TICK);
    }
}

#[test]
fn a_woken_task_does_not_preempt_what_runs_for_its_first_request_but_a_shorter_one_does() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let short = Spawn { params: TaskParams { slice: Some(Slice::MIN), ..TaskParams::default() }, ..Spawn::default() };
    for (params, preempts) in [(Spawn::default(), false), (short, true)] {
        let waiter = cpu.spawn_with("waiter", params);
        cpu.tick_until_runs(&waiter);
        cpu.block();
        let busy = cpu.spawn("busy");
        cpu.leave_interrupt();
        m.advance(100_000);
        cpu.wake(&waiter);
        assert_eq!(cpu.need_resched(), preempts, "{:?}", params.params);
        cpu.leave_interrupt();
        assert_eq!(cpu.runs(&waiter), preempts);
        for task in [waiter, busy] {
            cpu.tick_until_runs(&task);
            cpu.exit();
        }
    }
}
