// StarryOS users (rcore-os/tgoskits#926) saw `cargo -j8` in their guest stall until some unrelated tick:
// a wake-up put the task on the queue of another CPU and told nobody.
// A wake-up for a CPU that is idle, or runs something that should give way, kicks that CPU.

use sched_core::{Policy, Spawn, TaskParams};

use crate::machine::{machine, mask};

#[test]
fn an_idle_cpu_and_one_that_runs_something_lesser_are_kicked() {
    let m = machine(2);
    let task = m.cpu(1).spawn_on("task", &[1]);
    m.cpu(1).leave_interrupt();
    m.cpu(1).block();
    m.kicks();
    m.cpu(0).wake(&task);
    assert_eq!(m.kicks(), [1], "idle");

    m.cpu(1).leave_interrupt();
    m.cpu(1).block();
    let params = TaskParams { policy: Policy::Idle, ..TaskParams::default() };
    let lesser = m.cpu(1).spawn_with("lesser", Spawn { params, affinity: mask(&[1]) });
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&lesser));
    m.kicks();
    m.cpu(0).wake(&task);
    assert_eq!(m.kicks(), [1], "busy with what may wait");
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&task));
}
