//! Prepare, check, block on one CPU; set, wake on another.

use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use sched_core::{Reason, SleepKind, TaskState};

use crate::{at_once, check, machine::Machine};

#[test]
fn a_wake_up_is_never_lost_between_check_and_block() {
    check(|| {
        let m = Machine::new();
        let task = m.running(&[0]);
        let condition = std::sync::Arc::new(AtomicBool::new(false));
        let (wakee, set) = (task.clone(), condition.clone());
        at_once(
            || {
                let sleep = m.sched.prepare(&m.cpu(0).irq(), SleepKind::Interruptible);
                // The weakest load there is: the fences of the scheduler must do.
                if condition.load(Relaxed) {
                    sleep.cancel();
                } else {
                    m.cpu(0).switch(Reason::Block(sleep));
                }
            },
            move || {
                set.store(true, Relaxed);
                m.cpu(1).wake(&wakee);
            },
        );
        m.settle();
        assert_eq!(task.state(), TaskState::Runnable);
        m.nobody_is_lost(&[&task]);
    });
}

#[test]
fn of_two_wakers_one_wakes() {
    check(|| {
        let m = Machine::new();
        let task = m.running(&[0]);
        assert!(m.cpu(0).block());
        let wakee = task.clone();
        let other = loom::thread::spawn(move || m.cpu(1).wake(&wakee));
        let woken = [m.cpu(0).wake(&task), other.join().expect("no failure")];
        assert_eq!(woken.iter().filter(|woken| **woken == sched_core::Woken::Yes).count(), 1);
        m.nobody_is_lost(&[&task]);
    });
}
