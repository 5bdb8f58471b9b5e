// Asterinas users (asterinas/asterinas#2234) saw an idle machine burn all of a host CPU:
// need-resched stayed set when the scheduler decided to do nothing, so the idle loop never halted.
// Every decision answers the request, also the decision to stay; a request that comes after it stands.

use sched_core::Reason;

use crate::machine::machine;

#[test]
fn an_idle_cpu_that_finds_nothing_to_do_may_halt() {
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[1]);
    // Before CPU 1 looks, its task is moved away.
    m.cpu(0).set_affinity(&task, &[0]).unwrap();
    assert!(m.cpu(1).need_resched());
    assert!(!m.cpu(1).leave(Reason::Preempt));
    assert!(m.cpu(1).is_idle());
    assert!(!m.cpu(1).need_resched());
    m.cpu(0).set_affinity(&task, &[1]).unwrap();
    assert!(m.cpu(1).need_resched());
}
