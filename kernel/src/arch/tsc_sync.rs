//! Whether the CPUs' clocks agree.
//!
//! # What it is
//! A comparison of a starting CPU's time-stamp counter with the boot CPU's, and the correction when they differ.
//!
//! # How it works
//! The two CPUs pass a ball: the boot CPU reads its counter (t0) and serves, the other reads its own (t) and returns, the
//! boot CPU reads again (t1).
//! The other's counter is ahead by at least `t - t1` and at most `t - t0`, whatever the host did meanwhile; every
//! round narrows the interval.
//! If it holds zero, the clocks agree as far as anybody can tell, and nothing is corrected; otherwise the middle of the
//! interval is taken off.
//!
//! # Invariants
//! 1. One comparison at a time: the boot CPU starts the others one by one.
//! 2. The boot CPU waits [`ANSWER_NS`] at most for each return; the other CPU is released whatever happened.
//!
//! # Cost
//! At most [`MAX_ROUNDS`] round trips or about [`BUDGET_NS`] per CPU, at boot; usually a few microseconds.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{percpu, tsc};

/// The most rounds of a comparison.
const MAX_ROUNDS: u64 = 64;
/// The fewest, however long they take.
const MIN_ROUNDS: u64 = 8;
/// After this long a comparison with enough rounds ends.
const BUDGET_NS: u64 = 100_000_000;
/// When the interval is as narrow as this, a comparison with enough rounds ends.
const NARROW_NS: u64 = 5_000;
/// How long the boot CPU waits for an answer.
const ANSWER_NS: u64 = 10_000_000_000;
/// What `SERVED` holds when the comparison is over.
const OVER: u64 = u64::MAX;

/// The round that the boot CPU has served; [`OVER`] at the end.
static SERVED: AtomicU64 = AtomicU64::new(0);
/// The round that the other CPU has returned.
static RETURNED: AtomicU64 = AtomicU64::new(0);
/// The other CPU's counter in that round.
static COUNTER: AtomicU64 = AtomicU64::new(0);
/// What the other CPU must add to its counter.
static CORRECTION: AtomicU64 = AtomicU64::new(0);
/// The boot CPU's own offset.
static OFFSET: AtomicU64 = AtomicU64::new(0);

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// By how much the other clock is ahead for certain; 0 if it may agree. Negative: behind.
    pub certain_ns: i64,
    /// How wide the interval is in which the true difference lies.
    pub uncertainty_ns: u64,
}

/// Prepares the next comparison; on the boot CPU, before it starts the other CPU.
pub fn prepare() {
    RETURNED.store(0, Ordering::Relaxed);
    OFFSET.store(percpu::clock_offset(), Ordering::Relaxed);
    SERVED.store(0, Ordering::Release);
}

/// The boot CPU's part; `None` if the other CPU did not answer in time.
///
/// The other CPU is in, or on its way to, [`answer`].
pub fn compare() -> Option<Comparison> {
    let start_ns = tsc::now_ns();
    let (mut low, mut high) = (i64::MIN, i64::MAX);
    for round in 1..=MAX_ROUNDS {
        let t0 = tsc::raw_ticks();
        SERVED.store(round, Ordering::Release);
        let served_ns = tsc::now_ns();
        while RETURNED.load(Ordering::Acquire) != round {
            if tsc::now_ns() - served_ns > ANSWER_NS {
                release(0);
                return None;
            }
            core::hint::spin_loop();
        }
        let t1 = tsc::raw_ticks();
        let other = COUNTER.load(Ordering::Relaxed);
        low = low.max(other.wrapping_sub(t1) as i64);
        high = high.min(other.wrapping_sub(t0) as i64);
        let is_narrow = tsc::ticks_to_ns(high.abs_diff(low)) < NARROW_NS;
        if round >= MIN_ROUNDS && (is_narrow || tsc::now_ns() - start_ns > BUDGET_NS) {
            break;
        }
    }
    let (ahead, certain) = verdict(low, high);
    release(ahead.wrapping_neg());
    let ns = |ticks: u64| tsc::ticks_to_ns(ticks);
    Some(Comparison {
        certain_ns: ns(certain.unsigned_abs()) as i64 * certain.signum(),
        uncertainty_ns: ns(high.saturating_sub(low).unsigned_abs()),
    })
}

/// The other CPU's part: answers until the boot CPU has seen enough, then sets this CPU's clock.
pub fn answer() {
    let mut last = 0;
    loop {
        let served = SERVED.load(Ordering::Acquire);
        if served == OVER {
            break;
        }
        if served != last {
            COUNTER.store(tsc::raw_ticks(), Ordering::Relaxed);
            RETURNED.store(served, Ordering::Release);
            last = served;
        }
        core::hint::spin_loop();
    }
    let offset = OFFSET.load(Ordering::Relaxed);
    percpu::set_clock_offset(offset.wrapping_add(CORRECTION.load(Ordering::Relaxed)));
}

/// Ends the comparison for the other CPU.
fn release(correction: i64) {
    CORRECTION.store(correction as u64, Ordering::Relaxed);
    SERVED.store(OVER, Ordering::Release);
}

/// From the interval in which the difference lies: how much to take off, and how much of it is certain.
fn verdict(low: i64, high: i64) -> (i64, i64) {
    if low <= 0 && 0 <= high {
        return (0, 0);
    }
    let middle = low + high.wrapping_sub(low) / 2;
    (middle, if low > 0 { low } else { high })
}
