//! Requests to reschedule, kicks, ticks and yields.
//!
//! That a request comes before its kick, that no lock is held then, and that no CPU kicks itself
//! is checked by the machine at every kick of every test.

use sched_core::{Reason, Woken};

use crate::machine::{MS, TICK, machine};

#[test]
fn an_idle_cpu_is_kicked_for_a_new_task() {
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[1]);
    assert_eq!(m.kicks(), [1]);
    assert!(m.cpu(1).need_resched() && !m.cpu(0).need_resched());
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&task));
    assert!(!m.cpu(1).need_resched());
}

#[test]
fn an_idle_cpu_is_kicked_for_a_woken_task() {
    let m = machine(2);
    let task = m.cpu(1).spawn_on("task", &[1]);
    m.cpu(1).leave_interrupt();
    m.cpu(1).block();
    m.kicks();
    m.cpu(0).wake(&task);
    assert_eq!(m.kicks(), [1]);
    assert!(m.cpu(1).need_resched());
}

#[test]
fn a_cpu_does_not_kick_itself() {
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[0]);
    assert!(m.cpu(0).need_resched());
    m.cpu(0).leave_interrupt();
    m.cpu(0).block();
    m.cpu(0).wake(&task);
    assert!(m.cpu(0).need_resched());
    assert_eq!(m.kicks(), [] as [u32; 0]);
}

#[test]
fn requests_that_nobody_has_answered_yet_share_one_kick() {
    let m = machine(2);
    let tasks: Vec<_> = (0..5).map(|_| m.cpu(0).spawn_on("task", &[1])).collect();
    assert_eq!(m.kicks(), [1], "one for five");
    assert_eq!(m.loads(), [0, 5]);
    m.cpu(1).leave_interrupt();
    assert_eq!(m.kicks(), [] as [u32; 0]);
    for task in &tasks {
        m.cpu(1).tick_until_runs(task);
        m.cpu(1).block();
    }
    m.kicks();
    for task in &tasks {
        assert_eq!(m.cpu(0).wake(task), Woken::Yes);
    }
    assert_eq!(m.kicks(), [1]);
}

#[test]
fn after_an_answer_the_next_request_is_kicked_again() {
    let m = machine(2);
    let task = m.cpu(1).spawn_on("task", &[1]);
    for _ in 0..3 {
        m.cpu(1).leave_interrupt();
        assert!(m.cpu(1).runs(&task));
        m.cpu(1).block();
        m.kicks();
        m.cpu(0).wake(&task);
        assert_eq!(m.kicks(), [1]);
    }
}

#[test]
fn a_request_that_comes_during_the_switch_is_kept() {
    let m = machine(2);
    let task = m.cpu(1).spawn_on("task", &[1]);
    m.cpu(1).leave_interrupt();
    let sleep = m.cpu(1).prepare();
    assert!(m.cpu(1).leave(Reason::Block(sleep)));
    m.kicks();
    // CPU 1 is on its way to the idle task.
    let late = m.cpu(0).spawn_on("late", &[1]);
    assert_eq!(m.kicks(), [1]);
    assert!(m.cpu(1).need_resched());
    m.cpu(1).arrive();
    assert!(m.cpu(1).need_resched(), "the switch swallows the request");
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&late));
    drop(task);
}

#[test]
fn a_busy_cpu_is_not_disturbed_for_a_task_that_can_wait() {
    let m = machine(2);
    let busy = m.cpu(1).spawn_on("busy", &[1]);
    m.cpu(1).leave_interrupt();
    m.advance(MS / 10);
    m.kicks();
    let _waits = m.cpu(0).spawn_on("waits", &[1]);
    assert_eq!(m.kicks(), [] as [u32; 0]);
    assert!(!m.cpu(1).need_resched());
    assert!(m.cpu(1).runs(&busy));
}

#[test]
fn a_tick_asks_for_a_switch_when_the_request_of_the_running_task_is_over() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let (first, second) = (cpu.spawn("first"), cpu.spawn("second"));
    cpu.leave_interrupt();
    let (now, then) = if cpu.runs(&first) { (first, second) } else { (second, first) };
    m.advance(MS / 10);
    cpu.tick();
    assert!(!cpu.need_resched(), "it has run for 0.1 of 0.7 ms");
    m.advance(TICK);
    cpu.tick();
    assert!(cpu.need_resched());
    assert!(cpu.runs(&now), "a tick only asks");
    cpu.leave_interrupt();
    assert!(cpu.runs(&then));
}

#[test]
fn a_tick_asks_nothing_of_a_task_that_is_alone() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let task = cpu.spawn("task");
    cpu.leave_interrupt();
    for _ in 0..100 {
        m.advance(TICK);
        cpu.tick();
        assert!(!cpu.need_resched());
    }
    assert!(cpu.runs(&task));
}

#[test]
fn a_tick_of_an_idle_cpu_asks_nothing() {
    let m = machine(1);
    m.advance(TICK);
    m.cpu(0).tick();
    assert!(!m.cpu(0).need_resched());
}

#[test]
fn a_tick_counts_also_if_somebody_looked_at_the_clock_in_the_same_nanosecond() {
    // A clock that moves only at ticks: whatever charges the task first leaves nothing for the tick to charge.
    let m = machine(1);
    let cpu = m.cpu(0);
    let (first, second) = (cpu.spawn("first"), cpu.spawn("second"));
    cpu.leave_interrupt();
    m.advance(TICK);
    m.stats(&first);
    m.stats(&second);
    cpu.tick();
    assert!(cpu.need_resched(), "the request of the running task is over");
}

#[test]
fn yielding_lets_the_other_go_first_and_alone_it_changes_nothing() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let first = cpu.spawn("first");
    cpu.leave_interrupt();
    assert!(!cpu.leave(Reason::Yield), "nobody to yield to");
    assert!(cpu.runs(&first));

    let second = cpu.spawn("second");
    let (mut firsts, mut seconds) = (0, 0);
    for _ in 0..100 {
        m.advance(MS / 10);
        cpu.switch(Reason::Yield);
        firsts += u32::from(cpu.runs(&first));
        seconds += u32::from(cpu.runs(&second));
    }
    assert!(firsts.abs_diff(seconds) <= 10, "{firsts} to {seconds}");
}

#[test]
fn an_idle_cpu_that_yields_stays() {
    let m = machine(1);
    assert!(!m.cpu(0).leave(Reason::Yield));
    assert!(!m.cpu(0).leave(Reason::Preempt));
    assert!(m.cpu(0).is_idle());
}

#[test]
fn a_decision_to_stay_answers_the_request_too() {
    // The machine checks after each decision that nothing is pending; here it comes to Stay.
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    m.cpu(1).set_params(&task, crate::machine::nice(1)).unwrap();
    assert!(m.cpu(0).need_resched());
    assert!(!m.cpu(0).leave(Reason::Preempt));
    assert!(!m.cpu(0).need_resched());
}

#[test]
fn switches_are_counted_where_they_happen() {
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    m.cpu(0).block();
    m.cpu(0).wake(&task);
    m.cpu(0).leave_interrupt();
    // SAFETY: one thread is all CPUs.
    let irq = unsafe { sched_core::IrqOff::assert() };
    assert_eq!(m.cpus().map(|cpu| m.sched.switches(&irq, cpu.id)).collect::<Vec<_>>(), [3, 0]);
    assert_eq!(m.sched.switches(&irq, sched_core::CpuId(9)), 0);
}
