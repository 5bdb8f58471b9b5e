//! The work-conservation watch: an idle CPU, a task that waits elsewhere and may run there, for too long.
//! wastedcores (2016): ready threads waited while cores idled for long, and no tool of the time showed it.

use std::sync::Arc;

use sched_core::{CpuId, IdleWhileWaiting, State, Switch, WatchReport};

use crate::machine::{MS, Machine, TICK, Task, machine};

const BOUND: u64 = 10 * MS;

/// CPU 1 is idle; on CPU 0 one task runs and one waits, and both may run on the CPUs of `mask`.
fn crowded(m: &Machine, mask: &[u32]) -> (Arc<Task>, Arc<Task>) {
    m.sched.set_idle_bound(BOUND);
    // Whoever keeps CPU 1 busy while the two are placed.
    let brief = m.cpu(0).spawn_on("brief", &[1]);
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&brief));
    let (a, b) = (m.cpu(0).spawn_on("a", &[0]), m.cpu(0).spawn_on("b", &[0]));
    m.cpu(0).leave_interrupt();
    m.cpu(0).set_affinity(&a, mask).expect("CPU 0 is online");
    m.cpu(0).set_affinity(&b, mask).expect("CPU 0 is online");
    assert!(m.cpu(1).block());
    (a, b)
}

fn tick_for(m: &Machine, nanos: u64) {
    for _ in 0..nanos / TICK {
        m.advance(TICK);
        m.cpu(0).tick();
        m.cpu(0).leave_interrupt();
    }
}

fn report(m: &Machine) -> WatchReport {
    m.sched.watch_report().expect("the watch is on")
}

#[test]
fn a_task_that_waits_while_a_cpu_idles_is_seen_and_counted_once() {
    let m = machine(2);
    let (a, b) = crowded(&m, &[0, 1]);
    // Nobody gives way, so that one of the two waits all the time.
    let waits = if m.cpu(0).runs(&a) { &b } else { &a };
    for _ in 0..2 {
        m.advance(TICK);
        m.cpu(0).tick();
    }
    assert_eq!(report(&m), WatchReport { bound: BOUND, violations: 0, worst: None }, "8 ms are within the bound");
    for ticks in 3..20 {
        m.advance(TICK);
        m.cpu(0).tick();
        let worst = IdleWhileWaiting { idle: CpuId(1), waits_on: CpuId(0), nanos: ticks * TICK };
        assert_eq!(report(&m), WatchReport { bound: BOUND, violations: 1, worst: Some(worst) });
    }
    // Another stretch of idleness is another violation, and the longest stays.
    let worst = report(&m).worst;
    m.cpu(1).wake(&spawned_asleep(&m));
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).block());
    for _ in 0..4 {
        m.advance(TICK);
        m.cpu(0).tick();
    }
    assert_eq!(report(&m), WatchReport { bound: BOUND, violations: 2, worst });
    assert!(!m.cpu(0).runs(waits));
}

/// A task of CPU 1 that sleeps.
fn spawned_asleep(m: &Machine) -> Arc<Task> {
    let task = m.cpu(1).spawn_on("sleeper", &[1]);
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).block());
    task
}

#[test]
fn who_may_not_run_on_the_idle_cpu_does_not_wait_for_it() {
    let m = machine(2);
    crowded(&m, &[0]);
    tick_for(&m, 100 * MS);
    assert_eq!(report(&m).violations, 0);
}

#[test]
fn a_wait_counts_from_its_beginning() {
    let m = machine(2);
    crowded(&m, &[0, 1]);
    // The two take turns of a tick, so nobody ever waits for 10 ms.
    tick_for(&m, 100 * MS);
    assert_eq!(report(&m).violations, 0);
    m.sched.set_idle_bound(TICK / 2);
    tick_for(&m, 100 * MS);
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
    for _ in 0..20 {
        m.advance(TICK);
        m.cpu(0).tick();
    }
    assert_eq!(report(&m).violations, 0);
}

#[test]
fn a_watch_that_is_off_sees_nothing() {
    let m = Machine::<Switch, Switch>::new(2, State::Off);
    crowded(&m, &[0, 1]);
    for _ in 0..20 {
        m.advance(TICK);
        m.cpu(0).tick();
    }
    assert_eq!(m.sched.watch_report(), None);
}
