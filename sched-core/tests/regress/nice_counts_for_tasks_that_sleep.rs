// A user of scx_nest (sched-ext/scx#419) ran two tasks of nice -5 and +5 and got a share of one half each:
// at every wake-up their virtual time was clamped up to now, so what the weights had decided was forgotten.
// A short sleep keeps the lag, so tasks that sleep a little share by weight all the same.

use sched_core::{Spawn, State};

use crate::machine::{
    MS, nice,
    sim::{Script, Sim, Step},
};

/// Computes for 1 ms, sleeps for 10 us.
fn worker() -> Script {
    let mut works = false;
    Box::new(move |_, _| {
        works = !works;
        if works { Step::Run(MS) } else { Step::Sleep(10_000) }
    })
}

#[test]
fn nice_minus_5_and_plus_5_do_not_share_half_and_half() {
    let mut sim: Sim = Sim::new(1, State::On, 1);
    for value in [-5, 5] {
        sim.add(0, Spawn { params: nice(value), ..Spawn::default() }, worker());
    }
    sim.run(10_000 * MS);
    let [heavy, light] = [0, 1].map(|id| sim.machine.stats(&sim.members[id].task).sum_exec_runtime as f64);
    // The weights say 3121 to 335, 9.3 to 1; the sleeps of the heavy one cost it a little.
    assert!(heavy / light > 6.0, "{heavy} to {light}");
}
