//! A spin lock that keeps interrupts off while it is held.
//!
//! # What it is
//! [`SpinIrq`]: `lock_api`'s mutex over a lock word of our own.
//! It protects what interrupt handlers and threads share: the console, the heap.
//!
//! # How it works
//! `lock` turns interrupts off, tries to take the word, and on failure puts interrupts back while it waits.
//! The state to put back at the end is kept beside the word, where only the holder touches it.
//!
//! # Invariants
//! 1. Interrupts are off on the holder's CPU from just before the word is taken until just after it is given up.
//! 2. `found_on` is written by the holder only.
//!
//! # Cost
//! One compare-and-swap and five more instructions when nobody else wants it. Not fair.

use core::sync::atomic::{AtomicBool, Ordering};

use lock_api::{GuardNoSend, RawMutex};

use crate::arch::irq::{self, IrqState};

/// A mutex that is held with interrupts off.
pub type SpinIrq<T> = lock_api::Mutex<RawSpinIrq, T>;

/// The lock word.
pub struct RawSpinIrq {
    held: AtomicBool,
    /// Whether the holder found interrupts on.
    found_on: AtomicBool,
}

impl RawSpinIrq {
    /// Gives the lock up in place of a holder that never runs again, without touching interrupts.
    ///
    /// # Safety
    /// - The holder, if there is one, never uses what the lock protects again.
    pub unsafe fn abandon(&self) {
        self.held.store(false, Ordering::Release);
    }

    fn try_take(&self) -> bool {
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

// SAFETY: `try_take` lets one caller through until `unlock`; acquire and release order what happens in between.
unsafe impl RawMutex for RawSpinIrq {
    // A lock to be copied is what `lock_api` asks for; each use makes a new one.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self { held: AtomicBool::new(false), found_on: AtomicBool::new(false) };

    // The holder's CPU has its interrupts off, so the guard must not move to another.
    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        loop {
            if self.try_lock() {
                return;
            }
            while self.held.load(Ordering::Relaxed) {
                core::hint::spin_loop();
            }
        }
    }

    fn try_lock(&self) -> bool {
        let found = irq::save();
        if self.try_take() {
            self.found_on.store(found == IrqState::On, Ordering::Relaxed);
            return true;
        }
        irq::restore(found);
        false
    }

    unsafe fn unlock(&self) {
        let found_on = self.found_on.load(Ordering::Relaxed);
        self.held.store(false, Ordering::Release);
        if found_on {
            irq::enable();
        }
    }

    fn is_locked(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }
}
