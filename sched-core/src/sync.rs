//! # What it is
//! The words, locks and cells of the scheduler as one type parameter.
//! The same code runs on a kernel's spin locks, on a host, and under a checker that replaces all three.
//!
//! # How it works
//! A [`Family`] names three types: [`Word`] (an atomic `u64`), [`RawLock`], and [`Cell`] (unsynchronised storage
//! whose accesses a checker can see). [`Spin`] is the family for kernels.
//! On top of them stand [`Lock`] (a lock and what it guards) and [`Guarded`]
//! (a field that lies elsewhere but is guarded by a queue's lock).
//!
//! # Invariants
//! 1. What a [`Lock`] guards is touched only through its [`LockGuard`].
//! 2. A [`Guarded`] field is touched only by the holder of the [`Right`] of the one queue its entity belongs to,
//!    and an entity belongs to one queue at a time (see [`scheduler`](crate::scheduler), I2).
//! 3. An [`OwnerCell`] is touched by the CPU it belongs to, with interrupts off.
//! 4. A word with one writer (an *owner word*) is added to without an atomic read-modify-write.
//!
//! # Cost
//! That of the family's types; the wrappers add nothing.

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicU64, Ordering},
};

/// The synchronisation primitives of one environment.
pub trait Family: Send + Sync + 'static {
    /// An atomic word.
    type Word: Word;
    /// A mutual-exclusion lock without data.
    type RawLock: RawLock;
    /// Storage whose accesses are synchronised by something else.
    type Cell<T>: Cell<T>;

    /// A memory fence.
    fn fence(order: Ordering);
}

/// An atomic `u64`.
pub trait Word: Send + Sync {
    /// A word that holds `value`.
    fn new(value: u64) -> Self;
    /// Reads the word.
    fn load(&self, order: Ordering) -> u64;
    /// Writes the word.
    fn store(&self, value: u64, order: Ordering);
    /// Writes the word and returns what it held.
    fn swap(&self, value: u64, order: Ordering) -> u64;
    /// Writes `new` if the word holds `current`; the error is what it held instead.
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64>;
    /// Adds, wrapping, and returns what it held.
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;

    /// Adds to a word that only the caller writes (I4).
    #[inline(always)]
    fn owner_add(&self, value: u64) {
        self.store(self.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
    }
}

/// A lock without data.
pub trait RawLock: Send + Sync {
    /// A free lock.
    fn new() -> Self;
    /// Waits for the lock and takes it.
    fn lock(&self);
    /// Takes the lock if it is free.
    fn try_lock(&self) -> bool;
    /// Frees the lock.
    ///
    /// # Safety
    /// The caller holds it.
    unsafe fn unlock(&self);
}

/// Storage that is shared but not synchronised by itself.
pub trait Cell<T> {
    /// A cell that holds `value`.
    fn new(value: T) -> Self;
    /// Reads through a pointer that is valid during the call.
    fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R;
    /// Writes through a pointer that is valid during the call.
    fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R;
}

/// The family for kernels and hosts: hardware atomics and the spin lock of the `spin` crate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spin;

impl Family for Spin {
    type Word = AtomicU64;
    type RawLock = spin::mutex::SpinMutex<()>;
    type Cell<T> = UnsafeCell<T>;

    #[inline(always)]
    fn fence(order: Ordering) {
        core::sync::atomic::fence(order);
    }
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn new(value: u64) -> Self {
        AtomicU64::new(value)
    }
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }
    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }
    #[inline(always)]
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        AtomicU64::swap(self, value, order)
    }
    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        AtomicU64::compare_exchange(self, current, new, success, failure)
    }
    #[inline(always)]
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        AtomicU64::fetch_add(self, value, order)
    }
}

impl RawLock for spin::mutex::SpinMutex<()> {
    #[inline]
    fn new() -> Self {
        spin::mutex::SpinMutex::new(())
    }
    #[inline(always)]
    fn lock(&self) {
        core::mem::forget(spin::mutex::SpinMutex::lock(self));
    }
    #[inline(always)]
    fn try_lock(&self) -> bool {
        match spin::mutex::SpinMutex::try_lock(self) {
            Some(guard) => {
                core::mem::forget(guard);
                true
            }
            None => false,
        }
    }
    #[inline(always)]
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock, whose guard was forgotten in `lock` or `try_lock`.
        unsafe { self.force_unlock() }
    }
}

impl<T> Cell<T> for UnsafeCell<T> {
    #[inline(always)]
    fn new(value: T) -> Self {
        UnsafeCell::new(value)
    }
    #[inline(always)]
    fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.get())
    }
    #[inline(always)]
    fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.get())
    }
}

/// A lock and what it guards.
pub(crate) struct Lock<F: Family, T> {
    raw: F::RawLock,
    data: F::Cell<T>,
}

// SAFETY: I1. The data is reached only by the one holder of the lock, so `Send` is all it needs.
unsafe impl<F: Family, T: Send> Sync for Lock<F, T> {}
// SAFETY: a lock that is owned can be moved with what it guards.
unsafe impl<F: Family, T: Send> Send for Lock<F, T> {}

impl<F: Family, T> Lock<F, T> {
    pub(crate) fn new(data: T) -> Self {
        Self { raw: RawLock::new(), data: Cell::new(data) }
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> LockGuard<'_, F, T> {
        self.raw.lock();
        LockGuard { lock: self, _not_send: PhantomData }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, F, T>> {
        // Lazily: a guard that is made must be held, because dropping it frees the lock, whoever holds that.
        self.raw.try_lock().then(|| LockGuard { lock: self, _not_send: PhantomData })
    }
}

/// The holder of a [`Lock`]. Frees it when dropped.
pub(crate) struct LockGuard<'a, F: Family, T> {
    lock: &'a Lock<F, T>,
    _not_send: PhantomData<*mut ()>,
}

impl<F: Family, T> Deref for LockGuard<'_, F, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: I1: this guard is the only holder, and it is borrowed.
        self.lock.data.with(|data| unsafe { &*data })
    }
}

impl<F: Family, T> DerefMut for LockGuard<'_, F, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: I1: this guard is the only holder, and it is borrowed mutably.
        self.lock.data.with_mut(|data| unsafe { &mut *data })
    }
}

impl<F: Family, T> Drop for LockGuard<'_, F, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this guard stands for one successful `lock` or `try_lock`, and is dropped once.
        unsafe { self.lock.raw.unlock() }
    }
}

/// A value that only one CPU touches, with interrupts off.
pub(crate) struct OwnerCell<F: Family, T>(F::Cell<T>);

// SAFETY: the contract of `get` and `set` keeps all accesses on one CPU, one after another.
unsafe impl<F: Family, T: Send> Sync for OwnerCell<F, T> {}
// SAFETY: an owned cell moves with its content.
unsafe impl<F: Family, T: Send> Send for OwnerCell<F, T> {}

impl<F: Family, T: Copy> OwnerCell<F, T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Cell::new(value))
    }

    /// # Safety
    /// The caller is the one CPU the cell belongs to, with interrupts off.
    #[inline(always)]
    pub(crate) unsafe fn get(&self) -> T {
        // SAFETY: by this function's contract there is no other access now.
        self.0.with(|value| unsafe { *value })
    }

    /// # Safety
    /// The caller is the one CPU the cell belongs to, with interrupts off.
    #[inline(always)]
    pub(crate) unsafe fn set(&self, new: T) {
        // SAFETY: by this function's contract there is no other access now.
        self.0.with_mut(|value| unsafe { *value = new });
    }
}

/// The right of one queue over the entities that belong to it. Lies inside what the queue's lock guards.
#[derive(Debug)]
pub(crate) struct Right(());

impl Right {
    /// # Safety
    /// One right exists per queue, and it is reachable only under that queue's lock or through a `&mut` to the queue.
    pub(crate) const unsafe fn of_a_new_queue() -> Self {
        Self(())
    }
}

/// A field guarded by the lock of the queue its entity belongs to.
pub(crate) struct Guarded<F: Family, T>(F::Cell<T>);

// SAFETY: I2 makes all accesses to the cell exclusive or read-only under one lock.
unsafe impl<F: Family, T: Send> Sync for Guarded<F, T> {}
// SAFETY: an owned cell moves with its content.
unsafe impl<F: Family, T: Send> Send for Guarded<F, T> {}

impl<F: Family, T> Guarded<F, T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Cell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, _: &Right, read: impl FnOnce(&T) -> R) -> R {
        // SAFETY: I2: the right is borrowed, so no writer runs.
        self.0.with(|value| read(unsafe { &*value }))
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, _: &mut Right, write: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: I2: the right is borrowed mutably, and `write` cannot reach it again.
        self.0.with_mut(|value| write(unsafe { &mut *value }))
    }

    /// Reads without showing the right.
    ///
    /// # Safety
    /// The caller acts for a holder of the right, and no writer runs during the call.
    #[inline(always)]
    pub(crate) unsafe fn with_held<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        // SAFETY: by this function's contract.
        self.0.with(|value| read(unsafe { &*value }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_get_a_lock_leaves_it_to_its_holder() {
        let lock: Lock<Spin, u32> = Lock::new(0);
        let held = lock.try_lock();
        assert!(held.is_some());
        for _ in 0..3 {
            assert!(lock.try_lock().is_none(), "the attempt before freed it");
        }
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}
