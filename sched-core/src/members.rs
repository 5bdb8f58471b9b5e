//! # What it is
//! Who is on one CPU's fair queue, whatever the policy: the waiting, the running, the sleepers that are still to pay.
//!
//! # How it works
//! Waiting entities lie in the [`Timeline`]; the running one is outside it.
//! A *delayed* entity sleeps but waits on in the timeline (see [`eevdf`](crate::policy::eevdf)): it counts among the queued
//! and not among the runnable.
//! One entity may be the *next buddy*, which a policy may prefer.
//!
//! # Invariants
//! 1. `nr` is the size of the timeline, plus one if an entity runs.
//! 2. `nr_delayed` is the number of delayed entities, which all lie in the timeline.
//! 3. The slice index holds the waiting entities and the running one.
//! 4. The next buddy waits here and is not delayed.
//! 5. `weight` is the sum of the weights of all of them.
//!
//! # Cost
//! That of the timeline.

use crate::{
    entity::{EntityRef, Key, Own},
    features::{Feature, FeatureSet},
    sync::{Family, Right},
    timeline::{SliceIndex, Timeline},
};

/// The entities of one queue.
pub(crate) struct Members<F: Family, X: FeatureSet> {
    pub(crate) right: Right,
    pub(crate) running: Option<EntityRef<F>>,
    pub(crate) next_buddy: Option<EntityRef<F>>,
    pub(crate) nr: u32,
    pub(crate) nr_delayed: u32,
    /// Of all of them.
    pub(crate) weight: u64,
    pub(crate) features: X,
    pub(crate) timeline: Timeline<F>,
    pub(crate) slices: SliceIndex<F>,
}

impl<F: Family, X: FeatureSet> Members<F, X> {
    /// Nobody. `base_slice` is in nanoseconds.
    pub(crate) fn new(base_slice: u32) -> Self {
        Self {
            // SAFETY: the right lies in the queue it is for.
            right: unsafe { Right::of_a_new_queue() },
            running: None,
            next_buddy: None,
            nr: 0,
            nr_delayed: 0,
            weight: 0,
            features: X::default(),
            timeline: Timeline::new(),
            slices: SliceIndex::new(base_slice),
        }
    }

    #[inline(always)]
    pub(crate) fn on(&self, feature: Feature) -> bool {
        self.features.on(feature)
    }

    #[inline(always)]
    pub(crate) fn key(&self, entity: EntityRef<F>) -> Key {
        entity.key(&self.right)
    }

    #[inline(always)]
    pub(crate) fn own(&self, entity: EntityRef<F>) -> Own {
        entity.own(&self.right)
    }

    #[inline(always)]
    pub(crate) fn set_key<R>(&mut self, entity: EntityRef<F>, change: impl FnOnce(&mut Key) -> R) -> R {
        entity.set_key(&mut self.right, change)
    }

    #[inline(always)]
    pub(crate) fn set_own<R>(&mut self, entity: EntityRef<F>, change: impl FnOnce(&mut Own) -> R) -> R {
        entity.set_own(&mut self.right, change)
    }

    /// Writes changed copies back. Where the entity is linked is the timeline's to say, and stays.
    #[inline(always)]
    pub(crate) fn write_back(&mut self, entity: EntityRef<F>, key: Key, own: Own) {
        self.set_key(entity, |slot| *slot = Key { place: slot.place, ..key });
        self.set_own(entity, |slot| *slot = own);
    }

    /// How many are awake.
    #[inline(always)]
    pub(crate) fn nr_runnable(&self) -> u32 {
        self.nr - self.nr_delayed
    }

    #[inline(always)]
    pub(crate) fn running_key(&self) -> Option<Key> {
        self.running.map(|running| self.key(running))
    }

    /// The shortest slice of all members; the default of an empty queue.
    #[inline(always)]
    pub(crate) fn shortest_slice(&self) -> u32 {
        self.slices.shortest()
    }

    /// The longest slice of all members; the default of an empty queue.
    #[inline(always)]
    pub(crate) fn longest_slice(&self) -> u32 {
        self.slices.longest()
    }

    /// Whether `entity` sleeps while it waits.
    #[inline(always)]
    pub(crate) fn is_delayed(&self, entity: EntityRef<F>) -> bool {
        // Mostly nobody is, and then the entity's line need not be touched.
        self.nr_delayed != 0 && self.own(entity).delayed
    }

    /// `entity` is no longer the next buddy, if it was.
    #[inline(always)]
    pub(crate) fn forget_buddy(&mut self, entity: EntityRef<F>) {
        if self.next_buddy == Some(entity) {
            self.next_buddy = None;
        }
    }
}
