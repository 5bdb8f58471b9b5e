//! Clocks that jump by days, again and again, as those of a virtual machine that was put aside.

use sched_core::{Faults, Nice, Policy, Slice, Spawn, TaskParams};

use crate::machine::{MS, TICK, machine};

fn any(dice: &mut fastrand::Rng) -> TaskParams {
    let policy = [Policy::Normal, Policy::Normal, Policy::Batch, Policy::Idle][dice.usize(0..4)];
    TaskParams {
        nice: Nice::new(dice.i32(-20..20)).expect("in range"),
        policy,
        slice: [None, Some(Slice::MIN), Some(Slice::MAX)][dice.usize(0..3)],
    }
}

#[test]
fn clocks_that_jump_by_days_overflow_nothing() {
    for seed in 0..60 {
        let (m, mut dice) = (machine(1), fastrand::Rng::with_seed(seed));
        let mut tasks = Vec::new();
        for _ in 0..3000 {
            let cpu = m.cpu(0);
            let passes = [0, 1000, MS, MS, 20 * MS, 20 * MS, 20 * MS, 1 << 50][dice.usize(0..8)];
            m.advance(dice.u64(0..=passes));
            let one = dice.usize(0..40);
            match dice.u32(0..12) {
                0..3 => cpu.tick(),
                3 | 4 if tasks.len() < 40 => {
                    tasks.push(cpu.spawn_with("t", Spawn { params: any(&mut dice), ..Spawn::default() }))
                }
                5 if !cpu.is_idle() => _ = cpu.block(),
                6 => _ = cpu.switch(sched_core::Reason::Yield),
                7 | 8 if one < tasks.len() => cpu.set_params(&tasks[one], any(&mut dice)).expect("fair"),
                9 | 10 if one < tasks.len() => _ = cpu.wake(&tasks[one]),
                _ => {}
            }
            cpu.leave_interrupt();
        }
        m.advance(TICK);
        for cpu in m.cpus() {
            cpu.tick();
            // SAFETY: one thread is all CPUs.
            let irq = unsafe { sched_core::IrqOff::assert() };
            assert_eq!(m.sched.faults(&irq, cpu.id), Faults::default(), "seed {seed}");
        }
    }
}
