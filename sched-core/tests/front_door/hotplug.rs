//! CPUs that leave and come back: nothing is lost, masks hold as far as they can.

use std::sync::Arc;

use sched_core::{CpuId, Error, TaskState, Woken};

use crate::machine::{MS, Machine, TICK, Task, machine};

/// `cpu`, which is idle, goes offline.
fn go_offline(m: &Machine, cpu: u32) -> Result<(), Error> {
    m.cpu(cpu).go_offline()
}

fn sleeper(m: &Machine, cpu: u32) -> Arc<Task> {
    let task = m.cpu(cpu).spawn_on("sleeper", &[cpu]);
    m.cpu(cpu).leave_interrupt();
    assert!(m.cpu(cpu).block());
    m.cpu(cpu).set_affinity(&task, &[0, 1, 2, 3]).expect("online");
    task
}

#[test]
fn a_cpu_that_left_is_chosen_for_nobody() {
    let m = machine(4);
    let task = sleeper(&m, 2);
    go_offline(&m, 2).expect("idle");
    assert_eq!(m.sched.online().collect::<Vec<_>>(), [CpuId(0), CpuId(1), CpuId(3)]);
    assert_eq!(m.cpu(0).wake(&task), Woken::Yes);
    let fresh: Vec<_> = (0..8).map(|_| m.cpu(0).spawn("fresh")).collect();
    for cpu in [0, 1, 3] {
        m.cpu(cpu).leave_interrupt();
    }
    for _ in 0..20 {
        m.advance(TICK);
        for cpu in [0, 1, 3] {
            m.cpu(cpu).tick();
            m.cpu(cpu).leave_interrupt();
        }
    }
    assert_eq!((m.loads()[2], m.loads().iter().sum::<u64>()), (0, 9), "{fresh:?}");
}

#[test]
fn who_waits_on_a_cpu_that_leaves_moves_and_who_sleeps_there_is_woken_elsewhere() {
    let m = machine(2);
    let stop = m.cpu(1).spawn_stop("stop").expect("a stop task");
    let tasks: Vec<_> = (0..4).map(|at| m.cpu(1).spawn_on(&format!("t{at}"), &[1])).collect();
    m.cpu(1).leave_interrupt();
    // One falls asleep in debt, so the queue keeps it.
    m.advance(3 * MS);
    assert!(m.cpu(1).block());
    let asleep = tasks.iter().find(|task| matches!(task.state(), TaskState::Blocked(_))).expect("one");
    assert!(m.load_of(asleep).is_some(), "it owes nothing: the test is wrong");
    for task in &tasks {
        m.cpu(0).set_affinity(task, &[0, 1]).expect("online");
    }
    m.cpu(0).wake(&stop);
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&stop));
    assert_eq!(m.loads(), [0, 4], "three that are awake, and the stop task");
    go_offline(&m, 1).expect("the stop task runs");
    assert_eq!(m.loads(), [3, 1]);
    assert!(m.load_of(asleep).is_none(), "it has left the queue");
    assert!(m.cpu(1).block() && m.cpu(1).is_idle());
    assert_eq!(m.cpu(1).wake(asleep), Woken::Yes);
    m.cpu(0).leave_interrupt();
    assert_eq!(m.loads(), [4, 0]);
}

#[test]
fn a_task_bound_to_a_cpu_that_left_runs_elsewhere_until_it_is_back() {
    let m = machine(3);
    let bound = m.cpu(0).spawn_on("bound", &[2]);
    m.cpu(2).leave_interrupt();
    assert!(m.cpu(2).block());
    go_offline(&m, 2).expect("idle");
    assert_eq!(m.cpu(1).wake(&bound), Woken::Yes);
    m.cpu(0).leave_interrupt();
    m.cpu(1).leave_interrupt();
    let at = bound.on().expect("it runs");
    assert_ne!(at, CpuId(2));
    // It stays there: it is not pushed around at every decision.
    for _ in 0..3 {
        m.advance(TICK);
        m.cpu(at.0).tick();
        m.cpu(at.0).switch(sched_core::Reason::Yield);
        assert_eq!(bound.on(), Some(at));
    }
    assert_eq!(m.cpu(0).set_affinity(&bound, &[2]), Err(Error::NoOnlineCpu), "a mask must name a CPU that is there");
    let waits = m.cpu(0).spawn_on("waits", &[at.0]);
    m.cpu(2).come_back().expect("it was there");
    m.cpu(at.0).leave_interrupt();
    assert!(m.cpu(at.0).runs(&waits));
    m.cpu(2).leave_interrupt();
    assert_eq!(bound.on(), Some(CpuId(2)));
}

#[test]
fn a_task_that_waits_for_want_of_its_own_cpu_goes_home_when_that_is_back() {
    let m = machine(2);
    let bound = m.cpu(0).spawn_on("bound", &[1]);
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).block());
    let _busy = m.cpu(0).spawn_on("busy", &[0]);
    m.cpu(0).leave_interrupt();
    go_offline(&m, 1).expect("idle");
    assert_eq!(m.cpu(0).wake(&bound), Woken::Yes);
    assert_eq!(m.loads(), [2, 0]);
    m.cpu(1).come_back().expect("it was there");
    assert_eq!(m.loads(), [1, 1], "at once");
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&bound));
}

#[test]
fn a_cpu_that_is_back_is_used_again() {
    let m = machine(2);
    go_offline(&m, 1).expect("idle");
    let tasks: Vec<_> = (0..2).map(|_| m.cpu(0).spawn("task")).collect();
    m.cpu(0).leave_interrupt();
    assert_eq!(m.loads(), [2, 0]);
    m.cpu(1).come_back().expect("it was there");
    m.advance(TICK);
    m.cpu(0).tick();
    m.cpu(1).leave_interrupt();
    assert_eq!(m.loads(), [1, 1], "{tasks:?}");
}

#[test]
fn what_cannot_be_is_refused() {
    let m = machine(2);
    assert_eq!(m.cpu(0).come_back(), Err(Error::AlreadyOnline(CpuId(0))));
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    assert!(m.cpu(0).runs(&task));
    assert_eq!(go_offline(&m, 0), Err(Error::NotIdle(CpuId(0))));
    go_offline(&m, 1).expect("idle");
    assert_eq!(go_offline(&m, 1), Err(Error::NotOnline(CpuId(1))));
    assert!(m.cpu(0).block());
    assert_eq!(go_offline(&m, 0), Err(Error::LastCpu(CpuId(0))));
    for error in [Error::NotOnline(CpuId(1)), Error::NotIdle(CpuId(0)), Error::LastCpu(CpuId(0))] {
        assert!(error.to_string().starts_with("CPU "), "{error}");
    }
}
