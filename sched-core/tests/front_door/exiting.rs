//! Exit: the pointer comes back once, and only when no CPU is on the task.

use std::sync::Arc;

use sched_core::{Error, Reason, Spawn, Switch, TaskState};

use crate::machine::{Machine, TICK, machine};

#[test]
fn the_pointer_comes_back_once_and_only_after_the_switch() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let task = cpu.spawn("task");
    assert_eq!(Arc::strong_count(&task), 2, "one is the scheduler's");
    cpu.leave_interrupt();
    assert_eq!(Arc::strong_count(&task), 2, "running counts nothing");
    m.advance(TICK);

    assert!(cpu.leave(Reason::Exit));
    assert_eq!(task.state(), TaskState::Dead);
    assert_eq!(m.loads(), [0]);
    assert_eq!(Arc::strong_count(&task), 2, "its CPU is still on it");

    let back = cpu.arrive().expect("given back");
    assert!(Arc::ptr_eq(&back, &task));
    assert_eq!(Arc::strong_count(&task), 2, "moved, not cloned");
    drop(back);
    assert_eq!(Arc::strong_count(&task), 1);

    // `arrive` has called `finish_switch` twice: the second gave nothing. Nor do later ones.
    for _ in 0..3 {
        let next = cpu.spawn("next");
        cpu.leave_interrupt();
        drop(cpu.exit());
        assert_eq!(Arc::strong_count(&next), 1);
    }
    assert_eq!(Arc::strong_count(&task), 1);
}

#[test]
fn whoever_dies_last_is_released_too() {
    // The task that arrives instead of a dead one may itself exit at once.
    let m = machine(1);
    let cpu = m.cpu(0);
    let tasks: Vec<_> = (0..5).map(|_| cpu.spawn("task")).collect();
    cpu.leave_interrupt();
    for _ in &tasks {
        drop(cpu.exit());
    }
    assert!(cpu.is_idle());
    assert!(tasks.iter().all(|task| Arc::strong_count(task) == 1));
}

#[test]
fn a_dead_task_is_not_spawned_again() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let task = cpu.spawn("task");
    assert_eq!(cpu.try_spawn(&task, Spawn::default()), Err(Error::AlreadySpawned), "alive");
    cpu.leave_interrupt();
    assert_eq!(cpu.try_spawn(&task, Spawn::default()), Err(Error::AlreadySpawned), "running");
    drop(cpu.exit());
    assert_eq!(cpu.try_spawn(&task, Spawn::default()), Err(Error::AlreadySpawned), "dead");
    assert_eq!(Arc::strong_count(&task), 1);
    assert_eq!(m.loads(), [0]);
}

#[test]
fn a_forbidden_cpu_can_still_be_exited_from() {
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    m.cpu(1).set_affinity(&task, &[1]).unwrap();
    drop(m.cpu(0).exit());
    assert_eq!(m.loads(), [0, 0]);
    assert_eq!(Arc::strong_count(&task), 1);
}

#[test]
fn everybody_keeps_hands_off_a_task_that_is_exiting() {
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    assert!(m.cpu(0).leave(Reason::Exit));
    let other = m.cpu(1);
    other.wake(&task);
    other.set_affinity(&task, &[1]).unwrap();
    other.set_params(&task, crate::machine::nice(5)).unwrap();
    m.stats(&task);
    assert_eq!(m.loads(), [0, 0]);
    assert!(m.cpu(0).arrive().is_some());
    assert_eq!(m.loads(), [0, 0]);
    assert_eq!(Arc::strong_count(&task), 1);
}

#[test]
fn a_rejected_task_comes_back() {
    let m = machine(2);
    let task = Machine::<Switch, Switch>::task("task");
    let nowhere = Spawn { affinity: crate::machine::mask(&[7]), ..Spawn::default() };
    assert_eq!(m.cpu(0).try_spawn(&task, nowhere), Err(Error::NoOnlineCpu));
    assert_eq!(task.state(), TaskState::New);
    assert_eq!(Arc::strong_count(&task), 1);
    assert_eq!(m.cpu(0).try_spawn(&task, Spawn::default()), Ok(()), "it is as new as before");
}
