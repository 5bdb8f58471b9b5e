//! A task that waits is moved while others want something of it.

use sched_core::{CpuId, TaskState};

use crate::{at_once, check, machine::Machine};

/// CPU 1 runs a task that will block; then it looks for another one.
fn about_to_idle(m: Machine) -> std::sync::Arc<crate::machine::Task> {
    let brief = m.cpu(0).spawn(&[1]);
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&brief));
    brief
}

#[test]
fn a_task_is_pulled_only_where_its_mask_allows() {
    check(|| {
        let m = Machine::new();
        let (first, waits) = (m.running(&[0]), m.waiting(&[0, 1]));
        let brief = about_to_idle(m);
        at_once(|| m.cpu(0).set_affinity(&waits, &[0]), move || _ = m.cpu(1).block());
        m.cpu(1).leave_interrupt();
        m.cpu(0).leave_interrupt();
        assert_eq!(waits.sched.cpu(), CpuId(0), "{:?}", waits.sched);
        m.nobody_is_lost(&[&first, &waits, &brief]);
    });
}

#[test]
fn of_a_pull_and_a_pick_one_gets_the_task() {
    check(|| {
        let m = Machine::new();
        let (first, waits) = (m.running(&[0]), m.waiting(&[0, 1]));
        let brief = about_to_idle(m);
        at_once(|| _ = m.cpu(0).block(), move || _ = m.cpu(1).block());
        m.cpu(0).leave_interrupt();
        m.cpu(1).leave_interrupt();
        assert!(m.cpu(0).runs(&waits) != m.cpu(1).runs(&waits), "one of the two");
        m.nobody_is_lost(&[&first, &waits, &brief]);
    });
}

#[test]
fn of_a_pull_and_a_gift_one_moves_the_task() {
    check(|| {
        let m = Machine::new();
        let (first, waits) = (m.running(&[0]), m.waiting(&[0, 1]));
        let brief = about_to_idle(m);
        at_once(|| m.cpu(0).tick(), move || _ = m.cpu(1).block());
        m.cpu(1).leave_interrupt();
        assert!(m.cpu(1).runs(&waits), "CPU 1 has nothing else to do");
        assert_eq!(first.state(), TaskState::Runnable);
        m.nobody_is_lost(&[&first, &waits, &brief]);
    });
}
