// A Nanvix user (nanvix/nanvix#2533) saw new threads starve, 1000 to 1:
// they were copies of a parent that had used up its quantum, and started with what was left of it.
// Asterinas reviewers (asterinas/asterinas#1192) saw the opposite: a new task far in the past starved the others.
// A new task starts level with the others, whatever its parent and they have run.

use sched_core::{Spawn, State};

use crate::machine::{
    MS,
    sim::{Sim, spin},
};

#[test]
fn a_task_started_late_shares_equally_from_then_on() {
    let mut sim: Sim = Sim::new(1, State::On, 1);
    sim.add(0, Spawn::default(), spin());
    sim.run(5_000 * MS);
    sim.add(0, Spawn::default(), spin());
    let old = sim.machine.stats(&sim.members[0].task).sum_exec_runtime;
    let begin = sim.now;
    for _ in 0..40 {
        sim.run(50 * MS);
        let old = sim.machine.stats(&sim.members[0].task).sum_exec_runtime - old;
        let new = sim.machine.stats(&sim.members[1].task).sum_exec_runtime;
        // At any time, not only in the end: within two ticks of each other.
        assert!(old.abs_diff(new) <= 8 * MS + (sim.now - begin) / 100, "{old} to {new}");
    }
}
