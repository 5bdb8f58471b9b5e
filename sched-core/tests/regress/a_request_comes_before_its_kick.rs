// StarryOS users (rcore-os/tgoskits#1354) saw kicked CPUs go on with what they ran:
// the interrupt arrived, but nothing on the target said that it should reschedule.
// The request is there before the kick, and the kicked CPU finds it however late it looks.

use crate::machine::{TICK, machine};

#[test]
fn a_kicked_cpu_finds_the_request_however_late_it_looks() {
    // That it is there at the moment of the kick is checked by the machine, at each kick.
    let m = machine(2);
    let task = m.cpu(0).spawn_on("task", &[1]);
    assert_eq!(m.kicks(), [1]);
    for _ in 0..10 {
        m.advance(TICK);
        assert!(m.cpu(1).need_resched());
    }
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&task));
}
