//! Time, before there is a clock.
//!
//! # What it is
//! Short waits by the PIT, and the TSC's rate for time limits.
//!
//! # How it works
//! Channel 2 of the PIT counts down once; its output is polled at port 0x61. The TSC's rate is measured over one such wait.
//!
//! # Invariants
//! 1. Every wait ends, even with no PIT: the TSC bounds it.
//! 2. The TSC's rate is never believed to be so low that a time limit would be short.
//!
//! # Cost
//! The waits themselves; the rate is measured once, in 10 ms.

use core::arch::x86_64::_rdtsc;
use spin::Once;
use x86_64::instructions::port::Port;

const PIT_HZ: u64 = 1_193_182;
const PIT_CHANNEL_2: u16 = 0x42;
const PIT_COMMAND: u16 = 0x43;
/// Channel 2, low then high byte, count down once.
const PIT_ONE_SHOT: u8 = 0xb0;
const GATE_PORT: u16 = 0x61;
const GATE: u8 = 1;
const SPEAKER: u8 = 2;
const OUTPUT: u8 = 0x20;
/// No PIT wait takes more TSC ticks than this; even a very fast TSC then ran for seconds.
const PIT_MAX_TICKS: u64 = 40_000_000_000;
const RATE_SAMPLE_US: u32 = 10_000;
const LOWEST_TSC_HZ: u64 = 500_000_000;

static TSC_HZ: Once<u64> = Once::new();

/// Reads the time-stamp counter.
pub(crate) fn ticks() -> u64 {
    // SAFETY: Every CPU with 64-bit mode has the instruction, and nothing forbids it in the kernel.
    unsafe { _rdtsc() }
}

/// Waits `us` microseconds, at most 50 000.
pub(crate) fn wait_us(us: u32) {
    debug_assert!(us <= 50_000);
    let count = u64::from(us) * PIT_HZ / 1_000_000 + 1;
    let [low, high, ..] = count.to_le_bytes();
    let begin = ticks();
    // SAFETY: The PIT's second channel drives nothing but the speaker, which stays off; no memory is touched.
    unsafe {
        let mut gate = Port::<u8>::new(GATE_PORT);
        let idle = gate.read() & !(GATE | SPEAKER);
        gate.write(idle);
        Port::<u8>::new(PIT_COMMAND).write(PIT_ONE_SHOT);
        let mut channel = Port::<u8>::new(PIT_CHANNEL_2);
        channel.write(low);
        channel.write(high);
        gate.write(idle | GATE);
        while gate.read() & OUTPUT == 0 && ticks().wrapping_sub(begin) < PIT_MAX_TICKS {
            core::hint::spin_loop();
        }
        gate.write(idle);
    }
}

/// Returns how many TSC ticks make `ms` milliseconds, or more.
pub(crate) fn ticks_in_ms(ms: u64) -> u64 {
    let hz = *TSC_HZ.call_once(|| {
        let begin = ticks();
        wait_us(RATE_SAMPLE_US);
        let sampled = ticks().wrapping_sub(begin);
        (sampled * (1_000_000 / u64::from(RATE_SAMPLE_US))).max(LOWEST_TSC_HZ)
    });
    hz / 1000 * ms
}
