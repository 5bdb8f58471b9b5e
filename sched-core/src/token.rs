//! # What it is
//! Proof that interrupts are off on the calling CPU.
//! Every entry point of the scheduler that touches a queue takes one, so "called with interrupts on" does not compile.
//!
//! # How it works
//! The embedder makes an [`IrqOff`] right after it disabled interrupts and lends it to each call.
//! The token is neither `Send` nor `Sync` and holds no CPU number:
//! a task may carry the *borrow* across a context switch and come back on another CPU,
//! which is sound because interrupts are off on both sides of the switch.
//!
//! # Invariants
//! 1. While an `IrqOff` is borrowed by a call, the calling CPU takes no interrupt that could enter the scheduler.
//!
//! # Cost
//! None: the type has no size.

use core::marker::PhantomData;

/// Interrupts are off on this CPU for as long as this value lives.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<sched_core::IrqOff>();
/// ```
#[derive(Debug)]
pub struct IrqOff {
    _not_send: PhantomData<*mut ()>,
}

impl IrqOff {
    /// States that interrupts are off.
    ///
    /// # Safety
    /// - Interrupts that can enter the scheduler (timer, kick, any that wakes a task) are off on the calling CPU
    ///   and stay off until the value is dropped.
    /// - [`Platform::this_cpu`](crate::Platform::this_cpu) names the calling CPU truly, and differently on every CPU:
    ///   what belongs to one CPU is touched without a lock on its word.
    /// - Where the caller is not a CPU at all (a host test), no two threads may claim to be the same CPU at a time.
    #[must_use = "the token is the permission to call the scheduler"]
    pub const unsafe fn assert() -> Self {
        Self { _not_send: PhantomData }
    }
}
