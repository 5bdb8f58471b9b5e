// DragonOS users (DragonOS-Community/DragonOS#571, later #1421) saw two CPUs on one stack:
// the balancer had moved the task that was running, and its queue pointer still named the old queue.
// A task moves only when no CPU is on it, and from then on everything finds it where it is.

use sched_core::Reason;

use crate::machine::{TICK, machine, nice};

#[test]
fn a_move_waits_until_the_cpu_has_left_the_task() {
    let m = machine(2);
    let (task, other) = (m.cpu(0).spawn_on("task", &[0]), m.cpu(0).spawn_on("other", &[0]));
    m.cpu(0).tick_until_runs(&task);
    m.cpu(1).set_affinity(&task, &[1]).unwrap();
    assert_eq!((task.on(), m.loads()), (Some(m.cpu(0).id), vec![2, 0]));
    assert!(m.cpu(0).leave(Reason::Preempt));
    assert_eq!((task.on(), m.loads()), (Some(m.cpu(0).id), vec![1, 0]));
    m.cpu(0).arrive();
    assert_eq!((task.on(), m.loads()), (None, vec![1, 1]));

    // Nice value and statistics reach it on its new queue, and a wait is counted there.
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&task));
    m.cpu(0).set_params(&task, nice(7)).unwrap();
    assert!(m.cpu(1).need_resched());
    m.advance(TICK);
    assert_eq!(m.stats(&task).sum_exec_runtime, TICK);
    assert!(m.cpu(0).runs(&other));
}
