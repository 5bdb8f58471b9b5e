// A user of scx (sched-ext/scx#3471) saw a task that yields all the time take the whole CPU: each re-queue gave it sleep credit.
// Tock users (tock/tock#4550 and #4565) saw tasks that yield early game the levels of the queue.
// A task that yields gets no more than its share, and one that does not yield loses nothing by it.

use sched_core::{Spawn, State};

use crate::machine::{
    MS,
    sim::{Script, Sim, Step, spin},
};

fn yielder() -> Script {
    let mut works = false;
    Box::new(move |_, _| {
        works = !works;
        if works { Step::Run(50_000) } else { Step::Yield }
    })
}

#[test]
fn a_task_that_yields_gets_no_more_than_its_share() {
    let mut sim: Sim = Sim::new(1, State::On, 1);
    sim.add(0, Spawn::default(), yielder());
    sim.add(0, Spawn::default(), spin());
    sim.run(5_000 * MS);
    let [yields, spins] = [0, 1].map(|id| sim.machine.stats(&sim.members[id].task).sum_exec_runtime);
    assert!(yields <= spins * 101 / 100, "{yields} to {spins}");
    assert!(yields > 0, "nor is it shut out");
}
