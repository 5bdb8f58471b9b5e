//! How fast the time-stamp counter counts.
//!
//! # What it is
//! Finds the counter's frequency once, at boot, and says where it learned it.
//!
//! # How it works
//! The first of these that applies:
//! 1. Under QEMU's instruction counting the counter advances by exactly 2^shift ns per instruction. A row of `nop`s shows
//!    it: twice as many take exactly so many ticks more, every time. The frequency is then 1 GHz of guest time, exactly,
//!    so two runs agree to the last digit.
//! 2. The hypervisor states it (leaf 0x40000010).
//! 3. The CPU states its crystal's frequency and the ratio (leaf 0x15).
//! 4. It is measured against the programmable interval timer, in several rounds. A noisy host shows as a long time between
//!    the two readings of the counter around a reading of the timer; the round in which these were shortest counts.
//!
//! # Invariants
//! 1. Every wait is bounded by a number of reads, so a missing timer is an error, not a hang.
//! 2. A round in which the timer ran out (its output is high) is not used.
//!
//! # Cost
//! At most about a quarter of a second of boot time; nothing afterwards.

use core::arch::asm;
use core::fmt;

use raw_cpuid::{CpuId, Hypervisor};
use x86_64::instructions::port::Port;

use super::tsc::{NANOS_PER_SECOND, raw_ticks};

/// Ticks per second of the programmable interval timer.
const PIT_HZ: u64 = 1_193_182;
/// How long a round is, in ticks of the timer: 25 ms of the 55 ms it can count.
const ROUND_PIT_TICKS: u16 = 30_000;
/// How many good rounds are enough.
const GOOD_ROUNDS: usize = 5;
/// How many rounds are tried.
const MAX_ROUNDS: usize = 25;
/// How many readings the end points of a round are chosen from.
const READINGS: usize = 10;
/// How many reads of the timer a round may take before the timer counts as stuck.
const MAX_READS: u32 = 5_000_000;

/// Where the frequency comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The counter counts executed instructions, 2^shift ns for each.
    Instructions {
        /// The shift.
        shift: u32,
    },
    /// The hypervisor states it.
    Hypervisor,
    /// The CPU states it.
    Cpuid,
    /// Measured, with this uncertainty.
    Pit {
        /// Parts per million either way.
        uncertainty_ppm: u64,
    },
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frequency {
    /// Ticks per second.
    pub hz: u64,
    /// Where it comes from.
    pub source: Source,
}

/// There is no counter to use, or nothing to measure it against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoClock;

impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} MHz, ", self.hz / 1_000_000, self.hz % 1_000_000)?;
        match self.source {
            Source::Instructions { shift } => write!(f, "{} ns per instruction", 1_u64 << shift),
            Source::Hypervisor => f.write_str("as the hypervisor states"),
            Source::Cpuid => f.write_str("as the CPU states"),
            Source::Pit { uncertainty_ppm } => write!(f, "measured to {uncertainty_ppm} ppm"),
        }
    }
}

/// Finds the frequency; on the boot CPU, with interrupts off and no other CPU running.
///
/// # Errors
/// When the CPU has no counter, or nothing states its frequency and the timer does not count.
pub fn frequency() -> Result<Frequency, NoClock> {
    let cpuid = CpuId::new();
    if !cpuid.get_feature_info().is_some_and(|features| features.has_tsc()) {
        return Err(NoClock);
    }
    if let Some(shift) = instruction_shift(&cpuid) {
        return Ok(Frequency { hz: NANOS_PER_SECOND, source: Source::Instructions { shift } });
    }
    let stated = cpuid.get_hypervisor_info().and_then(|info| info.tsc_frequency()).filter(|&khz| khz != 0);
    if let Some(khz) = stated {
        return Ok(Frequency { hz: u64::from(khz) * 1000, source: Source::Hypervisor });
    }
    if let Some(hz) = cpuid.get_tsc_info().and_then(|info| info.tsc_frequency()) {
        return Ok(Frequency { hz, source: Source::Cpuid });
    }
    measure()
}

/// Ticks that a row of `$count` instructions takes.
macro_rules! row_of_nops {
    ($count:literal) => {{
        let (start, end): (u64, u64);
        // SAFETY: reads the counter twice, with instructions between that do nothing.
        unsafe {
            asm!(
                "rdtsc", "shl rdx, 32", "or rax, rdx", "mov {start}, rax",
                concat!(".rept ", $count), "nop", ".endr",
                "rdtsc", "shl rdx, 32", "or rax, rdx",
                start = out(reg) start, out("rax") end, out("rdx") _, options(nomem, nostack),
            );
        }
        end.wrapping_sub(start)
    }};
}

/// If the counter counts executed instructions: how many ticks it counts for each, as a power of two.
fn instruction_shift(cpuid: &CpuId<raw_cpuid::CpuIdReaderNative>) -> Option<u32> {
    let interpreted = cpuid.get_hypervisor_info().is_some_and(|info| info.identify() == Hypervisor::QEMU);
    if !interpreted {
        return None;
    }
    let difference = || row_of_nops!(128).wrapping_sub(row_of_nops!(64));
    let first = difference();
    let counts = first >= 64 && first.is_power_of_two() && (0..8).all(|_| difference() == first);
    counts.then(|| first.trailing_zeros() - 6)
}

/// One reading of the timer between two of the counter.
#[derive(Clone, Copy)]
struct Reading {
    before: u64,
    after: u64,
    /// The timer counts down.
    pit: u16,
}

impl Reading {
    fn take() -> Self {
        // SAFETY: latches channel 2 and reads the latched count; nothing else is affected.
        unsafe {
            let before = raw_ticks();
            Port::<u8>::new(0x43).write(0x80);
            let after = raw_ticks();
            let mut data = Port::<u8>::new(0x42);
            let pit = u16::from_le_bytes([data.read(), data.read()]);
            Self { before, after, pit }
        }
    }

    fn width(&self) -> u64 {
        self.after.wrapping_sub(self.before)
    }

    fn middle(&self) -> u64 {
        self.before.wrapping_add(self.width() / 2)
    }

    /// The reading that took the shortest time.
    fn best() -> Self {
        let mut best = Self::take();
        for _ in 1..READINGS {
            let reading = Self::take();
            if reading.width() < best.width() {
                best = reading;
            }
        }
        best
    }
}

fn measure() -> Result<Frequency, NoClock> {
    let mut best: Option<(u64, Frequency)> = None;
    let mut good = 0;
    for _ in 0..MAX_ROUNDS {
        let Some((hz, uncertainty_ppb)) = round() else { continue };
        if best.is_none_or(|(least, _)| uncertainty_ppb < least) {
            let source = Source::Pit { uncertainty_ppm: uncertainty_ppb.div_ceil(1000) };
            best = Some((uncertainty_ppb, Frequency { hz, source }));
        }
        good += 1;
        if good == GOOD_ROUNDS {
            break;
        }
    }
    best.map(|(_, frequency)| frequency).ok_or(NoClock)
}

/// Measures once; returns the frequency and its uncertainty in parts per 10^9.
fn round() -> Option<(u64, u64)> {
    let mut gate = Port::<u8>::new(0x61);
    // SAFETY: channel 2 of the timer drives the speaker only, which is left off: gate on, count down once from 65535.
    unsafe {
        let other_bits = gate.read() & 0xfc;
        gate.write(other_bits | 1);
        Port::<u8>::new(0x43).write(0xb0);
        Port::<u8>::new(0x42).write(0xff);
        Port::<u8>::new(0x42).write(0xff);
    }
    let start = Reading::best();
    let mut reads = 0;
    while start.pit.wrapping_sub(Reading::take().pit) < ROUND_PIT_TICKS {
        reads += 1;
        if reads == MAX_READS {
            return None;
        }
        core::hint::spin_loop();
    }
    let end = Reading::best();
    const OUTPUT: u8 = 1 << 5;
    // SAFETY: only reads the timer's output.
    let ran_out = unsafe { gate.read() } & OUTPUT != 0;
    let pit_ticks = u64::from(start.pit.checked_sub(end.pit)?);
    let ticks = end.middle().wrapping_sub(start.middle());
    if ran_out || pit_ticks == 0 || ticks == 0 {
        return None;
    }
    let hz = (u128::from(ticks) * u128::from(PIT_HZ) / u128::from(pit_ticks)) as u64;
    // Half of each reading's width, and one tick of the timer.
    let reading_ppb = u128::from(start.width() + end.width()) * 500_000_000 / u128::from(ticks);
    let pit_ppb = u128::from(NANOS_PER_SECOND / pit_ticks);
    Some((hz, (reading_ppb + pit_ppb) as u64))
}
