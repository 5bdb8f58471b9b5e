//! What the benches compare does the same on both sides. The bench is worth nothing otherwise.
#![allow(dead_code, reason = "the loads have parts that only the benches use")]

#[path = "../benches/lines/mod.rs"]
mod lines;
#[path = "../benches/ring.rs"]
mod ring;

use lines::{Bare, Load, ThreeSums, Timeline, TwoTrees};

#[test]
fn lines_agree() {
    for depth in [1, 2, 8, 128, 1000] {
        let mut timeline = Bare::<Timeline>::new(depth);
        let (mut two_trees, mut three_sums) = (Bare::<TwoTrees>::new(depth), Bare::<ThreeSums>::new(depth));
        for step in 0..4000 {
            let picked = timeline.step();
            assert_eq!(two_trees.step(), picked, "depth {depth}, step {step}");
            assert_eq!(three_sums.step(), picked, "depth {depth}, step {step}");
            if step % 7 == 0 {
                timeline.cycle();
                two_trees.cycle();
                three_sums.cycle();
            }
        }
    }
}

#[test]
fn layouts_agree() {
    for entities in [64, 1000] {
        let (mut lined_up, mut as_declared) = (ring::lines::Ring::new(entities), ring::naive::Ring::new(entities));
        assert_ne!(
            size_of::<sched_core::SchedEntity>(),
            size_of::<sched_core_naive::SchedEntity>(),
            "one layout twice"
        );
        for _ in 0..3 {
            lined_up.turn();
            as_declared.turn();
            assert_eq!(lined_up.positions(), as_declared.positions());
        }
    }
}
