//! What the machine layer calls in the layer above.
//!
//! # What it is
//! A table of functions that the thread layer registers once, before it turns interrupts on.
//!
//! # How it works
//! The interrupt handlers load the table's address and call through it.
//! Until a table is registered every hook does nothing.
//!
//! # Invariants
//! 1. Every hook is called with interrupts off, on the stack of whatever was interrupted, after the interrupt has been
//!    acknowledged, and must return with interrupts off.
//! 2. `irq_exit` is called with the interrupt depth of this CPU back at zero, as the last thing before the return to the
//!    interrupted code; it may switch to another thread, and return much later on another CPU.
//!
//! # Cost
//! Two loads and an indirect call.

use core::sync::atomic::{AtomicPtr, Ordering};

/// The functions the thread layer supplies.
pub struct Hooks {
    /// This CPU's timer, armed by [`super::timer`], has expired (it is disarmed now).
    pub timer: fn(),
    /// Another CPU called [`super::apic::send_reschedule`] for this one.
    pub reschedule: fn(),
    /// Another CPU called [`super::apic::send_call`] for this one.
    pub call: fn(),
    /// The way out of every device interrupt: preempt here if that is allowed.
    pub irq_exit: fn(),
}

/// The table before any is registered.
static NONE: Hooks = Hooks { timer: || {}, reschedule: || {}, call: || {}, irq_exit: || {} };

static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new((&raw const NONE).cast_mut());

/// Registers the thread layer's functions.
pub fn register(hooks: &'static Hooks) {
    HOOKS.store(core::ptr::from_ref(hooks).cast_mut(), Ordering::Release);
}

/// The functions now registered.
#[inline]
pub fn get() -> &'static Hooks {
    // SAFETY: the pointer is `NONE` or came from a `&'static Hooks` in `register`; nobody writes through it.
    unsafe { &*HOOKS.load(Ordering::Acquire) }
}
