// A reader of schedstats (systemd/systemd-bootchart#13) took it for a fault that a CPU's wait time exceeded the time elapsed.
// It is none: each waiting task counts. What does not exceed the time is pressure, which asks whether anybody waits.

use sched_core::IrqOff;

use crate::machine::{MS, machine};

#[test]
fn run_delay_counts_each_waiter_and_pressure_counts_the_time() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let _tasks: Vec<_> = (0..4).map(|_| cpu.spawn("task")).collect();
    cpu.leave_interrupt();
    for _ in 0..1000 {
        m.advance(MS);
        cpu.tick();
        cpu.leave_interrupt();
    }
    let delay = m.sched.cpu_stats(cpu.id).unwrap().run_delay;
    assert!(delay > 2900 * MS, "three of four waited all the time: {delay}");
    // SAFETY: one thread is all CPUs.
    let irq = unsafe { IrqOff::assert() };
    let total = m.sched.cpu_pressure(&irq).unwrap().total;
    assert!(total <= 1000 * MS && total > 990 * MS, "{total}");
}
