//! A task exits while others still know it.

use std::sync::Arc;

use sched_core::{Reason, TaskState, Woken};

use crate::{at_once, check, machine::Machine};

/// zephyr#58040: memory was used again before the thread was off its CPU.
#[test]
fn an_exit_gives_the_task_back_once_whoever_wakes_it() {
    check(|| {
        let m = Machine::new();
        let task = m.running(&[0]);
        let wakee = task.clone();
        at_once(|| assert!(m.cpu(0).switch(Reason::Exit)), move || assert_eq!(m.cpu(1).wake(&wakee), Woken::No));
        assert_eq!(task.state(), TaskState::Dead);
        assert_eq!(Arc::strong_count(&task), 1, "the scheduler's own is back");
        m.nobody_is_lost(&[]);
    });
}

#[test]
fn an_exit_beside_a_new_mask_is_an_exit() {
    check(|| {
        let m = Machine::new();
        let task = m.running(&[0, 1]);
        let moved = task.clone();
        at_once(|| assert!(m.cpu(0).switch(Reason::Exit)), move || m.cpu(1).set_affinity(&moved, &[1]));
        assert_eq!(task.state(), TaskState::Dead);
        assert_eq!(Arc::strong_count(&task), 1);
        m.nobody_is_lost(&[]);
    });
}
