//! A CPU is on its way from a task to another one, and others want the task it leaves.

use sched_core::{Reason, SleepKind, TaskState, Woken};

use crate::{at_once, check, machine::Machine};

/// asterinas#1471: decision and switch were not one, and a task ran on two CPUs.
#[test]
fn a_task_that_is_woken_while_it_is_left_is_continued_by_one_cpu() {
    check(|| {
        let m = Machine::new();
        let task = m.running(&[0, 1]);
        let sleep = m.sched.prepare(&m.cpu(0).irq(), SleepKind::Interruptible);
        let wakee = task.clone();
        at_once(
            || {
                // A waker may come before it blocks, while it is left, or after.
                m.cpu(0).switch(Reason::Block(sleep));
                m.cpu(0).leave_interrupt();
            },
            move || {
                assert_eq!(m.cpu(1).wake(&wakee), Woken::Yes);
                m.cpu(1).leave_interrupt();
            },
        );
        m.settle();
        assert_eq!(task.state(), TaskState::Runnable);
        m.nobody_is_lost(&[&task]);
        for cpu in [0, 1] {
            m.cpu(cpu).leave_interrupt();
        }
        assert!(m.cpu(0).runs(&task) != m.cpu(1).runs(&task), "one of the two");
    });
}

#[test]
fn a_task_that_may_not_stay_goes_on_elsewhere_once_it_has_been_left() {
    check(|| {
        let m = Machine::new();
        let task = m.running(&[0, 1]);
        let moved = task.clone();
        at_once(
            || {
                m.cpu(0).switch(Reason::Preempt);
                m.cpu(0).leave_interrupt();
            },
            move || {
                m.cpu(1).set_affinity(&moved, &[1]);
                m.cpu(1).leave_interrupt();
            },
        );
        m.cpu(0).leave_interrupt();
        m.cpu(1).leave_interrupt();
        assert!(m.cpu(1).runs(&task));
        m.nobody_is_lost(&[&task]);
    });
}
