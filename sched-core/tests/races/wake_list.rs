//! Tasks that are woken for an idle CPU are left to it in a list.

use std::sync::Arc;

use sched_core::{TaskState, Woken};

use crate::{
    at_once, check,
    machine::{Machine, Task},
};

/// Two tasks asleep that may run on CPU 1 only, which idles.
fn two_asleep(m: Machine) -> [Arc<Task>; 2] {
    let tasks = [m.running(&[0]), m.waiting(&[0])];
    assert!(m.cpu(0).block() && m.cpu(0).block());
    for task in &tasks {
        m.cpu(0).set_affinity(task, &[1]);
    }
    tasks
}

/// CPU 0 wakes both.
fn wake_both(m: Machine, tasks: &[Arc<Task>; 2]) {
    for task in tasks {
        assert_eq!(m.cpu(0).wake(task), Woken::Yes);
    }
}

fn both_came(m: Machine, tasks: &[Arc<Task>; 2]) {
    m.settle();
    assert!(tasks.iter().all(|task| task.state() == TaskState::Runnable));
    m.nobody_is_lost(&[&tasks[0], &tasks[1]]);
}

#[test]
fn who_is_woken_while_the_list_is_taken_in_is_taken_in_too() {
    check(|| {
        let m = Machine::new();
        let tasks = two_asleep(m);
        let known = tasks.clone();
        at_once(|| wake_both(m, &tasks), move || m.cpu(1).idle_until_runs(&[&known[0], &known[1]]));
        both_came(m, &tasks);
    });
}

#[test]
fn a_cpu_that_polls_and_then_halts_misses_nobody() {
    check(|| {
        let m = Machine::new();
        let tasks = two_asleep(m);
        let known = tasks.clone();
        at_once(|| wake_both(m, &tasks), move || m.cpu(1).poll_until_runs(&[&known[0], &known[1]]));
        both_came(m, &tasks);
    });
}

#[test]
fn a_task_in_the_list_goes_where_a_new_mask_allows_it() {
    check(|| {
        let m = Machine::new();
        let [task, other] = two_asleep(m);
        m.cpu(0).set_affinity(&task, &[0, 1]);
        let busy = m.running(&[0]);
        let moved = task.clone();
        at_once(
            || {
                assert_eq!(m.cpu(0).wake(&task), Woken::Yes);
                m.cpu(0).set_affinity(&task, &[0]);
            },
            move || {
                m.cpu(1).leave_interrupt();
                drop(moved);
            },
        );
        m.settle();
        m.settle();
        assert_eq!(task.sched.cpu().0, 0, "{:?}", task.sched);
        m.nobody_is_lost(&[&task, &busy]);
        drop(other);
    });
}
