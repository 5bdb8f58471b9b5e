//! An idle CPU looks for a request and halts; a kick brings it back.

use sched_core::Woken;

use crate::{at_once, check, machine::Machine};

/// tgoskits#1354: the interrupt carried no request.
#[test]
fn a_kick_finds_its_request_and_an_idle_cpu_its_task() {
    check(|| {
        let m = Machine::new();
        let task = m.running(&[0]);
        assert!(m.cpu(0).block());
        m.cpu(0).set_affinity(&task, &[1]);
        let wakee = task.clone();
        // If the kick came first, CPU 1 would look, find nothing, and halt for ever.
        at_once(|| assert_eq!(m.cpu(0).wake(&task), Woken::Yes), move || m.cpu(1).idle_until_runs(&[&wakee]));
        m.nobody_is_lost(&[&task]);
    });
}

/// A CPU that goes idle looks at other queues without a lock on its own; who comes meanwhile must not be overlooked.
#[test]
fn a_task_that_comes_while_a_cpu_goes_idle_is_found() {
    check(|| {
        let m = Machine::new();
        let last = m.running(&[0]);
        // Somebody who waits, so that CPU 1 looks around before it idles; nobody it may take.
        let waits = m.waiting(&[0]);
        let brief = m.cpu(0).spawn(&[1]);
        m.cpu(1).leave_interrupt();
        assert!(m.cpu(1).runs(&brief));
        assert!(m.cpu(0).block());
        let comes = last.clone();
        m.cpu(0).set_affinity(&last, &[1]);
        at_once(
            || assert_eq!(m.cpu(0).wake(&last), Woken::Yes),
            move || {
                m.cpu(1).block();
                m.cpu(1).idle_until_runs(&[&comes]);
            },
        );
        m.nobody_is_lost(&[&last, &waits, &brief]);
    });
}
