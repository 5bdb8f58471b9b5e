//! Each CPU's timer.
//!
//! # What it is
//! One interrupt at one time to come, per CPU: [`arm_at`], [`arm_in`], [`disarm`].
//!
//! # How it works
//! The local APIC's timer counts down once.
//! Its frequency is measured against the clock at boot ([`calibrate`]); where the CPU can compare the time-stamp counter
//! with a deadline instead, that is used and nothing needs to be measured.
//! The interrupt calls `hooks::Hooks::timer`, which looks at the clock: the interrupt may come early, by the error of the
//! measurement (some millionths of the time) or because the counter does not reach so far (four seconds or more);
//! then the hook arms again.
//!
//! # Invariants
//! 1. `MULT` and `MODE` are written once, before any other CPU runs.
//! 2. The functions act on the CPU they run on; the caller has interrupts off.
//!
//! # Cost
//! [`arm_in`]: a multiplication and one register write; [`arm_at`] reads the clock as well.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use raw_cpuid::CpuId;
use x86_64::registers::model_specific::Msr;

use super::apic::{self, Register};
use super::{percpu, tsc, vectors};
use crate::ratio::{mult, scale};

/// In the timer's entry: expire when the time-stamp counter reaches the deadline.
const DEADLINE_MODE: u32 = 0b10 << 17;
/// The divider's code for "every tick".
const DIVIDE_BY_1: u32 = 0b1011;
/// The deadline's MSR.
const TSC_DEADLINE: u32 = 0x6e0;
/// How long each measurement takes.
const ROUND_NS: u64 = 10_000_000;
/// How many measurements there are; the one with the least uncertainty counts.
const ROUNDS: usize = 3;
/// How often a pair of readings is taken to find a short one.
const READINGS: usize = 10;
/// Fractional bits of `MULT`.
const SHIFT: u32 = 32;

/// Timer ticks per nanosecond, times 2^32.
static MULT: AtomicU64 = AtomicU64::new(0);
/// Whether the deadline mode is used.
static DEADLINE: AtomicBool = AtomicBool::new(false);

/// How the timer is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It compares the time-stamp counter with a deadline.
    Deadline,
    /// It counts down at this frequency.
    OneShot {
        /// Ticks per second.
        hz: u64,
    },
}

/// The timer does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck;

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline => f.write_str("TSC deadline"),
            Self::OneShot { hz } => write!(f, "one-shot at {}.{:06} MHz", hz / 1_000_000, hz % 1_000_000),
        }
    }
}

/// Finds out how to drive the timer; on the boot CPU, after its APIC and the clock, before any other CPU runs.
///
/// # Errors
/// When the timer does not count.
pub fn calibrate() -> Result<Mode, Stuck> {
    let has_deadline = CpuId::new().get_feature_info().is_some_and(|features| features.has_tsc_deadline());
    if has_deadline {
        DEADLINE.store(true, Ordering::Relaxed);
        return Ok(Mode::Deadline);
    }
    let mut hz = measure().ok_or(Stuck)?;
    if tsc::frequency_hz() == tsc::NANOS_PER_SECOND {
        // A clock that counts instructions is exact, and so is its timer; what is left is the measurement's own time.
        hz = (hz + 500_000) / 1_000_000 * 1_000_000;
    }
    if hz == 0 {
        return Err(Stuck);
    }
    MULT.store(mult(hz, tsc::NANOS_PER_SECOND, SHIFT), Ordering::Relaxed);
    Ok(Mode::OneShot { hz })
}

/// Sets the calling CPU's timer up, disarmed; after `calibrate` and `apic::install`.
pub fn install() {
    if DEADLINE.load(Ordering::Relaxed) {
        apic::write(Register::TimerEntry, DEADLINE_MODE | u32::from(vectors::TIMER));
    } else {
        apic::write(Register::TimerDivide, DIVIDE_BY_1);
        apic::write(Register::TimerEntry, u32::from(vectors::TIMER));
    }
    disarm();
}

/// Interrupts this CPU when the clock shows `ns`, or at once if it does already; replaces what was armed.
#[inline]
pub fn arm_at(ns: u64) {
    if DEADLINE.load(Ordering::Relaxed) {
        arm_deadline(tsc::ns_to_ticks(ns));
    } else {
        arm_count(ns.saturating_sub(tsc::now_ns()));
    }
}

/// Interrupts this CPU after `ns` nanoseconds; replaces what was armed.
#[inline]
pub fn arm_in(ns: u64) {
    if DEADLINE.load(Ordering::Relaxed) {
        arm_deadline(tsc::now_ticks().saturating_add(tsc::ns_to_ticks(ns)));
    } else {
        arm_count(ns);
    }
}

/// Takes back what was armed. An interrupt that is already on its way still comes.
#[inline]
pub fn disarm() {
    if DEADLINE.load(Ordering::Relaxed) {
        write_deadline(0);
    } else {
        apic::write(Register::TimerInitial, 0);
    }
}

#[inline]
fn arm_count(ns: u64) {
    // Longer than the counter reaches is cut, so the product stays far below 128 bits; one more tick rounds up.
    let ticks = scale(ns, MULT.load(Ordering::Relaxed), SHIFT).saturating_add(1);
    apic::write(Register::TimerInitial, u32::try_from(ticks).unwrap_or(u32::MAX));
}

#[inline]
fn arm_deadline(ticks: u64) {
    // The comparison is with the raw counter; 0 would disarm.
    write_deadline(ticks.wrapping_sub(percpu::clock_offset()).max(1));
}

fn write_deadline(raw_ticks: u64) {
    // SAFETY: the CPU has the deadline mode, or `DEADLINE` would not be set; the write arms or disarms, nothing else.
    unsafe { Msr::new(TSC_DEADLINE).write(raw_ticks) };
}

/// One reading of the timer between two of the clock.
#[derive(Clone, Copy)]
struct Reading {
    before_ns: u64,
    after_ns: u64,
    /// The timer counts down.
    count: u32,
}

impl Reading {
    fn take() -> Self {
        let before_ns = tsc::now_ns();
        let count = apic::read(Register::TimerCurrent);
        let after_ns = tsc::now_ns();
        Self { before_ns, after_ns, count }
    }

    fn width_ns(&self) -> u64 {
        self.after_ns - self.before_ns
    }

    fn middle_ns(&self) -> u64 {
        self.before_ns + self.width_ns() / 2
    }

    /// The reading that took the shortest time.
    fn best() -> Self {
        let mut best = Self::take();
        for _ in 1..READINGS {
            let reading = Self::take();
            if reading.width_ns() < best.width_ns() {
                best = reading;
            }
        }
        best
    }
}

fn measure() -> Option<u64> {
    apic::write(Register::TimerDivide, DIVIDE_BY_1);
    let mut best: Option<(u64, u64)> = None;
    for _ in 0..ROUNDS {
        apic::write(Register::TimerInitial, u32::MAX);
        let start = Reading::best();
        while tsc::now_ns() - start.after_ns < ROUND_NS {
            core::hint::spin_loop();
        }
        let end = Reading::best();
        let (ns, ticks) = (end.middle_ns() - start.middle_ns(), start.count.wrapping_sub(end.count));
        // A host that slept through the whole count makes the round worthless.
        if end.count == 0 || ticks == 0 {
            continue;
        }
        let hz = (u128::from(ticks) * u128::from(tsc::NANOS_PER_SECOND) / u128::from(ns)) as u64;
        let width_ns = start.width_ns() + end.width_ns();
        if best.is_none_or(|(least, _)| width_ns < least) {
            best = Some((width_ns, hz));
        }
    }
    apic::write(Register::TimerInitial, 0);
    best.map(|(_, hz)| hz)
}
