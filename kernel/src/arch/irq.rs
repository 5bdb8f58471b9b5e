//! Interrupts on and off on this CPU.
//!
//! # What it is
//! The interrupt flag: read, set, cleared, and put back as it was.
//! Every operation is also a compiler barrier, so nothing moves out of a section with interrupts off.
//!
//! # How it works
//! [`save`] returns the state it found, and [`restore`] puts it back, so sections nest.
//! [`enable_and_halt`] keeps `sti` and `hlt` next to each other: the CPU takes no interrupt between the two, so a
//! wake-up that comes after the last look cannot be slept through.
//!
//! # Invariants
//! 1. No assembly block here is marked `nomem`: the compiler treats each as if it read and wrote all memory.
//!
//! # Cost
//! One to three instructions.

use core::arch::asm;

/// The interrupt flag's bit in RFLAGS.
const INTERRUPT_FLAG: u64 = 1 << 9;

/// Whether interrupts were on, to be given back to [`restore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "interrupts stay off until the state is restored"]
pub enum IrqState {
    /// Interrupts were on.
    On,
    /// Interrupts were off already.
    Off,
}

/// Reads whether interrupts are on.
#[inline]
pub fn state() -> IrqState {
    let flags: u64;
    // SAFETY: pushes the flags and pops them again; the stack is used (no `nostack`), nothing else changes.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags, options(preserves_flags)) };
    if flags & INTERRUPT_FLAG == 0 { IrqState::Off } else { IrqState::On }
}

/// Says whether interrupts are on.
#[inline]
pub fn enabled() -> bool {
    state() == IrqState::On
}

/// Turns interrupts off.
#[inline]
pub fn disable() {
    // SAFETY: only delays interrupts; all memory counts as clobbered (invariant 1).
    unsafe { asm!("cli", options(nostack)) };
}

/// Turns interrupts on.
#[inline]
pub fn enable() {
    // SAFETY: the interrupt paths preserve every register and use the stack below the pointer only
    // (the target has no red zone); all memory counts as clobbered (invariant 1).
    unsafe { asm!("sti", options(nostack)) };
}

/// Turns interrupts off and returns how they were.
#[inline]
pub fn save() -> IrqState {
    let found = state();
    disable();
    found
}

/// Puts interrupts back as [`save`] found them.
#[inline]
pub fn restore(found: IrqState) {
    if found == IrqState::On {
        enable();
    }
}

/// Runs `f` with interrupts off.
#[inline]
pub fn without<R>(f: impl FnOnce() -> R) -> R {
    let found = save();
    let result = f();
    restore(found);
    result
}

/// Turns interrupts on and halts until one comes; returns after its handler, with interrupts on.
///
/// Called with interrupts off, after the last look for work: an interrupt that is already pending ends the halt.
#[inline]
pub fn enable_and_halt() {
    // SAFETY: `sti` takes effect after the next instruction, which is the `hlt`; all memory counts as clobbered
    // (invariant 1), because handlers and other threads ran meanwhile.
    unsafe { asm!("sti", "hlt", options(nostack)) };
}

/// Halts this CPU for good.
pub fn halt_for_ever() -> ! {
    loop {
        // SAFETY: with interrupts off only an NMI ends the halt, and the loop halts again.
        unsafe { asm!("cli", "hlt", options(nostack)) };
    }
}
