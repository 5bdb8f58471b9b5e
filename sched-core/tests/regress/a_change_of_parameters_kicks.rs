// Users of scx (sched-ext/scx#849) saw a task whose slice had been taken away go on until the next tick:
// the change was made, and the CPU was not told.
// A change that may matter to another CPU comes with its request and its kick; one's own CPU needs no kick
// (managarm/managarm#827: an interrupt to oneself is waste).

use crate::machine::{machine, nice};

#[test]
fn another_cpu_is_told_at_once_and_ones_own_without_a_kick() {
    let m = machine(2);
    let task = m.cpu(1).spawn_on("task", &[1]);
    m.cpu(1).leave_interrupt();
    m.kicks();
    let changes: [&dyn Fn(u32); 2] =
        [&|cpu| m.cpu(cpu).set_params(&task, nice(10)).unwrap(), &|cpu| m.cpu(cpu).set_affinity(&task, &[0]).unwrap()];
    for change in changes {
        change(0);
        assert_eq!(m.kicks(), [1]);
        assert!(m.cpu(1).need_resched());
        m.cpu(0).set_affinity(&task, &[1]).unwrap();
        m.cpu(1).leave_interrupt();
        change(1);
        assert_eq!(m.kicks(), [] as [u32; 0]);
        assert!(m.cpu(1).need_resched());
        m.cpu(0).set_affinity(&task, &[1]).unwrap();
        m.cpu(1).leave_interrupt();
        m.kicks();
    }
}
