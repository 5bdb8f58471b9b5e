// DragonOS users (DragonOS-Community/DragonOS#419) saw a task on its queue twice:
// the scheduler was called while preemption was disabled, and put the running task back a second time.
// However often and for whatever reason a CPU decides, each runnable task is on one queue once.

use sched_core::Reason;

use crate::machine::{TICK, machine};

#[test]
fn any_number_of_decisions_leaves_the_number_of_tasks_as_it_was() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let tasks: Vec<_> = (0..3).map(|_| cpu.spawn("task")).collect();
    for turn in 0..300 {
        cpu.switch(if turn % 2 == 0 { Reason::Preempt } else { Reason::Yield });
        cpu.switch(Reason::Preempt);
        assert_eq!(m.loads(), [3]);
        m.advance(TICK / 3);
    }
    for _ in &tasks {
        cpu.exit();
    }
    assert_eq!(m.loads(), [0]);
    assert!(cpu.is_idle());
}
