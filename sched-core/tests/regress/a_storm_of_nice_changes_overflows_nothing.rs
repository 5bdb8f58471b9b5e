// Asterinas users (asterinas/asterinas#2208 and #2235) saw the kernel panic by integer overflow
// when a program changed its nice value in a loop.
// Whatever is changed however often, from whichever CPU, everybody's share afterwards is that of the weights.

use crate::machine::{MS, TICK, machine, nice};

#[test]
fn after_a_hundred_thousand_changes_equals_share_equally() {
    let m = machine(2);
    let tasks: Vec<_> = (0..3).map(|_| m.cpu(0).spawn_on("task", &[0])).collect();
    let mut rng = fastrand::Rng::with_seed(2208);
    for turn in 0..100_000_u32 {
        let value = if turn % 2 == 0 { -20 } else { 19 };
        m.cpu(turn % 2).set_params(&tasks[rng.usize(0..3)], nice(value)).unwrap();
        m.advance(rng.u64(0..MS));
        m.cpu(0).leave_interrupt();
    }
    tasks.iter().for_each(|task| m.cpu(0).set_params(task, nice(0)).unwrap());
    let run = || tasks.iter().map(|task| m.stats(task).sum_exec_runtime).collect::<Vec<_>>();
    let before = run();
    for _ in 0..3_000 {
        m.advance(TICK);
        m.cpu(0).tick();
        m.cpu(0).leave_interrupt();
    }
    for (before, after) in before.iter().zip(run()) {
        let share = (after - before) as f64 / (3_000 * TICK) as f64;
        assert!((share - 1.0 / 3.0).abs() < 0.02, "share {share}");
    }
}
