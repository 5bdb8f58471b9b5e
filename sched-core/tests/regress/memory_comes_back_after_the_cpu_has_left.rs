// Zephyr users (zephyrproject-rtos/zephyr#58040, also #58089, #60815 and #21903) saw threads abort and join,
// their memory be used again, and a CPU still save registers to the old stack.
// A dead task is given back by the CPU that was on it, after it has arrived elsewhere, and by nobody else.

use std::sync::Arc;

use sched_core::{Reason, TaskState};

use crate::machine::machine;

#[test]
fn the_pointer_stays_with_the_scheduler_while_a_cpu_is_on_the_stack() {
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    assert!(m.cpu(0).leave(Reason::Exit));
    assert_eq!(task.state(), TaskState::Dead);
    // The other CPU switches as often as it likes; it is not given what CPU 0 is on.
    for _ in 0..5 {
        let other = m.cpu(1).spawn_on("other", &[1]);
        m.cpu(1).leave_interrupt();
        assert!(Arc::ptr_eq(&m.cpu(1).exit(), &other));
        assert_eq!((Arc::strong_count(&task), task.on()), (2, Some(m.cpu(0).id)));
    }
    let back = m.cpu(0).arrive().expect("given back");
    assert!(Arc::ptr_eq(&back, &task));
    assert_eq!(task.on(), None);
}
