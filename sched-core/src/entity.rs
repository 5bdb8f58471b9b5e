//! # What it is
//! [`SchedEntity`]: the thing a queue orders, in three cache lines and a little.
//! A task contains one; a group of tasks can contain one as well.
//!
//! # How it works
//! Fields are grouped by who touches them when.
//! Line 0 ([`Links`] and [`Key`]) is read on *every step of a walk through the timeline*, also of other entities.
//! Line 1 ([`Own`]) is read and written when this entity runs, comes or goes; so is line 2 ([`Signals`]), by the tick too.
//! The link of the slice index follows; it is touched only by entities with a slice of their own.
//! All fields are guarded by the lock of the queue the entity belongs to.
//!
//! # Invariants
//! 1. `deadline`, `vruntime` and `slice` do not change while the entity is linked in a tree that is ordered by them.
//! 2. `place` says whether the entity is in the timeline.
//! 3. `on_rq` is true from enqueue to dequeue; a running entity is `on_rq` and in no tree.
//! 4. A delayed entity is `on_rq` and in a tree.
//!
//! # Cost
//! A walk touches one line an entity.

use core::{fmt, ops::Deref, ptr::NonNull};

use crate::{
    params::Policy,
    platform::Nanos,
    sync::Family,
    vtime::{VSpan, VTime},
    weight::Weight,
};
#[cfg(not(feature = "naive-layout"))]
use {
    crate::{
        pelt::Signals,
        sync::{Guarded, Right, Spin, Word},
    },
    core::sync::atomic::Ordering,
    intrusive_collections::RBTreeAtomicLink,
};

/// Whether an entity is in the timeline, and how high: its rank there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(i8);

impl Place {
    /// In no tree: off the queue, or running. Also what a missing child counts for.
    pub(crate) const NOWHERE: Self = Self(-1);

    /// In the timeline. `rank` is not negative.
    #[inline(always)]
    pub(crate) const fn linked(rank: i8) -> Self {
        Self(rank)
    }

    #[inline(always)]
    pub(crate) const fn rank(self) -> i8 {
        self.0
    }
}

/// An entity's place in the timeline, which alone reads and writes it.
pub(crate) struct Links<F: Family> {
    /// Before and after it.
    pub child: [Option<EntityRef<F>>; 2],
    pub parent: Option<EntityRef<F>>,
    /// The smallest vruntime below it, and its own.
    pub min_vruntime: VTime,
}

impl<F: Family> Links<F> {
    const NONE: Self = Self { child: [None; 2], parent: None, min_vruntime: VTime::START };
}

impl<F: Family> Clone for Links<F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F: Family> Copy for Links<F> {}

/// What a walk through the timeline reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// d_i: the present request should be served by then.
    pub deadline: VTime,
    /// v_i: service received so far, divided by weight.
    pub vruntime: VTime,
    /// w_i, as of the last time the entity's queue looked.
    pub weight: Weight,
    /// r_i: the length of a request, in nanoseconds.
    pub slice: u32,
    /// Whether it is linked, and how high.
    pub place: Place,
}

/// What the entity's own comings and goings touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// Time up to which execution has been charged.
    pub exec_start: Nanos,
    /// The entity's `sum_exec` when the entity was last picked.
    pub prev_sum_exec: Nanos,
    /// V - v_i when the entity left its queue, or was delayed there. (CFS: min_vruntime - v_i.)
    pub vlag: VSpan,
    /// While v_i is before this point a running entity is not preempted by an equal.
    pub protected_until: VTime,
    /// On a queue: in a tree, or running.
    pub on_rq: bool,
    /// Asleep, but still in a tree.
    pub delayed: bool,
    /// Between two queues: `deadline` is held relative to `vruntime`. (CFS: only `vlag` says where the entity is.)
    pub relative: bool,
    /// `slice` was asked for; otherwise it follows the queue's default.
    pub custom_slice: bool,
    /// How the queue treats it beside its weight.
    pub policy: Policy,
}

/// An entity a queue can order.
#[cfg(not(feature = "naive-layout"))]
#[repr(C, align(64))]
pub struct SchedEntity<F: Family = Spin> {
    // Line 0: every walk, also past other entities.
    links: Guarded<F, Links<F>>,
    key: Guarded<F, Key>,
    // Line 1: this entity runs, comes or goes.
    own: OwnLine<F>,
    // Line 2: this entity runs, comes or goes, and the tick.
    signals: SignalsLine<F>,
    // Line 3, first 24 bytes: entities with a slice of their own come or go.
    pub(crate) slice_link: RBTreeAtomicLink,
}

#[cfg(not(feature = "naive-layout"))]
#[repr(C, align(64))]
struct SignalsLine<F: Family>(Guarded<F, Signals>);

#[cfg(not(feature = "naive-layout"))]
#[repr(C, align(64))]
struct OwnLine<F: Family> {
    own: Guarded<F, Own>,
    /// Total execution time in nanoseconds. Written under the queue's lock, read by anybody.
    sum_exec: F::Word,
}

#[cfg(not(feature = "naive-layout"))]
const _: () = {
    use core::mem::{align_of, offset_of, size_of};
    type E = SchedEntity<Spin>;
    static_assertions::const_assert!(align_of::<E>() == 64);
    static_assertions::const_assert!(offset_of!(E, links) == 0);
    static_assertions::const_assert!(offset_of!(E, key) + size_of::<Key>() <= 64);
    static_assertions::const_assert!(offset_of!(E, own) == 64);
    static_assertions::const_assert!(size_of::<OwnLine<Spin>>() == 64);
    static_assertions::const_assert!(offset_of!(E, signals) == 128);
    static_assertions::const_assert!(size_of::<SignalsLine<Spin>>() == 64);
    static_assertions::const_assert!(offset_of!(E, slice_link) == 192);
    static_assertions::const_assert!(size_of::<E>() == 256);
};

#[cfg(not(feature = "naive-layout"))]
impl<F: Family> SchedEntity<F> {
    /// An entity that has never run: nice 0, no service, off every queue.
    pub(crate) fn new() -> Self {
        Self {
            links: Guarded::new(Links::NONE),
            key: Guarded::new(Key {
                deadline: VTime::START,
                vruntime: VTime::START,
                weight: Weight::NICE_0,
                slice: 0,
                place: Place::NOWHERE,
            }),
            own: OwnLine {
                own: Guarded::new(Own {
                    exec_start: 0,
                    prev_sum_exec: 0,
                    vlag: VSpan::ZERO,
                    protected_until: VTime::START,
                    on_rq: false,
                    delayed: false,
                    relative: false,
                    custom_slice: false,
                    policy: Policy::Normal,
                }),
                sum_exec: Word::new(0),
            },
            signals: SignalsLine(Guarded::new(Signals::task(Weight::NICE_0))),
            slice_link: RBTreeAtomicLink::new(),
        }
    }

    #[inline(always)]
    pub(crate) fn key(&self, right: &Right) -> Key {
        self.key.with(right, |key| *key)
    }

    /// Changes the key. The caller keeps I1: what orders a tree changes only while the entity is out of it.
    #[inline(always)]
    pub(crate) fn set_key<R>(&self, right: &mut Right, change: impl FnOnce(&mut Key) -> R) -> R {
        self.key.with_mut(right, change)
    }

    /// The key, as a tree compares it.
    ///
    /// # Safety
    /// The caller acts for the holder of the queue's right (a tree operation inside a method of the queue),
    /// and nobody changes the key meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn key_held<R>(&self, read: impl FnOnce(&Key) -> R) -> R {
        // SAFETY: by this function's contract.
        unsafe { self.key.with_held(read) }
    }

    #[inline(always)]
    pub(crate) fn links(&self, right: &Right) -> Links<F> {
        self.links.with(right, |links| *links)
    }

    #[inline(always)]
    pub(crate) fn set_links(&self, right: &mut Right, change: impl FnOnce(&mut Links<F>)) {
        self.links.with_mut(right, change);
    }

    #[inline(always)]
    pub(crate) fn own(&self, right: &Right) -> Own {
        self.own.own.with(right, |own| *own)
    }

    #[inline(always)]
    pub(crate) fn signals(&self, right: &Right) -> Signals {
        self.signals.0.with(right, |signals| *signals)
    }

    #[inline(always)]
    pub(crate) fn set_signals<R>(&self, right: &mut Right, change: impl FnOnce(&mut Signals) -> R) -> R {
        self.signals.0.with_mut(right, change)
    }

    #[inline(always)]
    pub(crate) fn sum_exec(&self) -> Nanos {
        self.own.sum_exec.load(Ordering::Relaxed)
    }

    /// Adds to the execution time. The right shows that the caller holds the queue's lock, so there is one writer.
    #[inline(always)]
    pub(crate) fn add_exec(&self, _: &mut Right, ran: Nanos) {
        self.own.sum_exec.owner_add(ran);
    }

    #[inline(always)]
    pub(crate) fn set_own<R>(&self, right: &mut Right, change: impl FnOnce(&mut Own) -> R) -> R {
        self.own.own.with_mut(right, change)
    }
}

/// The same fields in another order, for one bench.
#[cfg(feature = "naive-layout")]
mod naive;
#[cfg(feature = "naive-layout")]
pub use naive::SchedEntity;

/// A pointer to an entity that the scheduler owns for now.
///
/// Invariant: the entity is alive and does not move, from the moment its owner gave it to the scheduler until the scheduler
/// gives it back. No `EntityRef` is kept beyond that.
pub(crate) struct EntityRef<F: Family>(NonNull<SchedEntity<F>>);

impl<F: Family> EntityRef<F> {
    /// # Safety
    /// The invariant of the type holds for as long as the result or a copy of it is used.
    #[inline(always)]
    pub(crate) const unsafe fn new(entity: NonNull<SchedEntity<F>>) -> Self {
        Self(entity)
    }

    #[inline(always)]
    pub(crate) const fn as_ptr(self) -> NonNull<SchedEntity<F>> {
        self.0
    }
}

impl<F: Family> Deref for EntityRef<F> {
    type Target = SchedEntity<F>;
    #[inline(always)]
    fn deref(&self) -> &SchedEntity<F> {
        // SAFETY: the invariant of the type; only shared references are ever made.
        unsafe { self.0.as_ref() }
    }
}

impl<F: Family> Clone for EntityRef<F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F: Family> Copy for EntityRef<F> {}
impl<F: Family> PartialEq for EntityRef<F> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<F: Family> Eq for EntityRef<F> {}
impl<F: Family> fmt::Debug for EntityRef<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// SAFETY: an `EntityRef` gives only `&SchedEntity`, and `SchedEntity` is `Sync`.
unsafe impl<F: Family> Send for EntityRef<F> {}
// SAFETY: as above.
unsafe impl<F: Family> Sync for EntityRef<F> {}
