// Asterinas users (asterinas/asterinas#1471, also #1633, #1930 and #707) saw one task run on two CPUs at once:
// it was woken and picked elsewhere while its old CPU had decided to leave it but still stood on its stack.
// A task that a CPU is leaving is on no other CPU, and on no queue another CPU picks from, until that CPU says it has left.

use sched_core::{Reason, Woken};

use crate::machine::machine;

#[test]
fn a_task_woken_in_the_middle_of_its_last_switch_waits_for_the_switch() {
    let m = machine(3);
    let task = m.cpu(0).spawn_on("task", &[0]);
    m.cpu(0).leave_interrupt();
    m.cpu(1).set_affinity(&task, &[0, 1, 2]).unwrap();
    let sleep = m.cpu(0).prepare();
    assert!(m.cpu(0).leave(Reason::Block(sleep)));
    assert_eq!(m.cpu(1).wake(&task), Woken::Yes);
    m.kicks();
    for cpu in [1, 2] {
        // Whatever the others do meanwhile, they do not find it.
        m.cpu(cpu).leave(Reason::Preempt);
        m.cpu(cpu).leave(Reason::Yield);
        assert!(m.cpu(cpu).is_idle());
    }
    assert_eq!(task.on(), Some(m.cpu(0).id));
    m.cpu(0).arrive();
    m.cpus().for_each(|cpu| cpu.leave_interrupt());
    assert_eq!(m.cpus().filter(|cpu| cpu.runs(&task)).count(), 1);
}
