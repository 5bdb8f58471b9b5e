//! A sleeper in debt waits on in its queue: its waker and the end of its wait meet.

use sched_core::{Reason, TaskState, Woken};

use crate::{at_once, check, machine::Machine};

#[test]
fn a_waker_sees_what_the_queue_of_a_delayed_sleeper_left() {
    check(|| {
        let m = Machine::new();
        let [debtor, other] = m.delayed();
        m.pass(20_000_000);
        let wakee = debtor.clone();
        // Its turn comes on CPU 0, while CPU 1, which is idle, takes it.
        at_once(|| _ = m.cpu(0).switch(Reason::Preempt), move || assert_eq!(m.cpu(1).wake(&wakee), Woken::Yes));
        m.settle();
        assert_eq!(debtor.state(), TaskState::Runnable);
        m.nobody_is_lost(&[&debtor, &other]);
    });
}

#[test]
fn a_waker_sees_what_a_new_mask_left_of_a_delayed_sleeper() {
    check(|| {
        let m = Machine::new();
        let [debtor, other] = m.delayed();
        let wakee = debtor.clone();
        at_once(|| m.cpu(0).set_affinity(&debtor, &[1]), move || assert_eq!(m.cpu(1).wake(&wakee), Woken::Yes));
        m.settle();
        assert_eq!(debtor.state(), TaskState::Runnable);
        m.nobody_is_lost(&[&debtor, &other]);
    });
}
