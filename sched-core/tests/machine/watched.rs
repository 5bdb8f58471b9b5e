//! A family of locks for one thread, which says what a real lock would only show as a hang.

use std::{
    cell::{Cell, UnsafeCell},
    sync::atomic::{AtomicBool, AtomicU64, Ordering, fence},
};

use sched_core::{Family, RawLock};

thread_local! {
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// How many locks of [`Watched`] the thread holds.
pub fn held() -> u32 {
    HELD.get()
}

/// Words and cells as usual, locks that are watched.
pub struct Watched;

impl Family for Watched {
    type Word = AtomicU64;
    type RawLock = WatchedLock;
    type Cell<T> = UnsafeCell<T>;

    fn fence(order: Ordering) {
        fence(order);
    }
}

/// A lock that must be free when it is taken, and must be the only one.
pub struct WatchedLock(AtomicBool);

impl RawLock for WatchedLock {
    fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    fn lock(&self) {
        assert!(self.try_lock(), "a lock is taken by its holder");
        assert_eq!(held(), 1, "a lock is taken under another");
    }

    fn try_lock(&self) -> bool {
        let taken = !self.0.swap(true, Ordering::Acquire);
        HELD.set(HELD.get() + u32::from(taken));
        taken
    }

    unsafe fn unlock(&self) {
        assert!(self.0.swap(false, Ordering::Release), "a free lock is freed");
        HELD.set(HELD.get() - 1);
    }
}
