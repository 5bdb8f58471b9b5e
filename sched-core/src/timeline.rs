//! # What it is
//! The ordered set of one queue's waiting entities, which answers "who has the earliest deadline among the eligible?".
//!
//! # How it works
//! EEVDF (Stoica and Abdel-Wahab, 1995) picks by deadline among the entities whose vruntime is not after V.
//! Two red-black trees make that a look at two fronts:
//! *eligible* is ordered by deadline, *later* by vruntime, and an entity is linked in exactly one of them through one link.
//! V moves on, so [`Timeline::earliest`] first moves the front of *later* over while it has become eligible.
//! V can also move back (a join with positive lag, a leave with negative lag),
//! so the front of *eligible* is checked again and goes back to *later* when it no longer qualifies.
//!
//! # Invariants
//! 1. Every linked entity is in exactly one tree, and its `place` says which.
//! 2. The cached front of a tree is its first entity.
//! 3. Keys do not change while an entity is linked (entity I1).
//! 4. `len` is the number of linked entities.
//!
//! # Cost
//! O(log n) to insert and remove. To pick: O(1) and the moves between the trees, each O(log n);
//! an entity moves over once per request, and back only when V moved back. No lock beyond the queue's.

use intrusive_collections::{Bound, KeyAdapter, RBTree, UnsafeRef, intrusive_adapter};

use crate::{
    entity::{EntityRef, Place, SchedEntity},
    sync::{Family, Right},
    vtime::VTime,
};

intrusive_adapter!(pub(crate) ByDeadline<F> = UnsafeRef<SchedEntity<F>>: SchedEntity<F> { link => intrusive_collections::RBTreeAtomicLink } where F: Family);
intrusive_adapter!(pub(crate) ByVruntime<F> = UnsafeRef<SchedEntity<F>>: SchedEntity<F> { link => intrusive_collections::RBTreeAtomicLink } where F: Family);

impl<'a, F: Family> KeyAdapter<'a> for ByDeadline<F> {
    type Key = VTime;
    #[inline(always)]
    fn get_key(&self, entity: &'a SchedEntity<F>) -> VTime {
        // SAFETY: trees are reached only through methods of the timeline, which hold the queue's right; T3.
        unsafe { entity.key_held(|key| key.deadline) }
    }
}

impl<'a, F: Family> KeyAdapter<'a> for ByVruntime<F> {
    type Key = VTime;
    #[inline(always)]
    fn get_key(&self, entity: &'a SchedEntity<F>) -> VTime {
        // SAFETY: trees are reached only through methods of the timeline, which hold the queue's right; T3.
        unsafe { entity.key_held(|key| key.vruntime) }
    }
}

pub(crate) struct Timeline<F: Family> {
    eligible: RBTree<ByDeadline<F>>,
    later: RBTree<ByVruntime<F>>,
    eligible_front: Option<EntityRef<F>>,
    later_front: Option<EntityRef<F>>,
    len: u32,
}

impl<F: Family> Timeline<F> {
    pub(crate) fn new() -> Self {
        Self {
            eligible: RBTree::new(ByDeadline::new()),
            later: RBTree::new(ByVruntime::new()),
            eligible_front: None,
            later_front: None,
            len: 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Links `entity`, whose key says where.
    pub(crate) fn insert(&mut self, right: &mut Right, entity: EntityRef<F>, eligible: bool) {
        debug_assert_eq!(entity.key(right).place, Place::Nowhere);
        self.link(right, entity, eligible);
        self.len += 1;
    }

    /// Unlinks `entity`.
    pub(crate) fn remove(&mut self, right: &mut Right, entity: EntityRef<F>) {
        self.unlink(right, entity);
        self.len -= 1;
    }

    /// The entity with the earliest deadline among those whose vruntime is `eligible`.
    ///
    /// `eligible` must be monotone: true up to some point of virtual time and false after it.
    pub(crate) fn earliest(&mut self, right: &mut Right, eligible: impl Fn(VTime) -> bool) -> Option<EntityRef<F>> {
        while let Some(front) = self.later_front.filter(|front| eligible(front.key(right).vruntime)) {
            self.unlink(right, front);
            self.link(right, front, true);
        }
        while let Some(front) = self.eligible_front.filter(|front| !eligible(front.key(right).vruntime)) {
            self.unlink(right, front);
            self.link(right, front, false);
        }
        self.eligible_front
    }

    /// The front of *eligible*: the earliest deadline of all, for a policy that links everybody there.
    #[inline]
    pub(crate) fn first(&self) -> Option<EntityRef<F>> {
        self.eligible_front
    }

    /// The entity after [`first`](Self::first).
    pub(crate) fn second(&self) -> Option<EntityRef<F>> {
        let front = self.eligible_front?;
        // SAFETY: T1: the front of a tree is linked in it.
        let mut cursor = unsafe { self.eligible.cursor_from_ptr(front.as_ptr().as_ptr()) };
        cursor.move_next();
        // SAFETY: what is linked is alive (EntityRef's invariant).
        cursor.get().map(|second| unsafe { EntityRef::new(second.into()) })
    }

    /// Some entity, or none if nobody is linked: the front with the smaller vruntime. For a queue of one, and when arithmetic failed.
    pub(crate) fn any_leftmost(&self, right: &Right) -> Option<EntityRef<F>> {
        match (self.eligible_front, self.later_front) {
            (Some(a), Some(b)) => Some(if b.key(right).vruntime < a.key(right).vruntime { b } else { a }),
            (front, other) => front.or(other),
        }
    }

    /// Every linked entity, in no useful order.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = EntityRef<F>> + '_ {
        // SAFETY: what is linked is alive (EntityRef's invariant).
        self.eligible.iter().chain(self.later.iter()).map(|entity| unsafe { EntityRef::new(entity.into()) })
    }

    fn link(&mut self, right: &mut Right, entity: EntityRef<F>, eligible: bool) {
        let key = entity.key(right);
        // SAFETY: the entity is alive and stays where it is while it is linked (EntityRef's invariant).
        let owned = unsafe { UnsafeRef::from_raw(entity.as_ptr().as_ptr()) };
        if eligible {
            entity.set_key(right, |key| key.place = Place::Eligible);
            self.eligible.insert(owned);
            if self.eligible_front.is_none_or(|front| key.deadline < front.key(right).deadline) {
                self.eligible_front = Some(entity);
            }
        } else {
            entity.set_key(right, |key| key.place = Place::Later);
            self.later.insert(owned);
            if self.later_front.is_none_or(|front| key.vruntime < front.key(right).vruntime) {
                self.later_front = Some(entity);
            }
        }
    }

    fn unlink(&mut self, right: &mut Right, entity: EntityRef<F>) {
        macro_rules! remove_from {
            ($tree:ident, $front:ident) => {{
                // SAFETY: T1: `place` says that the entity is linked in this tree.
                let mut cursor = unsafe { self.$tree.cursor_mut_from_ptr(entity.as_ptr().as_ptr()) };
                cursor.remove();
                if self.$front == Some(entity) {
                    // The cursor now stands on the successor of the removed front.
                    // SAFETY: what is linked is alive (EntityRef's invariant).
                    self.$front = cursor.get().map(|next| unsafe { EntityRef::new(next.into()) });
                }
            }};
        }
        match entity.key(right).place {
            Place::Eligible => remove_from!(eligible, eligible_front),
            Place::Later => remove_from!(later, later_front),
            Place::Nowhere => {
                debug_assert!(false, "unlinked twice");
                return;
            }
        }
        entity.set_key(right, |key| key.place = Place::Nowhere);
    }

    /// Panics unless I1, I2 and I4 hold.
    #[cfg(test)]
    pub(crate) fn check(&self, right: &Right) {
        let mut count = 0;
        for (tree, front, place) in [
            (self.eligible.iter().collect::<std::vec::Vec<_>>(), self.eligible_front, Place::Eligible),
            (self.later.iter().collect(), self.later_front, Place::Later),
        ] {
            assert_eq!(tree.first().map(|e| core::ptr::from_ref(*e)), front.map(|e| e.as_ptr().as_ptr().cast_const()));
            for pair in tree.windows(2) {
                let (a, b) = (pair[0].key(right), pair[1].key(right));
                match place {
                    Place::Eligible => assert!(a.deadline <= b.deadline),
                    _ => assert!(a.vruntime <= b.vruntime),
                }
            }
            assert!(tree.iter().all(|e| e.key(right).place == place));
            count += tree.len();
        }
        assert_eq!(count, self.len as usize);
    }
}

intrusive_adapter!(pub(crate) BySlice<F> = UnsafeRef<SchedEntity<F>>: SchedEntity<F> { slice_link => intrusive_collections::RBTreeAtomicLink } where F: Family);

impl<'a, F: Family> KeyAdapter<'a> for BySlice<F> {
    type Key = u32;
    fn get_key(&self, entity: &'a SchedEntity<F>) -> u32 {
        // SAFETY: the tree is reached only through methods of the index, which hold the queue's right; T3.
        unsafe { entity.key_held(|key| key.slice) }
    }
}

/// The shortest and the longest slice of a queue's entities, the running one included.
///
/// Entities with the default slice are only counted; those with a slice of their own are ordered in a tree.
/// So the usual queue pays two additions.
pub(crate) struct SliceIndex<F: Family> {
    custom: RBTree<BySlice<F>>,
    default_users: u32,
    default: u32,
}

impl<F: Family> SliceIndex<F> {
    /// An empty index; `default` is the slice, in nanoseconds, of entities that asked for none.
    pub(crate) fn new(default: u32) -> Self {
        Self { custom: RBTree::new(BySlice::new()), default_users: 0, default }
    }

    pub(crate) fn default_slice(&self) -> u32 {
        self.default
    }

    #[inline]
    pub(crate) fn insert(&mut self, right: &Right, entity: EntityRef<F>) {
        if entity.own(right).custom_slice {
            // SAFETY: the entity is alive and stays where it is while it is linked (EntityRef's invariant).
            self.custom.insert(unsafe { UnsafeRef::from_raw(entity.as_ptr().as_ptr()) });
        } else {
            self.default_users += 1;
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, right: &Right, entity: EntityRef<F>) {
        if entity.own(right).custom_slice {
            debug_assert!(entity.slice_link.is_linked());
            // SAFETY: an entity with a slice of its own was linked here when it joined the queue,
            // and its `custom_slice` changes only while it is out.
            unsafe { self.custom.cursor_mut_from_ptr(entity.as_ptr().as_ptr()) }.remove();
        } else {
            self.default_users -= 1;
        }
    }

    /// The shortest slice, or none of an empty queue.
    #[inline]
    pub(crate) fn shortest(&self, right: &Right) -> Option<u32> {
        let default = (self.default_users > 0).then_some(self.default);
        let custom = (!self.custom.is_empty())
            .then(|| self.custom.lower_bound(Bound::Unbounded).get().map(|entity| entity.key(right).slice))
            .flatten();
        default.into_iter().chain(custom).min()
    }

    /// The longest slice, or none of an empty queue.
    #[inline]
    pub(crate) fn longest(&self, right: &Right) -> Option<u32> {
        let default = (self.default_users > 0).then_some(self.default);
        let custom = (!self.custom.is_empty())
            .then(|| self.custom.upper_bound(Bound::Unbounded).get().map(|entity| entity.key(right).slice))
            .flatten();
        default.into_iter().chain(custom).max()
    }
}

#[cfg(test)]
mod tests;
