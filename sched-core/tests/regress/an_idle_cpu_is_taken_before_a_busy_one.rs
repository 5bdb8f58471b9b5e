// StarryOS users (rcore-os/tgoskits#1532 and #706) saw woken tasks queue up behind a busy CPU while another idled.
// A woken task goes to its last CPU if that is idle, else to any idle CPU it may use, and that one CPU is kicked once
// (zephyrproject-rtos/zephyr#112866: exactly the CPU that is to run it).

use crate::machine::machine;

#[test]
fn as_long_as_a_cpu_idles_no_task_waits() {
    let m = machine(8);
    let tasks: Vec<_> = (0..8).map(|_| m.cpu(0).spawn("task")).collect();
    m.cpus().for_each(|cpu| cpu.leave_interrupt());
    assert!(m.cpus().all(|cpu| !cpu.is_idle()));
    // Six sleep. Their CPUs are idle then.
    for cpu in 2..8 {
        m.cpu(cpu).block();
    }
    // All of them last ran where they slept; let CPUs 2, 3 and 4 be taken by others meanwhile.
    let others: Vec<_> = [2, 3, 4].map(|cpu| m.cpu(cpu).spawn_on("other", &[cpu])).into();
    m.cpus().for_each(|cpu| cpu.leave_interrupt());
    m.kicks();
    let asleep: Vec<_> = tasks.iter().filter(|task| task.on().is_none()).collect();
    assert_eq!(asleep.len(), 6);
    for (woken, task) in asleep.iter().enumerate().take(3) {
        m.cpu(0).wake(task);
        let kicks = m.kicks();
        assert_eq!(kicks.len(), 1, "wake-up {woken}");
        m.cpu(kicks[0]).leave_interrupt();
        assert!(m.cpu(kicks[0]).runs(task));
    }
    assert_eq!(m.loads(), [1; 8]);
    drop(others);
}
