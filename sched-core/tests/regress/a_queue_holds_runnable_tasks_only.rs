// Theseus developers (theseus-os/Theseus#821 and #1042) measured 40 % lost to blocked tasks that stayed in the run queue
// and were passed over at each pick.
// A queue holds the tasks that can run. Who sleeps costs nothing.

use crate::machine::machine;

#[test]
fn sleepers_are_on_no_queue() {
    let m = machine(2);
    let tasks: Vec<_> = (0..500).map(|_| m.cpu(0).spawn_on("task", &[0])).collect();
    m.cpu(0).leave_interrupt();
    for left in (0..500).rev() {
        m.cpu(0).block();
        assert_eq!(m.loads(), [left, 0]);
    }
    assert!(m.cpu(0).is_idle());
    m.cpu(1).wake(&tasks[250]);
    m.cpu(0).leave_interrupt();
    assert!(m.cpu(0).runs(&tasks[250]));
    assert_eq!(m.loads(), [1, 0]);
}
