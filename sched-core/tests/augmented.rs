//! The augmented tree of the benches, against a search. A comparison is worth nothing if one side is wrong.

#[path = "../benches/lines/augmented.rs"]
mod augmented;

use augmented::{Augmented, Node, NodeRef};
use sched_core::{VSpan, VTime};

/// Random insertions and removals of `nodes` nodes whose keys lie within `spread` of each other.
/// Each step checks every node (I1 to I4), the pick and its neighbours.
fn play(seed: u64, nodes: usize, steps: usize, spread: i64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let nodes: Vec<_> = (0..nodes).map(|_| NodeRef::of(Box::leak(Box::new(Node::new())))).collect();
    let mut tree = Augmented::new();
    let mut order: Vec<NodeRef> = Vec::new();
    for step in 0..steps {
        let node = nodes[rng.usize(..nodes.len())];
        match order.iter().position(|&other| other == node) {
            Some(at) => {
                // Now and then the first, as a scheduler does.
                let at = if rng.bool() { at } else { 0 };
                tree.remove(order.remove(at));
            }
            None => {
                node.vruntime.set(VTime::START + VSpan::new(rng.i64(-spread..=spread)));
                node.deadline.set(VTime::START + VSpan::new(rng.i64(-spread..=spread)));
                node.slice.set(rng.u32(1..6));
                tree.insert(node);
                // Equal deadlines: behind all that are there.
                let at = order.partition_point(|other| other.deadline.get() <= node.deadline.get());
                order.insert(at, node);
            }
        }
        assert!(tree.check() == order, "order at step {step}");
        assert_eq!(tree.len(), order.len());
        assert!(tree.first() == order.first().copied());
        assert!(tree.second() == order.get(1).copied());
        assert_eq!(tree.shortest(), order.iter().map(|node| node.slice.get()).min());
        assert_eq!(tree.longest(), order.iter().map(|node| node.slice.get()).max());
        let v = VTime::START + VSpan::new(rng.i64(-spread..=spread));
        let best = order.iter().find(|node| node.vruntime.get() <= v).copied();
        assert!(tree.earliest(|vruntime| vruntime <= v, || v) == best, "pick at step {step}");
    }
}

#[test]
fn every_node_is_exact_after_every_operation() {
    // The spread crosses the wrap, which lies 2^20 after the start; a small one has many equal keys.
    for (seed, nodes, steps, spread) in
        [(1, 6, 4000, 8), (2, 40, 6000, 1 << 22), (3, 40, 6000, 20), (4, 300, 4000, 1 << 40)]
    {
        play(seed, nodes, steps, spread);
    }
}
