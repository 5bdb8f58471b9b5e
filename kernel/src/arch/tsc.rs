//! The clock.
//!
//! # What it is
//! Nanoseconds since boot, the same on every CPU and never going back, from the time-stamp counter.
//!
//! # How it works
//! `now = (counter + offset) * mult >> 48`, where `mult` is nanoseconds per tick with 48 fractional bits, found once by
//! [`super::calibrate`], and `offset` is each CPU's own: minus the counter at boot, plus a correction if this CPU's
//! counter does not agree with the boot CPU's ([`super::tsc_sync`]).
//! Where the counter counts executed instructions (QEMU's `-icount shift=0`) `mult` is exactly one, so nanoseconds are
//! instructions.
//!
//! # Invariants
//! 1. `MULT` is written once, before any other CPU runs.
//! 2. `lfence` keeps the counter from being read before earlier loads are done, so what another CPU has been seen to do
//!    lies in the past.
//!
//! # Cost
//! [`now_ns`] is 8 instructions, without a division.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use super::percpu::{self, CLOCK_OFFSET_AT};
use crate::ratio::{mult, scale};

/// Fractional bits of `MULT`.
const SHIFT: u32 = 48;
/// Nanoseconds in a second.
pub const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Nanoseconds per tick, times 2^48.
static MULT: AtomicU64 = AtomicU64::new(0);
/// Ticks per nanosecond, times 2^32.
static TICKS_MULT: AtomicU64 = AtomicU64::new(0);
/// Ticks per second.
static FREQUENCY_HZ: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds since boot.
///
/// Usable in any context. A caller that compares the result with that of another call keeps preemption off in between.
#[inline]
pub fn now_ns() -> u64 {
    ticks_to_ns(now_ticks())
}

/// Ticks of the common clock since boot.
#[inline]
pub(super) fn now_ticks() -> u64 {
    let low: u64;
    // SAFETY: reads the counter and a field of this CPU's block (`percpu` invariant 1).
    unsafe {
        asm!("lfence", "rdtsc", "shl rdx, 32", "or rax, rdx", "add rax, gs:[{}]", const CLOCK_OFFSET_AT,
            out("rax") low, out("rdx") _, options(nostack));
    }
    low
}

/// The raw counter of this CPU.
#[inline]
pub(super) fn raw_ticks() -> u64 {
    let low: u64;
    // SAFETY: reads the counter only; all memory counts as clobbered, which keeps the read where it is written.
    unsafe {
        asm!("lfence", "rdtsc", "shl rdx, 32", "or rax, rdx", "lfence", out("rax") low, out("rdx") _,
            options(nostack));
    }
    low
}

/// Ticks per second.
pub fn frequency_hz() -> u64 {
    FREQUENCY_HZ.load(Ordering::Relaxed)
}

/// Converts ticks of the clock to nanoseconds.
#[inline]
pub(super) fn ticks_to_ns(ticks: u64) -> u64 {
    scale(ticks, MULT.load(Ordering::Relaxed), SHIFT)
}

/// Converts nanoseconds to ticks of the clock, rounded up.
#[inline]
pub(super) fn ns_to_ticks(ns: u64) -> u64 {
    scale(ns, TICKS_MULT.load(Ordering::Relaxed), 32) + 1
}

/// Starts the clock on the boot CPU.
///
/// # Safety
/// - Called once, by the boot CPU, before any other CPU runs (invariant 1).
pub unsafe fn start(frequency_hz: u64) {
    FREQUENCY_HZ.store(frequency_hz, Ordering::Relaxed);
    MULT.store(mult(NANOS_PER_SECOND, frequency_hz, SHIFT), Ordering::Relaxed);
    TICKS_MULT.store(mult(frequency_hz, NANOS_PER_SECOND, 32), Ordering::Relaxed);
    percpu::set_clock_offset(raw_ticks().wrapping_neg());
}
