//! # What it is
//! What the observers counted, as the texts that Linux has in `/proc`, so that programs that read those read ours.
//!
//! # How it works
//! Every writer takes plain values and any [`core::fmt::Write`], and needs neither a lock nor a buffer.
//! Blanks are single, no line ends in one, and every line ends in a line feed.
//!
//! # Invariants
//! 1. The texts are those of the golden files in `tests/golden`, to the byte.
//!
//! # Cost
//! That of formatting; nothing here runs in the scheduler.

pub mod features;
pub mod pressure;
pub mod schedstat;

use crate::platform::Nanos;

/// Seconds between the start and the moment at which a 32-bit count of ticks wraps.
const SECONDS_BEFORE_WRAP: u32 = 300;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The number of ticks at `now` nanoseconds after the start, as Linux counts them:
/// 300 seconds before the wrap of 32 bits, so that whoever keeps them in 32 bits learns of it soon.
///
/// `hz` is the number of ticks in a second.
///
/// ```
/// assert_eq!(sched_core::text::jiffies(0, 250), (1 << 32) - 300 * 250);
/// ```
#[must_use]
pub const fn jiffies(now: Nanos, hz: u32) -> u64 {
    let first = SECONDS_BEFORE_WRAP.wrapping_mul(hz).wrapping_neg();
    let tick = match NANOS_PER_SECOND.checked_div(hz as u64) {
        Some(tick) if tick > 0 => tick,
        _ => 1,
    };
    first as u64 + now / tick
}
