//! A task that owes service when it falls asleep stays with its queue until it has paid. Nobody else may see that.

use std::sync::Arc;

use sched_core::{Feature, SleepKind, TaskState, Woken};

use crate::machine::{MS, Machine, TICK, Task, machine, nice};

const ASLEEP: TaskState = TaskState::Blocked(SleepKind::Interruptible);

/// `debtor` has run ahead of `other` on CPU 0 and fell asleep; `other` runs.
fn indebted(m: &Machine) -> (Arc<Task>, Arc<Task>) {
    let cpu = m.cpu(0);
    let debtor = cpu.spawn_on("debtor", &[0]);
    let other = cpu.spawn_on("other", &[0]);
    cpu.tick_until_runs(&debtor);
    m.advance(2 * MS);
    assert!(cpu.block());
    assert!(cpu.runs(&other));
    (debtor, other)
}

/// Whether a queue still has the task.
fn is_queued(m: &Machine, task: &Task) -> bool {
    m.load_of(task).is_some()
}

#[test]
fn a_delayed_task_is_asleep_for_all_to_see() {
    let m = machine(1);
    let (debtor, _other) = indebted(&m);
    assert!(is_queued(&m, &debtor), "it owes nothing: the test is wrong");
    assert_eq!(debtor.state(), ASLEEP);
    assert_eq!(m.loads(), [1], "who sleeps is not runnable");
}

#[test]
fn a_task_without_debt_leaves_at_once() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let task = cpu.spawn("task");
    let _other = cpu.spawn("other");
    cpu.leave_interrupt();
    assert!(cpu.block());
    assert!(!is_queued(&m, &task));
}

#[test]
fn a_delayed_task_leaves_when_its_turn_comes_and_is_never_run_asleep() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let (debtor, other) = indebted(&m);
    for _ in 0..10 {
        m.advance(TICK);
        cpu.tick();
        cpu.leave_interrupt();
        assert!(cpu.runs(&other));
        assert_eq!(debtor.state(), ASLEEP);
    }
    assert!(!is_queued(&m, &debtor), "its debt is paid");
    assert_eq!(cpu.wake(&debtor), Woken::Yes);
    assert_eq!(m.loads(), [2]);
    cpu.tick_until_runs(&debtor);
}

#[test]
fn a_delayed_task_that_is_woken_goes_on_waiting() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let (debtor, other) = indebted(&m);
    assert_eq!(cpu.wake(&debtor), Woken::Yes);
    assert_eq!(cpu.wake(&debtor), Woken::No, "it is awake");
    assert_eq!(debtor.state(), TaskState::Runnable);
    assert_eq!(m.loads(), [2]);
    assert!(!cpu.need_resched(), "who owes service preempts nobody");
    assert!(cpu.runs(&other));
    cpu.tick_until_runs(&debtor);
}

#[test]
fn the_last_to_sleep_leaves_an_idle_cpu_and_nobody_behind() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let (debtor, other) = indebted(&m);
    assert!(cpu.block());
    assert!(cpu.is_idle());
    assert_eq!(m.loads(), [0]);
    assert!(!is_queued(&m, &debtor) && !is_queued(&m, &other));
    cpu.wake(&debtor);
    cpu.leave_interrupt();
    assert!(cpu.runs(&debtor));
}

#[test]
fn an_idle_cpu_takes_a_delayed_task_that_wakes() {
    let m = machine(2);
    let (debtor, _other) = indebted(&m);
    m.cpu(0).set_affinity(&debtor, &[0, 1]).unwrap();
    assert!(is_queued(&m, &debtor));
    m.cpu(1).wake(&debtor);
    assert_eq!(m.loads(), [1, 1], "a CPU idles while a task waits");
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&debtor));
}

#[test]
fn a_delayed_task_leaves_a_cpu_that_is_forbidden() {
    let m = machine(2);
    let (debtor, _other) = indebted(&m);
    m.cpu(1).set_affinity(&debtor, &[1]).unwrap();
    assert_eq!(debtor.state(), ASLEEP, "it is not woken");
    assert!(!is_queued(&m, &debtor));
    assert_eq!(m.loads(), [1, 0]);
    m.cpu(0).wake(&debtor);
    assert_eq!(m.loads(), [1, 1]);
    assert_eq!(m.kicks(), [1]);
}

#[test]
fn a_wake_up_during_the_switch_finds_the_delayed_task() {
    let m = machine(2);
    let cpu = m.cpu(0);
    let debtor = cpu.spawn_on("debtor", &[0]);
    let other = cpu.spawn_on("other", &[0]);
    cpu.tick_until_runs(&debtor);
    m.advance(2 * MS);
    let sleep = cpu.prepare();
    assert!(cpu.leave(sched_core::Reason::Block(sleep)));
    assert_eq!(m.cpu(1).wake(&debtor), Woken::Yes);
    assert_eq!(debtor.state(), TaskState::Waking, "the CPU that leaves it carries the wake-up out");
    cpu.arrive();
    assert_eq!(debtor.state(), TaskState::Runnable);
    assert_eq!(m.loads(), [2, 0]);
    assert!(cpu.runs(&other));
    cpu.tick_until_runs(&debtor);
}

#[test]
fn a_delayed_task_takes_new_parameters() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let (debtor, _other) = indebted(&m);
    cpu.set_params(&debtor, nice(5)).unwrap();
    cpu.leave_interrupt();
    assert_eq!(debtor.state(), ASLEEP);
    assert_eq!(m.loads(), [1]);
    cpu.wake(&debtor);
    cpu.tick_until_runs(&debtor);
    assert_eq!(debtor.sched.params(), nice(5));
}

#[test]
fn a_task_that_exits_in_debt_is_given_back_at_once() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let debtor = cpu.spawn("debtor");
    let _other = cpu.spawn("other");
    cpu.tick_until_runs(&debtor);
    m.advance(2 * MS);
    // The machine checks that the task comes back from this very switch.
    assert!(Arc::ptr_eq(&cpu.exit(), &debtor));
}

#[test]
fn a_delayed_sleeper_sleeps_from_the_moment_it_blocks() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let (debtor, _other) = indebted(&m);
    let (before, ran) = (m.stats(&debtor), m.stats(&debtor).sum_exec_runtime);
    m.advance(MS / 2);
    assert!(is_queued(&m, &debtor));
    cpu.wake(&debtor);
    let woken = m.cpu(0).now();
    cpu.tick_until_runs(&debtor);
    let after = m.stats(&debtor);
    assert_eq!(
        after.run_delay - before.run_delay,
        cpu.now() - woken,
        "it waits from its wake-up on, not while it sleeps"
    );
    assert_eq!(after.sum_exec_runtime, ran);
}

#[test]
fn nobody_is_delayed_without_the_rule() {
    let m = machine(1);
    m.set_feature(Feature::DelayDequeue, false).unwrap();
    let (debtor, _other) = indebted(&m);
    assert!(!is_queued(&m, &debtor));
}
