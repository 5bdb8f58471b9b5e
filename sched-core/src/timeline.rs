//! # What it is
//! The ordered set of one queue's waiting entities, which answers "who has the earliest deadline among the eligible?".
//!
//! # How it works
//! EEVDF (Stoica and Abdel-Wahab, 1995) picks by deadline among the entities whose vruntime is not after V.
//! One search tree by deadline, in which every entity knows the smallest vruntime below it, makes that one walk:
//! left as long as somebody there is eligible, otherwise here, otherwise right.
//! Mostly the first of all is eligible, and there is no walk.
//!
//! The tree is a *weak AVL* tree (Haeupler, Sen and Tarjan, 2009): every entity has a rank, nobody has rank -1,
//! and a child's rank is 1 or 2 less than its parent's.
//! An insertion or a removal does at most two rotations, and the depth of a tree that only grew is that of an AVL tree.
//! The children lie in an array, so that one rotation serves both sides.
//!
//! The minima are repaired before the ranks are: upwards from the lowest entity that changed, as far as something changes.
//! A rotation hands the minimum of its old top to its new one, which stands for the same entities, and recomputes the old top's.
//!
//! Two trees, of the eligible by deadline and of the others by vruntime, are the alternative (`benches/lines/two_trees.rs`).
//! They are no faster where queues are as deep as they are, and the pick at which V reaches many at once moves all of those.
//!
//! # Invariants
//! 1. `place` says whether an entity is linked. In order, deadlines do not fall; of equal ones the later arrival is the later.
//! 2. `min_vruntime` is the smallest vruntime below an entity and its own, after every operation.
//! 3. A leaf has rank 0, and ranks of parent and child differ by 1 or 2.
//! 4. `front` is the first entity; `len` is the number of linked ones.
//! 5. Keys do not change while an entity is linked (entity I1).
//!
//! # Cost
//! O(log n), also at worst, to insert, to remove and to pick; the first is at hand. No lock beyond the queue's.
//! A walk touches one line an entity; a repair also that of its siblings.

use intrusive_collections::{Bound, KeyAdapter, RBTree, UnsafeRef, intrusive_adapter};

use crate::{
    entity::{EntityRef, Links, Place, SchedEntity},
    sync::{Family, Right},
    vtime::VTime,
};

pub(crate) struct Timeline<F: Family> {
    root: Option<EntityRef<F>>,
    front: Option<EntityRef<F>>,
    len: u32,
}

/// The rank of somebody or nobody.
#[inline(always)]
fn rank<F: Family>(right: &Right, entity: Option<EntityRef<F>>) -> i8 {
    entity.map_or(Place::NOWHERE.rank(), |entity| entity.key(right).place.rank())
}

#[inline(always)]
fn set_rank<F: Family>(right: &mut Right, entity: EntityRef<F>, rank: i8) {
    entity.set_key(right, |key| key.place = Place::linked(rank));
}

#[inline(always)]
fn set_parent<F: Family>(right: &mut Right, entity: EntityRef<F>, parent: Option<EntityRef<F>>) {
    entity.set_links(right, |links| links.parent = parent);
}

#[inline(always)]
fn set_child<F: Family>(right: &mut Right, entity: EntityRef<F>, side: usize, child: Option<EntityRef<F>>) {
    entity.set_links(right, |links| links.child[side & 1] = child);
}

#[inline(always)]
fn child<F: Family>(right: &Right, entity: EntityRef<F>, side: usize) -> Option<EntityRef<F>> {
    entity.links(right).child[side & 1]
}

impl<F: Family> Timeline<F> {
    pub(crate) fn new() -> Self {
        Self { root: None, front: None, len: 0 }
    }

    #[cfg(any(test, feature = "model"))]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Links `entity`, whose key says where.
    #[inline]
    pub(crate) fn insert(&mut self, right: &mut Right, entity: EntityRef<F>) {
        let key = entity.key(right);
        debug_assert_eq!(key.place, Place::NOWHERE);
        self.len += 1;
        let (mut parent, mut side) = (None, 0);
        let mut at = self.root;
        while let Some(above) = at {
            side = usize::from(key.deadline >= above.key(right).deadline);
            parent = at;
            at = child(right, above, side);
        }
        entity.set_links(right, |links| *links = Links { child: [None; 2], parent, min_vruntime: key.vruntime });
        set_rank(right, entity, 0);
        let Some(parent) = parent else {
            self.root = Some(entity);
            self.front = Some(entity);
            return;
        };
        set_child(right, parent, side, Some(entity));
        if side == 0 && self.front == Some(parent) {
            self.front = Some(entity);
        }
        let mut up = Some(parent);
        while let Some(above) = up.filter(|above| key.vruntime < above.links(right).min_vruntime) {
            above.set_links(right, |links| links.min_vruntime = key.vruntime);
            up = above.links(right).parent;
        }
        if rank(right, Some(parent)) == 0 {
            self.repair_growth(right, entity, parent, side);
        }
    }

    /// Unlinks `entity`.
    #[inline]
    pub(crate) fn remove(&mut self, right: &mut Right, entity: EntityRef<F>) {
        let place = entity.key(right).place;
        if place == Place::NOWHERE {
            debug_assert!(false, "unlinked twice");
            return;
        }
        self.len -= 1;
        if self.front == Some(entity) {
            self.front = Self::next(right, entity);
        }
        let gone = entity.key(right).vruntime;
        let links = entity.links(right);
        // What lost a level: the subtree `lower` on `side` of `above`.
        let (above, side, lower);
        if let [Some(before), Some(after)] = links.child {
            // Its successor takes its place.
            let mut heir = after;
            while let Some(further) = child(right, heir, 0) {
                heir = further;
            }
            let of_heir = heir.links(right);
            lower = of_heir.child[1];
            let mut heir_links = links;
            if heir == after {
                (above, side) = (Some(heir), 1);
                heir_links.child[1] = lower;
            } else {
                (above, side) = (of_heir.parent, 0);
                if let Some(old) = of_heir.parent {
                    set_child(right, old, 0, lower);
                }
                if let Some(lower) = lower {
                    set_parent(right, lower, of_heir.parent);
                }
                set_parent(right, after, Some(heir));
            }
            set_parent(right, before, Some(heir));
            heir.set_links(right, |slot| *slot = heir_links);
            set_rank(right, heir, place.rank());
            self.replace(right, links.parent, entity, Some(heir));
            // Below the heir only the heir is missing; from there on only `entity` is.
            let mut up = above;
            while let Some(at) = up.filter(|at| *at != heir && Self::recompute(right, *at)) {
                up = at.links(right).parent;
            }
            up = Some(heir);
            while let Some(at) = up.filter(|at| Self::recompute(right, *at)) {
                up = at.links(right).parent;
            }
        } else {
            lower = links.child[0].or(links.child[1]);
            above = links.parent;
            side = self.replace(right, above, entity, lower);
            let mut up = above;
            // Who was not the smallest somewhere was not so further up.
            while let Some(at) = up.filter(|at| at.links(right).min_vruntime == gone && Self::recompute(right, *at)) {
                up = at.links(right).parent;
            }
        }
        entity.set_key(right, |key| key.place = Place::NOWHERE);
        if let Some(above) = above {
            self.repair_loss(right, lower, above, side);
        }
    }

    /// The entity with the earliest deadline among those whose vruntime is `eligible`, that is, not after `v`.
    ///
    /// `eligible` is asked of the first, and `v` only for a walk, which compares with it: one division instead of many products.
    #[inline]
    pub(crate) fn earliest(
        &self,
        right: &Right,
        eligible: impl FnOnce(VTime) -> bool,
        v: impl FnOnce() -> VTime,
    ) -> Option<EntityRef<F>> {
        let front = self.front?;
        if eligible(front.key(right).vruntime) {
            return Some(front);
        }
        self.walk(right, v())
    }

    fn walk(&self, right: &Right, v: VTime) -> Option<EntityRef<F>> {
        let mut at = self.root.filter(|root| root.links(right).min_vruntime <= v);
        while let Some(entity) = at {
            let [before, after] = entity.links(right).child;
            match before {
                Some(before) if before.links(right).min_vruntime <= v => at = Some(before),
                _ if entity.key(right).vruntime <= v => break,
                _ => at = after,
            }
        }
        at
    }

    /// The earliest deadline of all. Also somebody for a queue of one, and when arithmetic failed.
    #[inline]
    pub(crate) fn first(&self) -> Option<EntityRef<F>> {
        self.front
    }

    /// The entity after [`first`](Self::first).
    pub(crate) fn second(&self, right: &Right) -> Option<EntityRef<F>> {
        Self::next(right, self.front?)
    }

    /// Every linked entity, in order.
    pub(crate) fn iter<'a>(&self, right: &'a Right) -> impl Iterator<Item = EntityRef<F>> + use<'a, F> {
        core::iter::successors(self.front, |entity| Self::next(right, *entity))
    }

    fn next(right: &Right, entity: EntityRef<F>) -> Option<EntityRef<F>> {
        if let Some(mut next) = child(right, entity, 1) {
            while let Some(before) = child(right, next, 0) {
                next = before;
            }
            return Some(next);
        }
        let mut below = entity;
        while let Some(above) = below.links(right).parent {
            if child(right, above, 0) == Some(below) {
                return Some(above);
            }
            below = above;
        }
        None
    }

    /// Recomputes the minimum from the children. True if it changed.
    #[inline(always)]
    fn recompute(right: &mut Right, entity: EntityRef<F>) -> bool {
        let links = entity.links(right);
        let mut min = entity.key(right).vruntime;
        for child in links.child.into_iter().flatten() {
            min = min.earlier(child.links(right).min_vruntime);
        }
        let changes = min != links.min_vruntime;
        if changes {
            entity.set_links(right, |links| links.min_vruntime = min);
        }
        changes
    }

    /// Hangs `new` where `old` hung. On which side that was.
    #[inline(always)]
    fn replace(
        &mut self,
        right: &mut Right,
        parent: Option<EntityRef<F>>,
        old: EntityRef<F>,
        new: Option<EntityRef<F>>,
    ) -> usize {
        let side = match parent {
            Some(parent) => {
                let side = usize::from(child(right, parent, 1) == Some(old));
                set_child(right, parent, side, new);
                side
            }
            None => {
                self.root = new;
                0
            }
        };
        if let Some(new) = new {
            set_parent(right, new, parent);
        }
        side
    }

    /// Lifts `lower`, the child of `top` on `side`, over it. The minima stay exact (I2); ranks are the caller's.
    #[inline]
    fn lift(&mut self, right: &mut Right, top: EntityRef<F>, lower: EntityRef<F>, side: usize) {
        let between = child(right, lower, 1 - side);
        set_child(right, top, side, between);
        if let Some(between) = between {
            set_parent(right, between, Some(top));
        }
        let of_top = top.links(right);
        self.replace(right, of_top.parent, top, Some(lower));
        lower.set_links(right, |links| {
            links.child[(1 - side) & 1] = Some(top);
            links.min_vruntime = of_top.min_vruntime;
        });
        set_parent(right, top, Some(lower));
        Self::recompute(right, top);
    }

    /// `entity`, on `side` of `parent`, may have the rank of its parent.
    fn repair_growth(
        &mut self,
        right: &mut Right,
        mut entity: EntityRef<F>,
        mut parent: EntityRef<F>,
        mut side: usize,
    ) {
        loop {
            let level = rank(right, Some(entity));
            if rank(right, Some(parent)) != level {
                return;
            }
            if level - rank(right, child(right, parent, 1 - side)) == 1 {
                set_rank(right, parent, level + 1);
                let Some(above) = parent.links(right).parent else { return };
                entity = parent;
                parent = above;
                side = usize::from(child(right, parent, 1) == Some(entity));
                continue;
            }
            set_rank(right, parent, level - 1);
            let inner = child(right, entity, 1 - side).filter(|inner| level - rank(right, Some(*inner)) == 1);
            match inner {
                Some(inner) => {
                    set_rank(right, inner, level);
                    set_rank(right, entity, level - 1);
                    self.lift(right, entity, inner, 1 - side);
                    self.lift(right, parent, inner, side);
                }
                None => self.lift(right, parent, entity, side),
            }
            return;
        }
    }

    /// The subtree on `side` of `parent`, whose top is now `lower`, may be too low.
    fn repair_loss(
        &mut self,
        right: &mut Right,
        mut lower: Option<EntityRef<F>>,
        mut parent: EntityRef<F>,
        mut side: usize,
    ) {
        if parent.links(right).child == [None; 2] && rank(right, Some(parent)) == 1 {
            // A leaf of rank 1.
            set_rank(right, parent, 0);
            let Some(above) = parent.links(right).parent else { return };
            side = usize::from(child(right, above, 1) == Some(parent));
            lower = Some(parent);
            parent = above;
        }
        loop {
            let level = rank(right, Some(parent));
            if level - rank(right, lower) != 3 {
                return;
            }
            let Some(sibling) = child(right, parent, 1 - side) else { return };
            if level - rank(right, Some(sibling)) == 1 {
                let (near, far) = (child(right, sibling, side), child(right, sibling, 1 - side));
                if rank(right, near) != level - 3 || rank(right, far) != level - 3 {
                    match near.filter(|_| rank(right, far) == level - 3) {
                        Some(near) => {
                            set_rank(right, near, level);
                            set_rank(right, sibling, level - 2);
                            set_rank(right, parent, level - 2);
                            self.lift(right, sibling, near, side);
                            self.lift(right, parent, near, 1 - side);
                        }
                        None => {
                            set_rank(right, sibling, level);
                            set_rank(right, parent, level - 1);
                            self.lift(right, parent, sibling, 1 - side);
                            if parent.links(right).child == [None; 2] {
                                set_rank(right, parent, 0);
                            }
                        }
                    }
                    return;
                }
                set_rank(right, sibling, level - 2);
            }
            set_rank(right, parent, level - 1);
            let Some(above) = parent.links(right).parent else { return };
            side = usize::from(child(right, above, 1) == Some(parent));
            lower = Some(parent);
            parent = above;
        }
    }

    /// Panics unless I1 to I4 hold.
    #[cfg(any(test, feature = "model"))]
    pub(crate) fn check(&self, right: &Right) {
        let mut order = std::vec::Vec::new();
        if let Some(root) = self.root {
            assert!(root.links(right).parent.is_none());
            Self::check_below(right, root, &mut order);
        }
        assert!(order.windows(2).all(|pair| pair[0].key(right).deadline <= pair[1].key(right).deadline));
        assert_eq!(self.front, order.first().copied());
        assert_eq!(self.len as usize, order.len());
    }

    #[cfg(any(test, feature = "model"))]
    fn check_below(right: &Right, entity: EntityRef<F>, order: &mut std::vec::Vec<EntityRef<F>>) {
        let start = order.len();
        for side in 0..2 {
            let below = child(right, entity, side);
            let difference = rank(right, Some(entity)) - rank(right, below);
            assert!((1..=2).contains(&difference), "ranks differ by {difference}");
            if side == 1 {
                order.push(entity);
            }
            if let Some(below) = below {
                assert_eq!(below.links(right).parent, Some(entity));
                Self::check_below(right, below, order);
            }
        }
        assert!(order.len() > start + 1 || rank(right, Some(entity)) == 0, "a leaf has rank 0");
        let min = order[start..].iter().map(|entity| entity.key(right).vruntime).min();
        assert_eq!(Some(entity.links(right).min_vruntime), min, "the smallest vruntime below");
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
/// So the usual queue pays one addition, and both answers are at hand.
///
/// Invariant: `shortest` and `longest` are those of the entities counted here, and the default when there is none.
pub(crate) struct SliceIndex<F: Family> {
    custom: RBTree<BySlice<F>>,
    default_users: u32,
    default: u32,
    shortest: u32,
    longest: u32,
}

impl<F: Family> SliceIndex<F> {
    /// An empty index; `default` is the slice, in nanoseconds, of entities that asked for none.
    pub(crate) fn new(default: u32) -> Self {
        Self { custom: RBTree::new(BySlice::new()), default_users: 0, default, shortest: default, longest: default }
    }

    pub(crate) fn default_slice(&self) -> u32 {
        self.default
    }

    #[inline]
    pub(crate) fn insert(&mut self, right: &Right, entity: EntityRef<F>) {
        if entity.own(right).custom_slice {
            // SAFETY: the entity is alive and stays where it is while it is linked (EntityRef's invariant).
            self.custom.insert(unsafe { UnsafeRef::from_raw(entity.as_ptr().as_ptr()) });
            self.refresh(right);
        } else {
            self.default_users += 1;
            if self.default_users == 1 {
                self.refresh(right);
            }
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, right: &Right, entity: EntityRef<F>) {
        if entity.own(right).custom_slice {
            debug_assert!(entity.slice_link.is_linked());
            // SAFETY: an entity with a slice of its own was linked here when it joined the queue,
            // and its `custom_slice` changes only while it is out.
            unsafe { self.custom.cursor_mut_from_ptr(entity.as_ptr().as_ptr()) }.remove();
            self.refresh(right);
        } else {
            self.default_users -= 1;
            if self.default_users == 0 {
                self.refresh(right);
            }
        }
    }

    /// The shortest slice; the default of an empty queue.
    #[inline(always)]
    pub(crate) fn shortest(&self) -> u32 {
        self.shortest
    }

    /// The longest slice; the default of an empty queue.
    #[inline(always)]
    pub(crate) fn longest(&self) -> u32 {
        self.longest
    }

    /// Finds the shortest and the longest again, if not everybody has the default.
    #[inline(always)]
    fn refresh(&mut self, right: &Right) {
        if self.custom.is_empty() {
            (self.shortest, self.longest) = (self.default, self.default);
        } else {
            self.search(right);
        }
    }

    #[cold]
    fn search(&mut self, right: &Right) {
        let slice = |entity: Option<&SchedEntity<F>>| entity.map(|entity| entity.key(right).slice);
        let default = (self.default_users > 0).then_some(self.default);
        let first = slice(self.custom.lower_bound(Bound::Unbounded).get());
        let last = slice(self.custom.upper_bound(Bound::Unbounded).get());
        self.shortest = default.into_iter().chain(first).min().unwrap_or(self.default);
        self.longest = default.into_iter().chain(last).max().unwrap_or(self.default);
    }
}

#[cfg(test)]
mod tests;
