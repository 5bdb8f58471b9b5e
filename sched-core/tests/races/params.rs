//! Parameters change while a task is placed.

use sched_core::{CpuId, Nice, TaskParams, TaskState, Woken};

use crate::{at_once, check, machine::Machine};

#[test]
fn a_task_is_placed_where_the_last_mask_allows_it() {
    check(|| {
        let m = Machine::new();
        let task = m.running(&[0]);
        assert!(m.cpu(0).block());
        let moved = task.clone();
        at_once(|| assert_eq!(m.cpu(0).wake(&task), Woken::Yes), move || m.cpu(1).set_affinity(&moved, &[1]));
        m.cpu(0).leave_interrupt();
        m.cpu(1).leave_interrupt();
        assert!(m.cpu(1).runs(&task), "{:?}", task.sched);
        m.nobody_is_lost(&[&task]);
    });
}

/// A task that slept on CPU 0, where somebody else runs now, so that it wakes on CPU 1 if it may.
fn asleep_beside_a_busy_cpu(m: Machine) -> [std::sync::Arc<crate::machine::Task>; 2] {
    let task = m.running(&[0]);
    // Alone it owes nothing when it falls asleep.
    assert!(m.cpu(0).block());
    let busy = m.running(&[0]);
    m.cpu(0).set_affinity(&task, &[0, 1]);
    [task, busy]
}

#[test]
fn a_task_that_wakes_elsewhere_ends_up_where_the_last_mask_allows_it() {
    check(|| {
        let m = Machine::new();
        let [task, busy] = asleep_beside_a_busy_cpu(m);
        let wakee = task.clone();
        at_once(|| m.cpu(0).set_affinity(&task, &[0]), move || assert_eq!(m.cpu(1).wake(&wakee), Woken::Yes));
        m.cpu(1).leave_interrupt();
        assert_eq!(task.sched.cpu(), CpuId(0), "{:?}", task.sched);
        m.nobody_is_lost(&[&task, &busy]);
    });
}

#[test]
fn a_nice_value_set_while_a_task_wakes_elsewhere_counts() {
    check(|| {
        let m = Machine::new();
        let [task, busy] = asleep_beside_a_busy_cpu(m);
        let wakee = task.clone();
        at_once(
            || m.sched.set_params(&m.cpu(0).irq(), &task, light()).expect("a fair task"),
            move || assert_eq!(m.cpu(1).wake(&wakee), Woken::Yes),
        );
        m.cpu(1).leave_interrupt();
        assert!(m.cpu(1).runs(&task));
        weighs_light(m, 1, &task);
        m.nobody_is_lost(&[&task, &busy]);
    });
}

#[test]
fn a_nice_value_set_during_a_placement_counts() {
    check(|| {
        let m = Machine::new();
        let task = m.running(&[0]);
        assert!(m.cpu(0).block());
        let renamed = task.clone();
        at_once(
            || assert_eq!(m.cpu(0).wake(&task), Woken::Yes),
            move || m.sched.set_params(&m.cpu(1).irq(), &renamed, light()).expect("a fair task"),
        );
        m.settle();
        assert_eq!(task.state(), TaskState::Runnable);
        m.cpu(0).leave_interrupt();
        weighs_light(m, 0, &task);
    });
}

fn light() -> TaskParams {
    TaskParams { nice: Nice::new(19).expect("in range"), ..TaskParams::default() }
}

/// The queue of `cpu`, which runs `task`, knows how light it is.
fn weighs_light(m: Machine, cpu: u32, task: &std::sync::Arc<crate::machine::Task>) {
    // A second of running makes the load that of the weight.
    m.pass(1_000_000_000);
    m.cpu(cpu).tick();
    let load = m.sched.task_load(&m.cpu(cpu).irq(), task).expect("queued").load_avg();
    assert!(load <= 15, "the queue takes it for a task of weight {load}");
}
