//! The spin family with accidents: before each access the thread may dawdle or lose its host CPU,
//! so that windows of a few instructions become windows of a whole time slice.

use std::{
    cell::{Cell, UnsafeCell},
    hint, ptr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering, fence},
    thread,
};

use sched_core::{Family, RawLock, Word};

thread_local! {
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// Gives the calling thread its own run of accidents.
pub fn seed(seed: u64) {
    STATE.set(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
}

/// Perhaps dawdles.
pub fn perhaps() {
    // Xorshift: cheap, and without the locks and allocations of a thread-local generator.
    let mut x = STATE.get();
    if x == 0 {
        seed(ptr::from_ref(&x).addr() as u64);
        x = STATE.get();
    }
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    STATE.set(x);
    match x >> 52 & 0xff {
        0 => thread::yield_now(),
        1..8 => (0..x >> 40 & 0x1ff).for_each(|_| hint::spin_loop()),
        _ => {}
    }
}

/// Words, locks and cells that dawdle.
pub struct Jitter;

impl Family for Jitter {
    type Word = JitterWord;
    type RawLock = JitterLock;
    type Cell<T> = UnsafeCell<T>;

    fn fence(order: Ordering) {
        perhaps();
        fence(order);
    }
}

pub struct JitterWord(AtomicU64);

impl Word for JitterWord {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    fn load(&self, order: Ordering) -> u64 {
        perhaps();
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        perhaps();
        self.0.store(value, order);
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        perhaps();
        self.0.swap(value, order)
    }
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        perhaps();
        self.0.compare_exchange(current, new, success, failure)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        perhaps();
        self.0.fetch_add(value, order)
    }
}

/// A spin lock that lets its holder run.
pub struct JitterLock(AtomicBool);

impl RawLock for JitterLock {
    fn new() -> Self {
        Self(AtomicBool::new(false))
    }
    fn lock(&self) {
        perhaps();
        while !self.try_lock() {
            hint::spin_loop();
            thread::yield_now();
        }
    }
    fn try_lock(&self) -> bool {
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
        perhaps();
    }
}
