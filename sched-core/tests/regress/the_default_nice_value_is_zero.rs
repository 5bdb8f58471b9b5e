// DragonOS users (DragonOS-Community/DragonOS#2268 and #2274) found that every task had nice 1, weight 820:
// a range was off by one, and no test asked for the default.
// A task that asks for nothing weighs 1024, as one that asks for nice 0.

use sched_core::{Nice, Spawn, State, TaskParams};

use crate::machine::{
    MS, nice,
    sim::{Sim, spin},
};

#[test]
fn a_task_that_asks_for_nothing_shares_as_nice_0() {
    assert_eq!(TaskParams::default().nice, Nice::ZERO);
    assert_eq!(TaskParams::default().weight().get(), 1024);
    let mut sim: Sim = Sim::new(1, State::On, 1);
    sim.add(0, Spawn::default(), spin());
    sim.add(0, Spawn { params: nice(0), ..Spawn::default() }, spin());
    sim.add(0, Spawn { params: nice(1), ..Spawn::default() }, spin());
    sim.run(10_000 * MS);
    let [plain, zero, one] = [0, 1, 2].map(|id| sim.machine.stats(&sim.members[id].task).sum_exec_runtime as f64);
    assert!((plain / zero - 1.0).abs() < 0.01, "{plain} to {zero}");
    assert!((one / zero - 820.0 / 1024.0).abs() < 0.01, "{one} to {zero}");
}
