// A KallistiOS user (KallistiOS/KallistiOS#1295) saw the lowest of three priorities get no time at all.
// Every weight is served: the lightest task beside the heaviest waits long, but not for ever.

use sched_core::{Policy, Spawn, State, TaskParams};

use crate::machine::{
    MS, nice,
    sim::{Sim, spin},
};

#[test]
fn the_lightest_runs_beside_the_heaviest() {
    let mut sim: Sim = Sim::new(1, State::On, 1);
    let idle = TaskParams { policy: Policy::Idle, ..TaskParams::default() };
    for params in [nice(-20), nice(0), nice(19), idle] {
        sim.add(0, Spawn { params, ..Spawn::default() }, spin());
    }
    let mut served = [0; 4];
    // Weights 88761, 1024, 15 and 3: one tick of 4 ms is the lightest one's share of 120 s.
    for _ in 0..3 {
        sim.run(150_000 * MS);
        for (id, served) in served.iter_mut().enumerate() {
            let now = sim.machine.stats(&sim.members[id].task).sum_exec_runtime;
            assert!(now > *served, "task {id} got nothing in 150 s");
            *served = now;
        }
    }
}
