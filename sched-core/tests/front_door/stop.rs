//! The stop task: one a CPU, before all others, never elsewhere.

use std::sync::Arc;

use sched_core::{Error, Reason, SleepKind, TaskState, Woken};

use crate::machine::{MS, TICK, machine, nice};

#[test]
fn it_sleeps_until_its_first_wake_up() {
    let m = machine(1);
    let stop = m.cpu(0).spawn_stop("stop").unwrap();
    assert_eq!(stop.state(), TaskState::Blocked(SleepKind::Uninterruptible));
    assert_eq!(m.loads(), [0]);
    assert!(!m.cpu(0).need_resched());
}

#[test]
fn it_preempts_at_once_and_runs_until_it_sleeps() {
    let m = machine(2);
    let stop = m.cpu(1).spawn_stop("stop").unwrap();
    let tasks: Vec<_> = (0..3).map(|_| m.cpu(1).spawn_on("task", &[1])).collect();
    m.cpu(1).leave_interrupt();
    m.kicks();
    m.advance(MS / 100);
    assert_eq!(m.cpu(0).wake(&stop), Woken::Yes);
    assert_eq!(m.kicks(), [1]);
    assert_eq!(m.loads(), [0, 4]);
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&stop));
    for _ in 0..50 {
        m.advance(TICK);
        m.cpu(1).tick();
        assert!(!m.cpu(1).need_resched(), "nobody preempts it");
        assert!(!m.cpu(1).leave(Reason::Yield), "not even if it yields");
        assert!(!m.cpu(1).leave(Reason::Preempt));
    }
    assert!(m.cpu(1).block());
    assert!(tasks.iter().any(|task| m.cpu(1).runs(task)));
    assert_eq!(m.loads(), [0, 3]);
    assert_eq!(m.stats(&stop).sum_exec_runtime, 50 * TICK);
}

#[test]
fn it_runs_before_a_task_that_was_woken_first() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let stop = cpu.spawn_stop("stop").unwrap();
    let task = cpu.spawn("task");
    assert_eq!(cpu.wake(&stop), Woken::Yes);
    cpu.leave_interrupt();
    assert!(cpu.runs(&stop));
    assert!(cpu.block());
    assert!(cpu.runs(&task));
}

#[test]
fn a_wake_up_while_its_cpu_leaves_it_is_not_lost() {
    let m = machine(2);
    let stop = m.cpu(0).spawn_stop("stop").unwrap();
    m.cpu(0).wake(&stop);
    m.cpu(0).leave_interrupt();
    let sleep = m.cpu(0).prepare();
    assert!(m.cpu(0).leave(Reason::Block(sleep)));
    assert_eq!(m.cpu(1).wake(&stop), Woken::Yes);
    assert_eq!(m.loads(), [0, 0]);
    m.cpu(0).arrive();
    assert_eq!(m.loads(), [1, 0]);
    m.cpu(0).leave_interrupt();
    assert!(m.cpu(0).runs(&stop));
}

#[test]
fn it_never_leaves_its_cpu() {
    let m = machine(4);
    let stop = m.cpu(2).spawn_stop("stop").unwrap();
    let _busy = m.cpu(2).spawn_on("busy", &[2]);
    m.cpu(2).leave_interrupt();
    m.cpu(0).wake(&stop);
    assert_eq!(stop.sched.cpu().0, 2, "though others are idle");
}

#[test]
fn a_cpu_has_one() {
    let m = machine(2);
    let first = m.cpu(0).spawn_stop("first").unwrap();
    assert_eq!(m.cpu(0).spawn_stop("second").unwrap_err(), Error::StopTaskTaken(m.cpu(0).id));
    m.cpu(1).spawn_stop("that of CPU 1").unwrap();
    assert_eq!(Arc::strong_count(&first), 2);
}

#[test]
fn when_it_exits_it_is_given_back_and_its_place_is_free() {
    let m = machine(1);
    let cpu = m.cpu(0);
    for _ in 0..3 {
        let stop = cpu.spawn_stop("stop").unwrap();
        cpu.wake(&stop);
        cpu.leave_interrupt();
        drop(cpu.exit());
        assert_eq!(Arc::strong_count(&stop), 1);
        assert!(cpu.is_idle());
    }
}

#[test]
fn neither_it_nor_the_idle_task_takes_parameters_or_a_mask() {
    let m = machine(2);
    let stop = m.cpu(0).spawn_stop("stop").unwrap();
    for task in [&stop, m.idle(0), m.idle(1)] {
        assert_eq!(m.cpu(0).set_params(task, nice(1)), Err(Error::NotFair));
        assert_eq!(m.cpu(0).set_affinity(task, &[1]), Err(Error::NotFair));
        assert_eq!(task.sched.params(), nice(0));
    }
}
