//! Where tasks may run.

use sched_core::{Error, Reason, SleepKind, Spawn, Switch, TaskState, Woken};

use crate::machine::{Machine, START, TICK, machine, mask};
use sched_core::State;

#[test]
fn a_waiting_task_moves_at_once() {
    let m = machine(2);
    let running = m.cpu(0).spawn_on("running", &[0]);
    m.cpu(0).leave_interrupt();
    let waiting = m.cpu(0).spawn_on("waiting", &[0]);
    m.kicks();
    for mover in [0, 1] {
        m.cpu(mover).set_affinity(&waiting, &[1]).unwrap();
        assert_eq!(m.loads(), [1, 1]);
        assert_eq!(waiting.sched.cpu().0, 1);
        assert_eq!(m.kicks(), if mover == 0 { vec![1] } else { vec![] }, "an idle CPU is asked to look");
        m.cpu(1).leave_interrupt();
        assert!(m.cpu(1).runs(&waiting));
        // And back, by way of its own CPU.
        m.cpu(1).set_affinity(&waiting, &[0]).unwrap();
        m.cpu(1).leave_interrupt();
        assert_eq!(m.loads(), [2, 0]);
        m.kicks();
    }
    assert!(m.cpu(0).runs(&running));
}

#[test]
fn a_waiting_task_stays_if_it_may() {
    let m = machine(2);
    let _running = m.cpu(0).spawn_on("running", &[0]);
    m.cpu(0).leave_interrupt();
    let waiting = m.cpu(0).spawn_on("waiting", &[0]);
    m.kicks();
    m.cpu(1).set_affinity(&waiting, &[0, 1]).unwrap();
    assert_eq!(m.loads(), [2, 0]);
    assert_eq!(m.kicks(), [] as [u32; 0]);
}

#[test]
fn a_running_task_moves_at_its_next_reschedule_which_is_requested() {
    for mover in [0, 1, 2] {
        let m = machine(3);
        let task = m.cpu(0).spawn_on("task", &[0]);
        m.cpu(0).leave_interrupt();
        m.kicks();
        m.cpu(mover).set_affinity(&task, &[2]).unwrap();
        assert!(m.cpu(0).runs(&task), "it is not torn from its CPU");
        assert_eq!(m.loads(), [1, 0, 0]);
        assert!(m.cpu(0).need_resched());
        assert_eq!(m.kicks(), if mover == 0 { vec![] } else { vec![0] });

        assert!(m.cpu(0).leave(Reason::Preempt));
        assert_eq!(m.loads(), [0, 0, 0], "on no queue while its CPU leaves it");
        m.cpu(0).arrive();
        assert_eq!(m.loads(), [0, 0, 1]);
        assert_eq!(m.kicks(), [2]);
        m.cpu(2).leave_interrupt();
        assert!(m.cpu(2).runs(&task));
        assert!(m.cpu(0).is_idle());
    }
}

#[test]
fn a_running_task_that_is_allowed_back_in_time_stays() {
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    m.cpu(1).set_affinity(&task, &[1]).unwrap();
    m.cpu(1).set_affinity(&task, &[0]).unwrap();
    assert!(!m.cpu(0).leave(Reason::Preempt));
    assert!(m.cpu(0).runs(&task));
}

#[test]
fn a_yield_on_a_forbidden_cpu_moves_too() {
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    m.cpu(1).set_affinity(&task, &[1]).unwrap();
    assert!(m.cpu(0).leave(Reason::Yield));
    m.cpu(0).arrive();
    assert_eq!(m.loads(), [0, 1]);
}

#[test]
fn a_sleeping_task_comes_back_where_it_may() {
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    m.cpu(0).block();
    m.cpu(0).set_affinity(&task, &[1]).unwrap();
    assert_eq!(task.state(), TaskState::Blocked(SleepKind::Interruptible), "it is not woken");
    assert_eq!(m.loads(), [0, 0]);
    m.cpu(0).wake(&task);
    assert_eq!(m.loads(), [0, 1]);
}

#[test]
fn a_task_that_goes_to_sleep_on_a_forbidden_cpu_sleeps() {
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    m.cpu(1).set_affinity(&task, &[1]).unwrap();
    assert!(m.cpu(0).block());
    assert_eq!(m.loads(), [0, 0]);
    assert_eq!(m.cpu(0).wake(&task), Woken::Yes);
    assert_eq!(m.loads(), [0, 1]);
}

#[test]
fn a_preempted_task_that_its_cpu_is_leaving_is_moved_after_it_has_left() {
    let m = machine(2);
    let cpu = m.cpu(0);
    let (task, other) = (cpu.spawn_on("task", &[0]), cpu.spawn_on("other", &[0]));
    cpu.tick_until_runs(&task);
    while !cpu.leave(Reason::Preempt) {
        m.advance(TICK);
        cpu.tick();
    }
    assert!(cpu.runs(&other));
    assert_eq!(m.loads(), [2, 0]);
    m.cpu(1).set_affinity(&task, &[1]).unwrap();
    assert_eq!(m.loads(), [1, 0], "on no queue, and not on that of another CPU yet");
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).is_idle(), "CPU 0 is still on it");
    // Again, while the placement has an owner: the owner looks at the mask that counts then.
    m.cpu(1).set_affinity(&task, &[0]).unwrap();
    m.cpu(1).set_affinity(&task, &[1]).unwrap();

    m.kicks();
    cpu.arrive();
    assert_eq!(m.loads(), [1, 1]);
    assert_eq!(m.kicks(), [1]);
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&task));
}

#[test]
fn a_blocked_task_that_its_cpu_is_leaving_is_placed_by_the_mask_of_the_moment() {
    let m = machine(3);
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    let sleep = m.cpu(0).prepare();
    assert!(m.cpu(0).leave(Reason::Block(sleep)));
    m.cpu(1).set_affinity(&task, &[1]).unwrap();
    m.cpu(1).wake(&task);
    m.cpu(1).set_affinity(&task, &[2]).unwrap();
    assert_eq!(m.loads(), [0, 0, 0]);
    m.cpu(0).arrive();
    assert_eq!(m.loads(), [0, 0, 1]);
}

#[test]
fn a_mask_without_an_online_cpu_is_refused_and_changes_nothing() {
    let m = Machine::<Switch, Switch>::offline(vec![START; 3], State::On);
    m.cpu(0).bring_online();
    m.cpu(1).bring_online();
    let task = m.cpu(0).spawn_on("task", &[0]);
    assert_eq!(m.cpu(0).set_affinity(&task, &[2]), Err(Error::NoOnlineCpu));
    assert_eq!(m.cpu(0).set_affinity(&task, &[]), Err(Error::NoOnlineCpu));
    assert_eq!(task.sched.affinity(), mask(&[0]));
    assert_eq!(m.loads(), [1, 0, 0]);
    // One that is online is enough, and a CPU that comes later counts from then on.
    m.cpu(0).set_affinity(&task, &[1, 2]).unwrap();
    assert_eq!(m.loads(), [0, 1, 0]);
    m.cpu(2).bring_online();
    m.cpu(0).set_affinity(&task, &[2]).unwrap();
    assert_eq!(m.loads(), [0, 0, 1]);
}

#[test]
fn a_cpu_that_is_not_online_gets_no_task() {
    let m = Machine::<Switch, Switch>::offline(vec![START; 4], State::On);
    m.cpu(1).bring_online();
    m.cpu(2).bring_online();
    assert_eq!(m.sched.online().map(|cpu| cpu.0).collect::<Vec<_>>(), [1, 2]);
    let tasks: Vec<_> = (0..6).map(|_| m.cpu(1).spawn("task")).collect();
    assert_eq!(m.loads(), [0, 3, 3, 0]);
    for task in &tasks {
        m.cpu(task.sched.cpu().0).tick_until_runs(task);
    }
}

#[test]
fn a_spawned_task_keeps_to_its_mask() {
    let m = machine(4);
    for cpus in [&[3][..], &[0, 2], &[1, 2, 3]] {
        let before = m.loads();
        let spawn = Spawn { affinity: mask(cpus), ..Spawn::default() };
        let task = m.cpu(0).spawn_with("task", spawn);
        assert!(cpus.contains(&task.sched.cpu().0));
        let grown: Vec<_> = (0..4).filter(|&cpu| m.loads()[cpu] > before[cpu]).collect();
        assert_eq!(grown, [task.sched.cpu().index()]);
    }
}

#[test]
fn a_moved_task_goes_on_with_the_request_it_was_in() {
    // Two CPUs: requests of 1.4 ms, the first one of a new task half of that.
    for how in ["running", "waiting"] {
        let m = machine(2);
        let (task, stop) = (m.cpu(0).spawn_on("task", &[0]), m.cpu(0).spawn_stop("stop").unwrap());
        m.cpu(0).leave_interrupt();
        m.advance(600_000);
        if how == "waiting" {
            m.cpu(0).wake(&stop);
            m.cpu(0).leave_interrupt();
        }
        m.cpu(1).set_affinity(&task, &[1]).unwrap();
        m.cpu(0).leave_interrupt();
        m.cpu(1).leave_interrupt();
        assert!(m.cpu(1).runs(&task));
        let _rival = m.cpu(1).spawn_on("rival", &[1]);
        // 0.1 ms of its request is left, not a whole new one.
        m.advance(50_000);
        m.cpu(1).tick();
        assert!(!m.cpu(1).need_resched(), "{how}: it is cut short");
        m.advance(100_000);
        m.cpu(1).tick();
        assert!(m.cpu(1).need_resched(), "{how}: it starts anew");
    }
}
