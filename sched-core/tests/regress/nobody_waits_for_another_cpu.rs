// StarryOS users (rcore-os/tgoskits#1495) saw two CPUs hang, each with interrupts off, each spinning on the on-CPU mark
// of the task that the other was leaving.
// A wake-up returns at once; the CPU that is leaving the task places it.

use std::{sync::mpsc, thread, time::Duration};

use sched_core::{Reason, Woken};

use crate::machine::machine;

#[test]
fn two_cpus_wake_each_others_tasks_in_the_middle_of_both_switches() {
    let (done, waiting) = mpsc::channel();
    thread::spawn(move || {
        let m = machine(3);
        let tasks = [0, 1].map(|cpu| m.cpu(cpu).spawn_on("task", &[cpu]));
        for cpu in [0, 1] {
            m.cpu(cpu).leave_interrupt();
            let sleep = m.cpu(cpu).prepare();
            assert!(m.cpu(cpu).leave(Reason::Block(sleep)));
        }
        // Both CPUs are in the middle of a switch; neither can go on before these calls return.
        for task in &tasks {
            assert_eq!(m.cpu(2).wake(task), Woken::Yes);
            m.cpu(2).set_affinity(task, &[0, 1]).unwrap();
        }
        for cpu in [0, 1] {
            m.cpu(cpu).arrive();
        }
        assert_eq!(m.loads().iter().sum::<u64>(), 2);
        done.send(()).unwrap();
    });
    assert_eq!(waiting.recv_timeout(Duration::from_secs(60)), Ok(()), "somebody waits for another CPU");
}
