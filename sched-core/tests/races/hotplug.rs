//! A CPU goes offline while others have something for it.

use sched_core::{CpuId, TaskState, Woken};

use crate::{at_once, check, machine::Machine};

#[test]
fn who_is_woken_for_a_cpu_that_goes_offline_is_taken_in_elsewhere() {
    check(|| {
        let m = Machine::new();
        let task = m.running(&[0]);
        assert!(m.cpu(0).block());
        m.cpu(0).set_affinity(&task, &[0, 1]);
        let busy = m.running(&[0]);
        let wakee = task.clone();
        // CPU 1 idles, so the wake-up is left in its list.
        at_once(
            || assert_eq!(m.cpu(0).wake(&wakee), Woken::Yes),
            move || m.sched.go_offline(&m.cpu(1).irq()).expect("idle"),
        );
        // CPU 1 is gone: it answers nothing any more.
        m.cpu(0).leave_interrupt();
        assert_eq!((task.state(), task.sched.cpu()), (TaskState::Runnable, CpuId(0)));
        assert_eq!(m.sched.nr_running(CpuId(1)), 0, "nobody waits for a CPU that is offline");
        m.nobody_is_lost(&[&task, &busy]);
    });
}

#[test]
fn who_is_born_on_a_cpu_that_goes_offline_moves() {
    check(|| {
        let m = Machine::new();
        let busy = m.running(&[0]);
        at_once(
            move || {
                let fresh = m.cpu(0).spawn(&[0, 1]);
                drop(fresh);
            },
            move || m.sched.go_offline(&m.cpu(1).irq()).expect("idle"),
        );
        assert_eq!((m.sched.nr_running(CpuId(0)), m.sched.nr_running(CpuId(1))), (2, 0));
        drop(busy);
    });
}

#[test]
fn the_last_two_cpus_do_not_go_together() {
    check(|| {
        let m = Machine::new();
        let other = loom::thread::spawn(move || m.sched.go_offline(&m.cpu(1).irq()).is_ok());
        let one = m.sched.go_offline(&m.cpu(0).irq()).is_ok();
        assert!(one != other.join().expect("no failure"), "one of the two");
        assert_eq!(m.sched.online().count(), 1);
    });
}
