//! Waiting.
//!
//! # What it is
//! [`WaitList`], the threads that wait at some place, for those who have a lock already ([`sleep_on`]);
//! [`WaitQueue`], the same with a lock of its own, for everybody else; [`WaitRecord`], what a thread says it waits for.
//!
//! # How it works
//! *A place with a lock* (pipe, exit record): the sleeper looks at the condition under the lock, goes into the list,
//! prepares its sleep, gives the lock up and blocks, all with interrupts off.
//! Who changes the condition does so under the lock, takes the first sleeper out and wakes it.
//!
//! *A wait queue*: the condition is anything at all, looked at without a lock, between `prepare` and `block`,
//! so a wake-up that comes after the look keeps the thread awake.
//! [`WaitQueue::wake_one`] takes the first sleeper out. If that one turns out not to need it (its condition came true
//! just before, or its time was up), it passes the wake-up on.
//!
//! # Invariants
//! 1. A thread is woken under the lock of the list it was taken out of, and takes that lock once more before its wait
//!    ends. So it cannot be gone while it is being woken.
//! 2. A wake-up of one is never lost: it wakes a thread that looks at its condition after it, or it is passed on.
//! 3. Sleepers are woken in the order in which they came.
//!
//! # Cost
//! No allocation. A sleep at a place with a lock: one section of interrupts off in all. In a wait queue: three.

use core::panic::Location;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

use intrusive_collections::{LinkedList, UnsafeRef};
use sched_core::{IrqOff, SleepKind};

use crate::arch::tsc;
use crate::lock::{IrqGuard, IrqLock, irq_off};
use crate::thread::{self, CurrentThread, Thread, WaitAdapter};
use crate::timer::Alarm;
use crate::{sched, timer};

/// What is waited for, and by which code.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Completes the sentence "waits for".
    pub what: &'static str,
    /// The line of code.
    pub at: &'static Location<'static>,
}

/// What a thread says it waits for; others may read it at any time.
///
/// A sequence record: the time is 0 while the rest changes.
pub struct WaitRecord {
    since_ns: AtomicU64,
    what: AtomicPtr<u8>,
    what_len: AtomicUsize,
    at: AtomicPtr<Location<'static>>,
}

/// The threads that wait at some place, first come first.
pub struct WaitList {
    list: LinkedList<WaitAdapter>,
}

/// Threads that wait for some condition.
pub struct WaitQueue {
    list: IrqLock<WaitList>,
}

/// Goes into the list that `list` finds in what `guard` protects, gives the lock up, and sleeps until woken.
///
/// The caller has looked at its condition under the same lock, and takes the lock again to look again.
/// Only who takes the thread out of the list may wake it.
#[inline]
pub fn sleep_on<T>(
    irq: &IrqOff,
    mut guard: IrqGuard<'_, T>,
    list: impl FnOnce(&mut T) -> &mut WaitList,
    place: Place,
    kind: SleepKind,
) {
    let me = thread::current();
    me.wait.begin(place);
    list(&mut guard).push(me);
    let sleep = sched::prepare(irq, kind);
    drop(guard);
    sched::block(irq, sleep);
    me.wait.end();
}

impl WaitList {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self { list: LinkedList::new(WaitAdapter::NEW) }
    }

    /// The running thread waits.
    #[inline(always)]
    fn push(&mut self, me: CurrentThread) {
        // SAFETY: the thread stays alive and in place while it is listed: it is taken out before its wait ends
        // (thread I2).
        self.list.push_back(unsafe { UnsafeRef::from_raw(me.unsafe_ref().as_ptr()) });
    }

    /// `me` waits no longer. False if it was woken, hence taken out, before.
    fn remove(&mut self, me: CurrentThread) -> bool {
        let listed = me.is_listed();
        if listed {
            // SAFETY: a thread hangs in one wait list only (thread I2), and this is the one it waits in.
            let _ = unsafe { self.list.cursor_mut_from_ptr(me.unsafe_ref().as_ptr()) }.remove();
        }
        listed
    }

    /// Wakes who came first; false if nobody waits. The caller holds the lock that goes with the list (I1).
    #[inline(always)]
    pub fn wake_first(&mut self, irq: &IrqOff) -> bool {
        // Mostly nobody waits, and then this is all.
        !self.list.is_empty() && self.take_and_wake(irq)
    }

    #[inline(never)]
    fn take_and_wake(&mut self, irq: &IrqOff) -> bool {
        let Some(first) = self.list.pop_front() else { return false };
        sched::wake(irq, &first);
        true
    }

    /// Wakes everybody and says how many. The caller holds the lock that goes with the list (I1).
    pub fn wake_all(&mut self, irq: &IrqOff) -> usize {
        let mut woken = 0;
        while self.wake_first(irq) {
            woken += 1;
        }
        woken
    }
}

impl WaitQueue {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self { list: IrqLock::new(WaitList::new()) }
    }

    /// Waits until `condition` gives something, and returns it. `what` completes the sentence "waits for".
    ///
    /// Whoever makes the condition true wakes the queue afterwards. The condition must not wait for anything itself.
    #[track_caller]
    pub fn wait_until<T>(&self, what: &'static str, kind: SleepKind, condition: impl FnMut() -> Option<T>) -> T {
        let place = Place { what, at: Location::caller() };
        match self.wait(place, kind, None, condition) {
            Some(value) => value,
            None => unreachable!("a wait without a deadline ended without a value"),
        }
    }

    /// Like [`wait_until`](Self::wait_until), but gives up when the clock shows `deadline_ns`.
    #[track_caller]
    pub fn wait_until_deadline<T>(
        &self,
        what: &'static str,
        kind: SleepKind,
        deadline_ns: u64,
        condition: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        self.wait(Place { what, at: Location::caller() }, kind, Some(deadline_ns), condition)
    }

    /// Wakes the thread that has waited longest; false if nobody waits.
    pub fn wake_one(&self) -> bool {
        let woke = irq_off(|irq| self.list.lock(irq).wake_first(irq));
        if woke {
            sched::preempt_check();
        }
        woke
    }

    /// Wakes everybody and says how many.
    pub fn wake_all(&self) -> usize {
        let woken = irq_off(|irq| self.wake_all_in(irq));
        if woken != 0 {
            sched::preempt_check();
        }
        woken
    }

    /// Like [`wake_all`](Self::wake_all), inside a section.
    pub fn wake_all_in(&self, irq: &IrqOff) -> usize {
        self.list.lock(irq).wake_all(irq)
    }

    fn wait<T>(
        &self,
        place: Place,
        kind: SleepKind,
        deadline_ns: Option<u64>,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if let Some(value) = condition() {
            return Some(value);
        }
        if deadline_ns.is_some_and(|deadline_ns| tsc::now_ns() >= deadline_ns) {
            return None;
        }
        sched::may_switch();
        let me = thread::current();
        me.wait.begin(place);
        let mut alarm: Option<Alarm> = None;
        let result = loop {
            let sleep = irq_off(|irq| {
                // First prepared, then listed: whoever takes the thread out of the list finds a sleep to end.
                // The other way round a thread could be taken out, find its condition false, and sleep in no list.
                let sleep = sched::prepare(irq, kind);
                let mut list = self.list.lock(irq);
                if !me.is_listed() {
                    list.push(me);
                }
                drop(list);
                if let (Some(deadline_ns), None) = (deadline_ns, &alarm) {
                    alarm = Some(timer::set_alarm(irq, me, deadline_ns));
                }
                sleep
            });
            if let Some(value) = condition() {
                sleep.cancel();
                break Some(value);
            }
            // An alarm that goes off after this look finds the sleep prepared, and keeps the thread awake.
            if alarm.is_some() && !me.is_sleeper() {
                sleep.cancel();
                break None;
            }
            irq_off(|irq| sched::block(irq, sleep));
        };
        me.wait.end();
        let passed_on = irq_off(|irq| {
            if let Some(alarm) = alarm {
                alarm.cancel(irq, me);
            }
            let mut list = self.list.lock(irq);
            // Woken after it last joined the list: that wake-up may have been for somebody else (I2).
            !list.remove(me) && list.wake_first(irq)
        });
        if passed_on {
            sched::preempt_check();
        }
        result
    }
}

impl WaitRecord {
    /// Waits for nothing.
    pub const fn new() -> Self {
        Self {
            since_ns: AtomicU64::new(0),
            what: AtomicPtr::new(core::ptr::null_mut()),
            what_len: AtomicUsize::new(0),
            at: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Whether the thread is in a wait.
    #[inline(always)]
    pub fn is_waiting(&self) -> bool {
        self.since_ns.load(Ordering::Relaxed) != 0
    }

    /// What the thread waits for, and since when; `None` if for nothing, or if that is changing just now.
    pub fn read(&self) -> Option<(Place, u64)> {
        let since_ns = self.since_ns.load(Ordering::Acquire);
        let what = self.what.load(Ordering::Relaxed).cast_const();
        let what_len = self.what_len.load(Ordering::Relaxed);
        let at = self.at.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        if since_ns == 0 || self.since_ns.load(Ordering::Relaxed) != since_ns {
            return None;
        }
        // SAFETY: the time did not change and was not 0, so all fields are those of one `begin`, which took them from a
        // `&'static str` and a `&'static Location`.
        let place = unsafe {
            let what = core::slice::from_raw_parts(what, what_len);
            Place { what: core::str::from_utf8_unchecked(what), at: &*at }
        };
        Some((place, since_ns))
    }

    /// By the thread itself.
    ///
    /// # Panics
    /// When it waits already: the condition of a wait must not wait.
    #[inline(always)]
    fn begin(&self, place: Place) {
        if self.is_waiting() {
            already_waiting();
        }
        fence(Ordering::Release);
        self.what.store(place.what.as_ptr().cast_mut(), Ordering::Relaxed);
        self.what_len.store(place.what.len(), Ordering::Relaxed);
        self.at.store(core::ptr::from_ref(place.at).cast_mut(), Ordering::Relaxed);
        self.since_ns.store(tsc::now_ns().max(1), Ordering::Release);
    }

    /// By the thread itself.
    #[inline(always)]
    fn end(&self) {
        self.since_ns.store(0, Ordering::Relaxed);
    }
}

/// The running thread sleeps alone, with nobody to wake it but its alarm; for [`timer`].
pub fn begin_alone(me: CurrentThread, place: Place) {
    me.wait.begin(place);
}

/// The end of [`begin_alone`].
pub fn end_alone(me: &Thread) {
    me.wait.end();
}

#[cold]
fn already_waiting() -> ! {
    panic!("the condition of a wait must not wait");
}
