//! # What it is
//! [`SchedEntity`] with its fields in the order in which one thinks of them. For one bench; see `benches/README.md`.
//!
//! # How it works
//! The accessors gather and scatter what the usual entity holds together; a compiler leaves of that what is used.
//!
//! # Invariants
//! 1. Those of the usual entity, but for the lines.
//!
//! # Cost
//! To be measured.

use core::sync::atomic::Ordering;

use intrusive_collections::RBTreeAtomicLink;

use super::{Key, Links, Own, Place};
use crate::{
    params::Policy,
    pelt::Signals,
    platform::Nanos,
    sync::{Family, Guarded, Right, Spin, Word},
    vtime::{VSpan, VTime},
    weight::Weight,
};

#[repr(C)]
struct Fields {
    policy: Policy,
    on_rq: bool,
    delayed: bool,
    relative: bool,
    custom_slice: bool,
    weight: Weight,
    slice: u32,
    exec_start: Nanos,
    prev_sum_exec: Nanos,
    vruntime: VTime,
    vlag: VSpan,
    deadline: VTime,
    protected_until: VTime,
    place: Place,
}

impl Fields {
    #[inline(always)]
    fn key(&self) -> Key {
        Key {
            deadline: self.deadline,
            vruntime: self.vruntime,
            weight: self.weight,
            slice: self.slice,
            place: self.place,
        }
    }

    #[inline(always)]
    fn own(&self) -> Own {
        Own {
            exec_start: self.exec_start,
            prev_sum_exec: self.prev_sum_exec,
            vlag: self.vlag,
            protected_until: self.protected_until,
            on_rq: self.on_rq,
            delayed: self.delayed,
            relative: self.relative,
            custom_slice: self.custom_slice,
            policy: self.policy,
        }
    }
}

#[inline(always)]
const fn loose(signals: Signals) -> [u64; 8] {
    // SAFETY: eight words of integers, without padding.
    unsafe { core::mem::transmute(signals) }
}

#[inline(always)]
const fn whole(words: [u64; 8]) -> Signals {
    // SAFETY: as above; every value of an integer is one.
    unsafe { core::mem::transmute(words) }
}

/// An entity a queue can order.
#[repr(C)]
pub struct SchedEntity<F: Family = Spin> {
    fields: Guarded<F, Fields>,
    sum_exec: F::Word,
    /// [`Signals`], whose type would align the whole.
    signals: Guarded<F, [u64; 8]>,
    pub(crate) slice_link: RBTreeAtomicLink,
    links: Guarded<F, Links<F>>,
}

impl<F: Family> SchedEntity<F> {
    pub(crate) fn new() -> Self {
        Self {
            fields: Guarded::new(Fields {
                policy: Policy::Normal,
                on_rq: false,
                delayed: false,
                relative: false,
                custom_slice: false,
                weight: Weight::NICE_0,
                slice: 0,
                exec_start: 0,
                prev_sum_exec: 0,
                vruntime: VTime::START,
                vlag: VSpan::ZERO,
                deadline: VTime::START,
                protected_until: VTime::START,
                place: Place::NOWHERE,
            }),
            sum_exec: Word::new(0),
            signals: Guarded::new(loose(Signals::task(Weight::NICE_0))),
            slice_link: RBTreeAtomicLink::new(),
            links: Guarded::new(Links::NONE),
        }
    }

    #[inline(always)]
    pub(crate) fn key(&self, right: &Right) -> Key {
        self.fields.with(right, Fields::key)
    }

    #[inline(always)]
    pub(crate) fn set_key<R>(&self, right: &mut Right, change: impl FnOnce(&mut Key) -> R) -> R {
        self.fields.with_mut(right, |fields| {
            let mut key = fields.key();
            let result = change(&mut key);
            let Key { deadline, vruntime, weight, slice, place } = key;
            (fields.deadline, fields.vruntime, fields.weight) = (deadline, vruntime, weight);
            (fields.slice, fields.place) = (slice, place);
            result
        })
    }

    /// # Safety
    /// The caller acts for the holder of the queue's right, and nobody changes the key meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn key_held<R>(&self, read: impl FnOnce(&Key) -> R) -> R {
        // SAFETY: by this function's contract.
        unsafe { self.fields.with_held(|fields| read(&fields.key())) }
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
        self.fields.with(right, Fields::own)
    }

    #[inline(always)]
    pub(crate) fn signals(&self, right: &Right) -> Signals {
        self.signals.with(right, |words| whole(*words))
    }

    #[inline(always)]
    pub(crate) fn set_signals<R>(&self, right: &mut Right, change: impl FnOnce(&mut Signals) -> R) -> R {
        self.signals.with_mut(right, |words| {
            let mut signals = whole(*words);
            let result = change(&mut signals);
            *words = loose(signals);
            result
        })
    }

    #[inline(always)]
    pub(crate) fn sum_exec(&self) -> Nanos {
        self.sum_exec.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn add_exec(&self, _: &mut Right, ran: Nanos) {
        self.sum_exec.owner_add(ran);
    }

    #[inline(always)]
    pub(crate) fn set_own<R>(&self, right: &mut Right, change: impl FnOnce(&mut Own) -> R) -> R {
        self.fields.with_mut(right, |fields| {
            let mut own = fields.own();
            let result = change(&mut own);
            let Own { exec_start, prev_sum_exec, vlag, protected_until, on_rq, delayed, relative, .. } = own;
            (fields.exec_start, fields.prev_sum_exec, fields.vlag) = (exec_start, prev_sum_exec, vlag);
            (fields.protected_until, fields.on_rq) = (protected_until, on_rq);
            (fields.delayed, fields.relative) = (delayed, relative);
            (fields.custom_slice, fields.policy) = (own.custom_slice, own.policy);
            result
        })
    }
}
