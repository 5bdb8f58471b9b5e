//! # What it is
//! An alternative to the timeline and the slice index: one tree by deadline,
//! in which every node knows the smallest vruntime, and also the shortest and the longest slice below it.
//!
//! # How it works
//! A *weak AVL* tree (Haeupler, Sen and Tarjan, 2009): each node has a rank, a missing child has rank -1,
//! and a child's rank is 1 or 2 less than its parent's.
//! An insertion or a removal does at most two rotations, the depth of a tree that only grew is that of an AVL tree,
//! and the repair needs no case for the colour of a nephew: it is shorter than a red-black tree's.
//! A node has the links to its children in an array, so that one rotation serves both sides.
//!
//! The sums are repaired before the ranks are: upwards from the lowest changed node, as far as something changes.
//! A rotation then moves the sums of its old top to its new one, which stands for the same nodes, and recomputes the old top.
//!
//! # Invariants
//! 1. In order, deadlines do not fall; of equal ones the later arrival is the later.
//! 2. After every operation the sums of every node are those of a search below it.
//! 3. A leaf has rank 0, and ranks differ by 1 or 2.
//! 4. `front` is the first node.
//!
//! # Cost
//! O(log n) for all but `first` and the slices, which are O(1). A walk touches one cache line a node, an update that of its siblings too.

use std::{cell::Cell, ops::Deref, ptr::NonNull};

use sched_core::{VTime, Weight};

/// What is linked. Line 0 is all that a walk reads.
#[repr(C, align(64))]
pub struct Node {
    child: [Cell<Option<NodeRef>>; 2],
    parent: Cell<Option<NodeRef>>,
    pub deadline: Cell<VTime>,
    pub vruntime: Cell<VTime>,
    min_vruntime: Cell<VTime>,
    pub slice: Cell<u32>,
    min_slice: Cell<u32>,
    max_slice: Cell<u32>,
    rank: Cell<i8>,
    // Line 1.
    pub weight: Cell<Weight>,
    /// As much as an entity of the scheduler has.
    _rest: [u64; 23],
}

const _: () = assert!(size_of::<Node>() == 256 && std::mem::offset_of!(Node, weight) <= 64);

/// A node that lives as long as it is linked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NodeRef(NonNull<Node>);

impl NodeRef {
    pub fn of(node: &'static Node) -> Self {
        Self(node.into())
    }
}

impl Deref for NodeRef {
    type Target = Node;
    #[inline(always)]
    fn deref(&self) -> &Node {
        // SAFETY: made from a reference that lives for ever.
        unsafe { self.0.as_ref() }
    }
}

impl Node {
    pub fn new() -> Self {
        Self {
            child: [Cell::new(None), Cell::new(None)],
            parent: Cell::new(None),
            deadline: Cell::new(VTime::START),
            vruntime: Cell::new(VTime::START),
            min_vruntime: Cell::new(VTime::START),
            slice: Cell::new(0),
            min_slice: Cell::new(0),
            max_slice: Cell::new(0),
            rank: Cell::new(0),
            weight: Cell::new(Weight::NICE_0),
            _rest: [0; 23],
        }
    }
}

/// The rank of what may be missing.
#[inline(always)]
fn rank(node: Option<NodeRef>) -> i8 {
    node.map_or(-1, |node| node.rank.get())
}

/// The tree.
pub struct Augmented {
    root: Option<NodeRef>,
    front: Option<NodeRef>,
    len: usize,
}

impl Augmented {
    pub fn new() -> Self {
        Self { root: None, front: None, len: 0 }
    }

    #[allow(dead_code, reason = "the test asks")]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn insert(&mut self, node: NodeRef) {
        node.child[0].set(None);
        node.child[1].set(None);
        node.rank.set(0);
        Self::sum_alone(node);
        self.len += 1;
        let deadline = node.deadline.get();
        let (mut parent, mut side) = (None, 0);
        let mut at = self.root;
        while let Some(below) = at {
            side = usize::from(deadline >= below.deadline.get());
            parent = at;
            at = below.child[side].get();
        }
        node.parent.set(parent);
        let Some(parent) = parent else {
            self.root = Some(node);
            self.front = Some(node);
            return;
        };
        parent.child[side].set(Some(node));
        if side == 0 && self.front == Some(parent) {
            self.front = Some(node);
        }
        let mut up = Some(parent);
        while let Some(above) = up.filter(|above| Self::absorb(*above, node)) {
            up = above.parent.get();
        }
        if parent.rank.get() == 0 {
            self.repair_growth(node, parent, side);
        }
    }

    #[inline]
    pub fn remove(&mut self, node: NodeRef) {
        self.len -= 1;
        if self.front == Some(node) {
            self.front = Self::next(node);
        }
        let parent = node.parent.get();
        let (left, right) = (node.child[0].get(), node.child[1].get());
        // Where a subtree lost a level, and the lowest node whose sums changed.
        let (above, side, child);
        if let (Some(left), Some(right)) = (left, right) {
            // Its successor takes its place.
            let mut heir = right;
            while let Some(further) = heir.child[0].get() {
                heir = further;
            }
            child = heir.child[1].get();
            if heir == right {
                (above, side) = (Some(heir), 1);
            } else {
                let old = heir.parent.get();
                (above, side) = (old, 0);
                if let Some(old) = old {
                    old.child[0].set(child);
                }
                if let Some(child) = child {
                    child.parent.set(old);
                }
                heir.child[1].set(Some(right));
                right.parent.set(Some(heir));
            }
            heir.child[0].set(Some(left));
            left.parent.set(Some(heir));
            heir.rank.set(node.rank.get());
            heir.min_vruntime.set(node.min_vruntime.get());
            heir.min_slice.set(node.min_slice.get());
            heir.max_slice.set(node.max_slice.get());
            self.replace(parent, node, Some(heir));
            // Below the heir only the heir is missing, from there on only the node.
            let mut up = above;
            while let Some(at) = up.filter(|at| *at != heir && Self::sum(*at)) {
                up = at.parent.get();
            }
            up = Some(heir);
            while let Some(at) = up.filter(|at| Self::sum(*at)) {
                up = at.parent.get();
            }
        } else {
            child = left.or(right);
            above = parent;
            if let Some(child) = child {
                child.parent.set(parent);
            }
            side = self.replace(parent, node, child);
            let mut up = parent;
            while let Some(at) = up.filter(|at| Self::bears(*at, node) && Self::sum(*at)) {
                up = at.parent.get();
            }
        }
        if let Some(above) = above {
            self.repair_loss(child, above, side);
        }
    }

    /// The first in order of those whose vruntime is `eligible`, that is, not after `v`.
    ///
    /// Mostly the first of all is, which `eligible` says without a division; a walk then compares with `v`.
    #[inline]
    pub fn earliest(&self, eligible: impl Fn(VTime) -> bool, v: impl FnOnce() -> VTime) -> Option<NodeRef> {
        let front = self.front?;
        if eligible(front.vruntime.get()) {
            return Some(front);
        }
        let v = v();
        let mut at = self.root.filter(|root| root.min_vruntime.get() <= v);
        while let Some(node) = at {
            match node.child[0].get() {
                Some(left) if left.min_vruntime.get() <= v => at = Some(left),
                _ if node.vruntime.get() <= v => break,
                _ => at = node.child[1].get(),
            }
        }
        at
    }

    /// The first in order.
    #[allow(dead_code, reason = "the test asks")]
    pub fn first(&self) -> Option<NodeRef> {
        self.front
    }

    /// The one after the first.
    #[allow(dead_code, reason = "the test asks")]
    pub fn second(&self) -> Option<NodeRef> {
        self.front.and_then(Self::next)
    }

    #[inline]
    pub fn shortest(&self) -> Option<u32> {
        self.root.map(|root| root.min_slice.get())
    }

    #[inline]
    pub fn longest(&self) -> Option<u32> {
        self.root.map(|root| root.max_slice.get())
    }

    fn next(node: NodeRef) -> Option<NodeRef> {
        if let Some(mut next) = node.child[1].get() {
            while let Some(left) = next.child[0].get() {
                next = left;
            }
            return Some(next);
        }
        let mut below = node;
        while let Some(above) = below.parent.get() {
            if above.child[0].get() == Some(below) {
                return Some(above);
            }
            below = above;
        }
        None
    }

    #[inline(always)]
    fn sum_alone(node: NodeRef) {
        node.min_vruntime.set(node.vruntime.get());
        node.min_slice.set(node.slice.get());
        node.max_slice.set(node.slice.get());
    }

    /// A new leaf lies below `above`. True if that changed its sums.
    #[inline(always)]
    fn absorb(above: NodeRef, leaf: NodeRef) -> bool {
        let mut changed = leaf.vruntime.get() < above.min_vruntime.get();
        if changed {
            above.min_vruntime.set(leaf.vruntime.get());
        }
        let slice = leaf.slice.get();
        if slice < above.min_slice.get() {
            above.min_slice.set(slice);
            changed = true;
        }
        if slice > above.max_slice.get() {
            above.max_slice.set(slice);
            changed = true;
        }
        changed
    }

    /// Whether the sums of `above` may be those of `node`, which was below it. If not, nothing changes there or further up.
    #[inline(always)]
    fn bears(above: NodeRef, node: NodeRef) -> bool {
        let slice = node.slice.get();
        above.min_vruntime.get() == node.vruntime.get()
            || above.min_slice.get() == slice
            || above.max_slice.get() == slice
    }

    /// Recomputes the sums from the children. True if they changed.
    #[inline(always)]
    fn sum(node: NodeRef) -> bool {
        let mut vruntime = node.vruntime.get();
        let (mut shortest, mut longest) = (node.slice.get(), node.slice.get());
        for child in &node.child {
            if let Some(child) = child.get() {
                vruntime = vruntime.earlier(child.min_vruntime.get());
                shortest = shortest.min(child.min_slice.get());
                longest = longest.max(child.max_slice.get());
            }
        }
        let mut changed = node.min_vruntime.replace(vruntime) != vruntime;
        changed |= node.min_slice.replace(shortest) != shortest;
        changed |= node.max_slice.replace(longest) != longest;
        changed
    }

    /// Puts `new` where `old` hung. On which side that was.
    #[inline(always)]
    fn replace(&mut self, parent: Option<NodeRef>, old: NodeRef, new: Option<NodeRef>) -> usize {
        let side = match parent {
            Some(parent) => {
                let side = usize::from(parent.child[1].get() == Some(old));
                parent.child[side].set(new);
                side
            }
            None => {
                self.root = new;
                0
            }
        };
        if let Some(new) = new {
            new.parent.set(parent);
        }
        side
    }

    /// Lifts the child of `top` on `side` over it; the sums stay exact. Ranks are the caller's.
    #[inline]
    fn lift(&mut self, top: NodeRef, child: NodeRef, side: usize) {
        let between = child.child[1 - side].get();
        top.child[side].set(between);
        if let Some(between) = between {
            between.parent.set(Some(top));
        }
        self.replace(top.parent.get(), top, Some(child));
        child.child[1 - side].set(Some(top));
        top.parent.set(Some(child));
        child.min_vruntime.set(top.min_vruntime.get());
        child.min_slice.set(top.min_slice.get());
        child.max_slice.set(top.max_slice.get());
        Self::sum(top);
    }

    /// `node`, on `side` of `parent`, has the rank of its parent.
    fn repair_growth(&mut self, mut node: NodeRef, mut parent: NodeRef, mut side: usize) {
        while parent.rank.get() == node.rank.get() {
            if parent.rank.get() - rank(parent.child[1 - side].get()) == 1 {
                parent.rank.set(parent.rank.get() + 1);
                let Some(above) = parent.parent.get() else { return };
                node = parent;
                parent = above;
                side = usize::from(parent.child[1].get() == Some(node));
                continue;
            }
            let inner = node.child[1 - side].get().filter(|inner| node.rank.get() - inner.rank.get() == 1);
            parent.rank.set(parent.rank.get() - 1);
            if let Some(inner) = inner {
                inner.rank.set(inner.rank.get() + 1);
                node.rank.set(node.rank.get() - 1);
                self.lift(node, inner, 1 - side);
                self.lift(parent, inner, side);
            } else {
                self.lift(parent, node, side);
            }
            return;
        }
    }

    /// The subtree on `side` of `parent`, whose top is now `child`, may be too low.
    fn repair_loss(&mut self, mut child: Option<NodeRef>, mut parent: NodeRef, mut side: usize) {
        if child.is_none() && parent.rank.get() == 1 && parent.child[1 - side].get().is_none() {
            // A leaf of rank 1.
            parent.rank.set(0);
            let Some(above) = parent.parent.get() else { return };
            side = usize::from(above.child[1].get() == Some(parent));
            child = Some(parent);
            parent = above;
        }
        while parent.rank.get() - rank(child) == 3 {
            let Some(sibling) = parent.child[1 - side].get() else { return };
            if parent.rank.get() - sibling.rank.get() == 1 {
                let near = sibling.child[side].get();
                let far = sibling.child[1 - side].get();
                let low = sibling.rank.get() - 2;
                if rank(near) != low || rank(far) != low {
                    self.rotate_loss(parent, sibling, near, far, side);
                    return;
                }
                sibling.rank.set(sibling.rank.get() - 1);
            }
            parent.rank.set(parent.rank.get() - 1);
            let Some(above) = parent.parent.get() else { return };
            side = usize::from(above.child[1].get() == Some(parent));
            child = Some(parent);
            parent = above;
        }
    }

    fn rotate_loss(
        &mut self,
        parent: NodeRef,
        sibling: NodeRef,
        near: Option<NodeRef>,
        far: Option<NodeRef>,
        side: usize,
    ) {
        match near {
            Some(near) if sibling.rank.get() - rank(far) == 2 => {
                near.rank.set(near.rank.get() + 2);
                sibling.rank.set(sibling.rank.get() - 1);
                parent.rank.set(parent.rank.get() - 2);
                self.lift(sibling, near, side);
                self.lift(parent, near, 1 - side);
            }
            _ => {
                sibling.rank.set(sibling.rank.get() + 1);
                parent.rank.set(parent.rank.get() - 1);
                self.lift(parent, sibling, 1 - side);
                if parent.child.iter().all(|child| child.get().is_none()) {
                    parent.rank.set(0);
                }
            }
        }
    }

    /// Panics unless all invariants hold. The nodes in order.
    #[allow(dead_code, reason = "the test asks")]
    pub fn check(&self) -> Vec<NodeRef> {
        let mut order = Vec::new();
        if let Some(root) = self.root {
            assert!(root.parent.get().is_none());
            Self::check_below(root, &mut order);
        }
        assert!(order.windows(2).all(|pair| pair[0].deadline.get() <= pair[1].deadline.get()));
        assert!(self.front == order.first().copied());
        assert_eq!(self.len, order.len());
        order
    }

    fn check_below(node: NodeRef, order: &mut Vec<NodeRef>) {
        let start = order.len();
        for side in 0..2 {
            let child = node.child[side].get();
            assert!((1..=2).contains(&(node.rank.get() - rank(child))), "rank");
            if side == 1 {
                order.push(node);
            }
            if let Some(child) = child {
                assert!(child.parent.get() == Some(node), "parent");
                Self::check_below(child, order);
            }
        }
        let below = &order[start..];
        assert!(below.len() > 1 || node.rank.get() == 0, "a leaf");
        assert_eq!(Some(node.min_vruntime.get()), below.iter().map(|n| n.vruntime.get()).min());
        assert_eq!(Some(node.min_slice.get()), below.iter().map(|n| n.slice.get()).min());
        assert_eq!(Some(node.max_slice.get()), below.iter().map(|n| n.slice.get()).max());
    }
}
