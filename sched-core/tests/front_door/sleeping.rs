//! Prepare, check, block.

use sched_core::{Reason, SleepKind, TaskState, Woken};

use crate::machine::{TICK, machine};

#[test]
fn a_task_that_blocks_is_off_its_queue_until_it_is_woken() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let task = cpu.spawn("task");
    cpu.leave_interrupt();
    assert!(cpu.runs(&task));
    assert!(cpu.block());
    assert!(cpu.is_idle());
    assert_eq!(task.state(), TaskState::Blocked(SleepKind::Interruptible));
    assert_eq!(m.loads(), [0]);

    assert_eq!(cpu.wake(&task), Woken::Yes);
    assert_eq!(task.state(), TaskState::Runnable);
    assert_eq!(m.loads(), [1]);
    cpu.leave_interrupt();
    assert!(cpu.runs(&task));
}

#[test]
fn a_wake_up_between_prepare_and_schedule_answers_stay() {
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    for waker in [0, 1] {
        let sleep = m.cpu(0).prepare();
        assert_eq!(task.state(), TaskState::Prepared);
        assert_eq!(m.cpu(waker).wake(&task), Woken::Yes);
        assert_eq!(task.state(), TaskState::Runnable);
        assert!(!m.cpu(0).leave(Reason::Block(sleep)), "the wake-up is lost");
        assert!(m.cpu(0).runs(&task));
        assert_eq!(m.loads(), [1, 0]);
    }
    // Nobody asked that CPU for anything: the task runs already.
    assert_eq!(m.kicks(), [] as [u32; 0]);
}

#[test]
fn a_wake_up_before_prepare_does_not_count() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let task = cpu.spawn("task");
    cpu.leave_interrupt();
    assert_eq!(cpu.wake(&task), Woken::No);
    assert!(cpu.block(), "a wake-up of a running task is not kept for its next sleep");
}

#[test]
fn a_dropped_or_cancelled_sleep_goes_on() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let task = cpu.spawn("task");
    cpu.leave_interrupt();
    drop(cpu.prepare());
    assert_eq!(task.state(), TaskState::Runnable);
    cpu.prepare().cancel();
    assert_eq!(task.state(), TaskState::Runnable);
    assert_eq!(cpu.wake(&task), Woken::No, "nothing is left to wake");
    assert!(!cpu.leave(Reason::Preempt));
    assert!(cpu.runs(&task));
}

#[test]
fn a_sleep_that_is_dropped_after_its_wake_up_goes_on_too() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let task = cpu.spawn("task");
    cpu.leave_interrupt();
    let sleep = cpu.prepare();
    assert_eq!(cpu.wake(&task), Woken::Yes);
    drop(sleep);
    assert_eq!(task.state(), TaskState::Runnable);
    assert_eq!(m.loads(), [1]);
    assert!(cpu.block());
}

#[test]
fn a_task_preempted_between_prepare_and_schedule_stays_runnable() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let (task, other) = (cpu.spawn("task"), cpu.spawn("other"));
    cpu.tick_until_runs(&task);
    let sleep = cpu.prepare();
    while !cpu.leave(Reason::Preempt) {
        m.advance(TICK);
        cpu.tick();
    }
    cpu.arrive();
    assert!(cpu.runs(&other));
    assert_eq!(task.state(), TaskState::Prepared);
    assert_eq!(m.loads(), [2], "it is not asleep yet");

    // It comes to run again without anybody waking it, and then it sleeps.
    cpu.tick_until_runs(&task);
    assert!(cpu.leave(Reason::Block(sleep)));
    cpu.arrive();
    assert_eq!(m.loads(), [1]);
    assert!(cpu.runs(&other));
}

#[test]
fn a_wake_up_reaches_a_task_that_was_preempted_between_prepare_and_schedule() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let (task, other) = (cpu.spawn("task"), cpu.spawn("other"));
    cpu.tick_until_runs(&task);
    let sleep = cpu.prepare();
    cpu.tick_until_runs(&other);
    assert_eq!(cpu.wake(&task), Woken::Yes);
    assert_eq!(m.loads(), [2], "it was queued already");
    cpu.tick_until_runs(&task);
    assert!(!cpu.leave(Reason::Block(sleep)), "the wake-up is lost");
}

#[test]
fn a_task_moved_between_prepare_and_schedule_sleeps_all_the_same() {
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    let sleep = m.cpu(0).prepare();
    m.cpu(1).set_affinity(&task, &[1]).unwrap();
    m.cpu(0).leave_interrupt();
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&task));
    assert_eq!(task.state(), TaskState::Prepared);
    assert!(m.cpu(1).leave(Reason::Block(sleep)), "nobody woke it");
    m.cpu(1).arrive();
    assert_eq!(m.cpu(0).wake(&task), Woken::Yes);
}

#[test]
fn both_kinds_of_sleep_are_told_apart_and_woken_alike() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let task = cpu.spawn("task");
    for kind in [SleepKind::Interruptible, SleepKind::Uninterruptible] {
        cpu.leave_interrupt();
        let sleep = cpu.prepare_as(kind);
        cpu.switch(Reason::Block(sleep));
        assert_eq!(task.state(), TaskState::Blocked(kind));
        assert_eq!(cpu.wake(&task), Woken::Yes);
    }
}

#[test]
fn the_idle_task_cannot_sleep() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let sleep = cpu.prepare();
    assert_eq!(m.idle(0).state(), TaskState::Runnable);
    assert!(!cpu.leave(Reason::Block(sleep)));
    assert!(cpu.is_idle());
    assert_eq!(cpu.wake(m.idle(0)), Woken::No);
}

#[test]
fn a_sleep_that_comes_to_nothing_leaves_the_request_pending() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let (first, second) = (cpu.spawn("first"), cpu.spawn("second"));
    cpu.tick_until_runs(&first);
    while !cpu.need_resched() {
        m.advance(TICK);
        cpu.tick();
    }
    let sleep = cpu.prepare();
    cpu.wake(&first);
    assert!(!cpu.leave(Reason::Block(sleep)));
    assert!(cpu.need_resched(), "the request of the tick is forgotten");
    cpu.leave_interrupt();
    assert!(cpu.runs(&second));
}
