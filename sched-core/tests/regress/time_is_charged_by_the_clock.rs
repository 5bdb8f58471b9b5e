// CMSIS users (ARM-software/CMSIS_5#228 and #1000) saw tasks that were never charged:
// the slice was sampled at the tick, and they always slept when it came.
// A run is charged by the clock, to the nanosecond, whether a tick saw it or not.

use crate::machine::{START, TICK, machine};

#[test]
fn a_task_that_dodges_every_tick_pays_all_the_same() {
    let m = machine(1);
    let cpu = m.cpu(0);
    let (dodger, other) = (cpu.spawn("dodger"), cpu.spawn("other"));
    cpu.tick_until_runs(&dodger);
    let before = m.stats(&dodger).sum_exec_runtime;
    for _ in 0..100 {
        cpu.block();
        m.advance(TICK / 4);
        cpu.tick();
        cpu.wake(&dodger);
        cpu.leave_interrupt();
        cpu.tick_until_runs(&dodger);
        m.advance(12_345);
    }
    cpu.block();
    assert!(m.stats(&dodger).sum_exec_runtime - before >= 100 * 12_345);
    let all = [&dodger, &other, m.idle(0)].map(|task| m.stats(task).sum_exec_runtime);
    assert_eq!(all.iter().sum::<u64>(), cpu.now() - START);
}
