//! # What it is
//! The timeline and the slice index against a list that is searched from end to end.
//!
//! # How it works
//! Random entities come and go, V jumps forth and back, and after each step the trees are checked whole.
//!
//! # Invariants
//! 1. What is linked is in `linked`, too.
//!
//! # Cost
//! O(n) a step.

use core::ptr::NonNull;
use proptest::prelude::*;
use std::{sync::Arc, vec::Vec};

use super::{SliceIndex, Timeline};
use crate::{
    entity::{EntityRef, Key, Place, SchedEntity},
    sync::{Right, Spin},
    vtime::{VSpan, VTime},
};

/// A step: what, who, and two numbers for it.
type Step = (u8, usize, i64, i64);

const ENTITIES: usize = 24;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few different numbers, so that equal keys are common; some large ones.
    let number = || prop_oneof![4 => -8_i64..8, 2 => -1000_i64..1000, 1 => -(1_i64 << 50)..1 << 50];
    prop::collection::vec((any::<u8>(), 0..ENTITIES, number(), number()), 1..600)
}

struct Ground {
    timeline: Timeline<Spin>,
    slices: SliceIndex<Spin>,
    right: Right,
    entities: Vec<Arc<SchedEntity<Spin>>>,
    linked: Vec<usize>,
}

impl Ground {
    fn new() -> Self {
        Self {
            timeline: Timeline::new(),
            slices: SliceIndex::new(700),
            // SAFETY: it stands for the one queue that both trees belong to.
            right: unsafe { Right::of_a_new_queue() },
            entities: (0..ENTITIES).map(|_| Arc::new(SchedEntity::new())).collect(),
            linked: Vec::new(),
        }
    }

    fn reference(&self, i: usize) -> EntityRef<Spin> {
        // SAFETY: the entity lives in an `Arc` until the trees are gone.
        unsafe { EntityRef::new(NonNull::from(&*self.entities[i])) }
    }

    fn index(&self, entity: EntityRef<Spin>) -> usize {
        self.entities.iter().position(|e| Arc::as_ptr(e) == entity.as_ptr().as_ptr()).unwrap()
    }

    fn key(&self, i: usize) -> Key {
        self.entities[i].key(&self.right)
    }

    fn check(&self) {
        self.timeline.check(&self.right);
        assert_eq!(self.timeline.len() as usize, self.linked.len());
        let mut found: Vec<usize> = self.timeline.iter(&self.right).map(|entity| self.index(entity)).collect();
        let mut linked = self.linked.clone();
        found.sort_unstable();
        linked.sort_unstable();
        assert_eq!(found, linked);
        for i in 0..ENTITIES {
            assert_eq!(self.key(i).place != Place::NOWHERE, self.linked.contains(&i));
        }
    }

    /// Compares the front with a search of the whole list.
    fn compare(&mut self, v: VTime) {
        let found =
            self.timeline.earliest(&self.right, |vruntime| vruntime <= v, || v).map(|entity| self.index(entity));
        let eligible = || self.linked.iter().copied().filter(|&i| self.key(i).vruntime <= v);
        let best = eligible().map(|i| self.key(i).deadline).min();
        assert_eq!(found.map(|i| self.key(i).deadline), best);
        assert!(found.is_none_or(|i| eligible().any(|other| other == i)));
        self.check();
    }
}

proptest! {
    #[test]
    fn the_earliest_of_the_eligible_is_found_wherever_v_goes(steps in steps(), origin in prop_oneof![Just(0_u64), Just(0_u64.wrapping_sub(500)), any::<u64>()]) {
        let mut ground = Ground::new();
        let origin = VTime::from_raw(origin);
        let mut v = origin;
        for (what, i, a, b) in steps {
            let entity = ground.reference(i);
            let linked = ground.linked.iter().position(|&other| other == i);
            match (what % 8, linked) {
                (0, _) => v = origin + VSpan::new(a),
                (1, _) => ground.compare(v),
                // The front leaves, as it does when it is picked.
                (2, _) => {
                    let front = ground.timeline.earliest(&ground.right, |vruntime| vruntime <= v, || v);
                    if let Some(front) = front {
                        ground.timeline.remove(&mut ground.right, front);
                        let gone = ground.index(front);
                        ground.linked.retain(|&other| other != gone);
                    }
                    ground.check();
                }
                (_, Some(at)) => {
                    ground.timeline.remove(&mut ground.right, entity);
                    ground.linked.swap_remove(at);
                    ground.check();
                }
                (_, None) => {
                    entity.set_key(&mut ground.right, |key| {
                        key.vruntime = origin + VSpan::new(a);
                        key.deadline = origin + VSpan::new(b);
                    });
                    ground.timeline.insert(&mut ground.right, entity);
                    ground.linked.push(i);
                    ground.check();
                }
            }
        }
        ground.compare(v);
        ground.compare(origin + VSpan::new(-(1 << 51)));
        ground.compare(origin + VSpan::new(1 << 51));
    }

    /// An augmented tree had its maximum wrong after rotations (Linux 6.12 to 7.2): here it is compared with a search.
    #[test]
    fn the_shortest_and_the_longest_slice_are_those_of_a_search(steps in steps()) {
        let mut ground = Ground::new();
        for (what, i, a, _) in steps {
            let entity = ground.reference(i);
            match ground.linked.iter().position(|&other| other == i) {
                Some(at) => {
                    ground.slices.remove(&ground.right, entity);
                    ground.linked.swap_remove(at);
                }
                None => {
                    let custom = what % 4 != 0;
                    entity.set_own(&mut ground.right, |own| own.custom_slice = custom);
                    entity.set_key(&mut ground.right, |key| key.slice = if custom { a.unsigned_abs() as u32 } else { 700 });
                    ground.slices.insert(&ground.right, entity);
                    ground.linked.push(i);
                }
            }
            let slices = || ground.linked.iter().map(|&i| ground.key(i).slice);
            assert_eq!(ground.slices.shortest(), slices().min().unwrap_or(700));
            assert_eq!(ground.slices.longest(), slices().max().unwrap_or(700));
        }
    }
}

#[test]
fn the_first_of_one_is_that_one_and_there_is_no_second() {
    let mut ground = Ground::new();
    assert!(ground.timeline.first().is_none());
    let entity = ground.reference(0);
    ground.timeline.insert(&mut ground.right, entity);
    assert_eq!(ground.timeline.first(), Some(entity));
    assert!(ground.timeline.second(&ground.right).is_none());
    ground.timeline.remove(&mut ground.right, entity);
    assert!(ground.timeline.first().is_none());
}

#[test]
fn of_equal_deadlines_the_later_arrival_is_the_later() {
    let mut ground = Ground::new();
    for i in [3, 0, 4, 1, 2] {
        let entity = ground.reference(i);
        entity.set_key(&mut ground.right, |key| key.deadline = VTime::START + VSpan::new((i as i64) / 3));
        ground.timeline.insert(&mut ground.right, entity);
    }
    let order: Vec<_> = ground.timeline.iter(&ground.right).map(|entity| ground.index(entity)).collect();
    assert_eq!(order, [0, 1, 2, 3, 4]);
    assert_eq!(ground.timeline.second(&ground.right), Some(ground.reference(1)));
}
