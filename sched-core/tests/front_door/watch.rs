//! The work-conservation watch: an idle CPU, a task that waits elsewhere and may run there, for too long.
//! wastedcores (2016): ready threads waited while cores idled for long, and no tool of the time showed it.

use std::sync::Arc;

use sched_core::{CpuId, IdleWhileWaiting, State, Switch, WatchReport};

use crate::machine::{MS, Machine, TICK, Task, machine};

const BOUND: u64 = 10 * MS;

/// On CPU 0 one task runs and one waits. Every other CPU is idle, and both may run on the CPUs of `mask`.
fn crowded(m: &Machine, mask: &[u32]) -> (Arc<Task>, Arc<Task>) {
    m.sched.set_idle_bound(BOUND);
    let (a, b) = (m.cpu(0).spawn_on("a", &[0]), m.cpu(0).spawn_on("b", &[0]));
    m.cpu(0).leave_interrupt();
    m.cpu(0).set_affinity(&a, mask).expect("CPU 0 is online");
    m.cpu(0).set_affinity(&b, mask).expect("CPU 0 is online");
    (a, b)
}

/// CPU `cpu` ticks after `nanos`.
fn tick_after(m: &Machine, cpu: u32, nanos: u64) {
    m.advance(nanos);
    m.cpu(cpu).tick();
}

fn report(m: &Machine) -> WatchReport {
    m.sched.watch_report().expect("the watch is on")
}

#[test]
fn a_task_that_waits_while_a_cpu_idles_is_seen_by_a_late_tick() {
    for (late, violations) in [(BOUND, 0), (BOUND + 1, 1)] {
        let m = machine(2);
        crowded(&m, &[0, 1]);
        tick_after(&m, 0, late);
        let worst = IdleWhileWaiting { idle: CpuId(1), waits_on: CpuId(0), nanos: late };
        let worst = Some(worst).filter(|_| violations == 1);
        assert_eq!(report(&m), WatchReport { bound: BOUND, violations, worst });
    }
}

#[test]
fn one_stretch_of_idleness_is_counted_once_and_another_again() {
    let m = machine(3);
    let busy = m.cpu(2).spawn_on("busy", &[2]);
    m.cpu(2).leave_interrupt();
    assert!(m.cpu(2).runs(&busy));
    crowded(&m, &[0, 1]);
    let late = 2 * BOUND;
    tick_after(&m, 0, late);
    let worst = IdleWhileWaiting { idle: CpuId(1), waits_on: CpuId(0), nanos: late };
    assert_eq!(report(&m), WatchReport { bound: BOUND, violations: 1, worst: Some(worst) });
    // CPU 1 was given a task and has not turned to it yet when somebody is seen to wait on CPU 2, too.
    let waits = m.cpu(2).spawn_on("waits", &[2]);
    m.cpu(2).set_affinity(&waits, &[1, 2]).expect("online");
    tick_after(&m, 2, late);
    let worst = IdleWhileWaiting { idle: CpuId(1), waits_on: CpuId(2), nanos: late };
    assert_eq!(report(&m).violations, 1, "the same stretch");
    assert_eq!(report(&m).worst.map(|worst| worst.nanos), Some(late), "{worst:?} is no longer than the one before");
    // Another stretch is another violation.
    m.cpu(1).leave_interrupt();
    while !m.cpu(1).is_idle() {
        assert!(m.cpu(1).block());
    }
    let again = m.cpu(2).spawn_on("again", &[2]);
    m.cpu(2).set_affinity(&again, &[1, 2]).expect("online");
    tick_after(&m, 2, 2 * late);
    assert_eq!(report(&m).violations, 2);
    assert_eq!(report(&m).worst.map(|worst| worst.nanos), Some(2 * late), "the longest is kept");
}

#[test]
fn who_may_not_run_on_the_idle_cpu_does_not_wait_for_it() {
    let m = machine(2);
    crowded(&m, &[0]);
    for _ in 0..3 {
        tick_after(&m, 0, 10 * BOUND);
    }
    assert_eq!(report(&m).violations, 0);
}

#[test]
fn a_wait_counts_from_its_beginning() {
    let m = machine(2);
    let (a, b) = crowded(&m, &[0]);
    // The two take turns of a tick, so nobody ever waits for 10 ms, however long CPU 1 has been idle.
    for _ in 0..25 {
        tick_after(&m, 0, TICK);
        m.cpu(0).leave_interrupt();
    }
    m.cpu(0).set_affinity(&a, &[0, 1]).expect("online");
    m.cpu(0).set_affinity(&b, &[0, 1]).expect("online");
    m.sched.set_idle_bound(TICK / 2);
    tick_after(&m, 0, TICK);
    let report = report(&m);
    assert_eq!(report.violations, 1);
    assert!(report.worst.expect("one").nanos <= 2 * TICK, "{report:?}");
}

#[test]
fn who_sleeps_in_debt_does_not_wait() {
    let m = machine(2);
    let (a, b) = crowded(&m, &[0, 1]);
    m.advance(2 * MS);
    assert!(m.cpu(0).block());
    let debtor = if m.cpu(0).runs(&a) { b } else { a };
    assert!(m.load_of(&debtor).is_some(), "it owes nothing: the test is wrong");
    for _ in 0..3 {
        tick_after(&m, 0, 10 * BOUND);
    }
    assert_eq!(report(&m).violations, 0);
}

#[test]
fn a_watch_that_is_off_sees_nothing() {
    let m = Machine::<Switch, Switch>::new(2, State::Off);
    crowded(&m, &[0, 1]);
    tick_after(&m, 0, 10 * BOUND);
    assert_eq!(m.sched.watch_report(), None);
}
