//! Sections with interrupts off, and the lock that is taken in them.
//!
//! # What it is
//! [`irq_off`], the only place where the scheduler's token is made, and [`IrqLock`], a spin lock that wants to see it.
//!
//! # How it works
//! A section is a closure, so sections nest like blocks and none ends before one that began inside it.
//! The closure borrows the token for as long as it runs, and a lock's guard borrows the token in turn:
//! a guard cannot leave the section, and a lock cannot be taken with interrupts on.
//! The thread that runs a section may be switched away inside it and come back on another CPU;
//! interrupts are off on both sides.
//!
//! # Invariants
//! 1. Inside a section nobody turns interrupts on but the idle loop's halt, which happens outside of any.
//! 2. Locks are held for a bounded number of steps and never across a context switch.
//! 3. Order: a lock of a waiting place (wait queue, pipe, exit record, a CPU's sleepers) before the scheduler's locks.
//!    Two locks of waiting places are never held at a time. The list of all threads and the pool of stacks are innermost.
//!
//! # Cost
//! A section: nine instructions. A lock that nobody else wants: one compare-and-swap and one store.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use sched_core::IrqOff;
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::arch::{irq, kick};

/// Runs `section` with interrupts off and puts them back as they were.
///
/// CPUs that the scheduler wants to interrupt are interrupted at its end, when its locks are given up ([`kick`]).
/// It is no preemption point: a section that wakes somebody calls [`crate::sched::preempt_here`] itself.
#[inline(always)]
pub fn irq_off<R>(section: impl FnOnce(&IrqOff) -> R) -> R {
    let found = irq::save();
    // SAFETY: interrupts have just been turned off, and nothing the closure can reach turns them on before it returns
    // (invariant 1). The closure only borrows the token, so it ends with the section. Over a context switch inside it
    // the statement stays true: whoever runs in between has a section of its own, and comes back here with interrupts off.
    let token = unsafe { IrqOff::assert() };
    let result = section(&token);
    kick::send();
    irq::restore(found);
    result
}

/// A spin lock that is held with interrupts off.
pub struct IrqLock<T> {
    inner: SpinMutex<T>,
}

/// Access to what an [`IrqLock`] protects. Neither it nor the token it borrows can be sent to another thread.
pub struct IrqGuard<'a, T> {
    inner: SpinMutexGuard<'a, T>,
    _section: PhantomData<&'a IrqOff>,
}

impl<T> IrqLock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { inner: SpinMutex::new(value) }
    }

    /// Waits for the lock, inside a section.
    #[inline(always)]
    pub fn lock<'a>(&'a self, _irq: &'a IrqOff) -> IrqGuard<'a, T> {
        IrqGuard { inner: self.inner.lock(), _section: PhantomData }
    }

    /// Takes the lock if it is free, inside a section.
    pub fn try_lock<'a>(&'a self, _irq: &'a IrqOff) -> Option<IrqGuard<'a, T>> {
        self.inner.try_lock().map(|inner| IrqGuard { inner, _section: PhantomData })
    }

    /// Waits for the lock, runs `f`, and gives it up; a section of its own.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        irq_off(|irq| f(&mut self.lock(irq)))
    }
}

impl<T> Deref for IrqGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for IrqGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
