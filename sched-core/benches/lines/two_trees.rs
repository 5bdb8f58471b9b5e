//! # What it is
//! An alternative to the timeline: two trees, of the eligible by deadline and of the others by vruntime.
//!
//! # How it works
//! A node is linked in exactly one red-black tree, through one link. V moves on, so a pick first moves the front of *later*
//! over while it has become eligible. V can also move back, so the front of *eligible* is checked again
//! and goes back to *later* when it no longer qualifies. What is then in front is the answer.
//!
//! # Invariants
//! 1. A linked node is in the tree that `later` names.
//! 2. The cached front of a tree is its first node.
//!
//! # Cost
//! O(log n) to insert and to remove. A pick is O(1) and the moves, each O(log n): one a request on average,
//! but all n at once where V reaches n entities that stand at one point.

use std::{cell::Cell, ops::Deref, ptr::NonNull};

use intrusive_collections::{KeyAdapter, RBTree, RBTreeLink, UnsafeRef, intrusive_adapter};
use sched_core::{VTime, Weight};

#[repr(C, align(64))]
pub struct Node {
    link: RBTreeLink,
    pub deadline: Cell<VTime>,
    pub vruntime: Cell<VTime>,
    later: Cell<bool>,
    pub slice: Cell<u32>,
    pub weight: Cell<Weight>,
    _rest: [u64; 24],
}

const _: () = assert!(size_of::<Node>() == 256);

impl Node {
    pub fn new() -> Self {
        Self {
            link: RBTreeLink::new(),
            deadline: Cell::new(VTime::START),
            vruntime: Cell::new(VTime::START),
            later: Cell::new(false),
            slice: Cell::new(0),
            weight: Cell::new(Weight::NICE_0),
            _rest: [0; 24],
        }
    }
}

/// A node that lives for ever.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NodeRef(NonNull<Node>);

impl From<&'static Node> for NodeRef {
    fn from(node: &'static Node) -> Self {
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

intrusive_adapter!(ByDeadline = UnsafeRef<Node>: Node { link => RBTreeLink });
intrusive_adapter!(ByVruntime = UnsafeRef<Node>: Node { link => RBTreeLink });

impl<'a> KeyAdapter<'a> for ByDeadline {
    type Key = VTime;
    #[inline(always)]
    fn get_key(&self, node: &'a Node) -> VTime {
        node.deadline.get()
    }
}

impl<'a> KeyAdapter<'a> for ByVruntime {
    type Key = VTime;
    #[inline(always)]
    fn get_key(&self, node: &'a Node) -> VTime {
        node.vruntime.get()
    }
}

#[derive(Default)]
pub struct TwoTrees {
    eligible: RBTree<ByDeadline>,
    later: RBTree<ByVruntime>,
    eligible_front: Option<NodeRef>,
    later_front: Option<NodeRef>,
    /// Who is on the queue, waiting or not.
    pub joined: u32,
}

impl TwoTrees {
    #[inline]
    pub fn insert(&mut self, node: NodeRef, eligible: bool) {
        // SAFETY: the node lives for ever.
        let owned = unsafe { UnsafeRef::from_raw(node.0.as_ptr()) };
        node.later.set(!eligible);
        if eligible {
            self.eligible.insert(owned);
            if self.eligible_front.is_none_or(|front| node.deadline.get() < front.deadline.get()) {
                self.eligible_front = Some(node);
            }
        } else {
            self.later.insert(owned);
            if self.later_front.is_none_or(|front| node.vruntime.get() < front.vruntime.get()) {
                self.later_front = Some(node);
            }
        }
    }

    #[inline]
    pub fn remove(&mut self, node: NodeRef) {
        macro_rules! remove_from {
            ($tree:ident, $front:ident) => {{
                // SAFETY: I1: `later` says that the node is linked in this tree.
                let mut cursor = unsafe { self.$tree.cursor_mut_from_ptr(node.0.as_ptr()) };
                cursor.remove();
                if self.$front == Some(node) {
                    // The cursor now stands on the successor.
                    self.$front = cursor.get().map(|next| NodeRef(next.into()));
                }
            }};
        }
        if node.later.get() {
            remove_from!(later, later_front);
        } else {
            remove_from!(eligible, eligible_front);
        }
    }

    #[inline]
    pub fn earliest(&mut self, eligible: impl Fn(VTime) -> bool) -> Option<NodeRef> {
        while let Some(front) = self.later_front.filter(|front| eligible(front.vruntime.get())) {
            self.remove(front);
            self.insert(front, true);
        }
        while let Some(front) = self.eligible_front.filter(|front| !eligible(front.vruntime.get())) {
            self.remove(front);
            self.insert(front, false);
        }
        self.eligible_front
    }
}
