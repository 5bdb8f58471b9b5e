//! Sending INIT and SIPI.
//!
//! # What it is
//! The little of the local APIC that starting CPUs takes: who am I, and send to one.
//!
//! # How it works
//! Memory-mapped registers, or model-specific ones when the firmware has switched the APIC to x2APIC mode.
//!
//! # Invariants
//! 1. The mode is not changed; a started CPU is brought into the boot CPU's mode.
//!
//! # Cost
//! A few register accesses.

use crate::delay;
use crate::paging::{self, MapError};
use core::arch::x86_64::{__cpuid, __cpuid_count};
use x86_64::registers::model_specific::Msr;

const APIC_BASE: u32 = 0x1b;
const APIC_BASE_ENABLE: u64 = 1 << 11;
const APIC_BASE_X2: u64 = 1 << 10;
const X2_COMMAND: u32 = 0x830;
const COMMAND_LOW: usize = 0x300;
const COMMAND_HIGH: usize = 0x310;
const COMMAND_PENDING: u32 = 1 << 12;
const REGISTER_BYTES: usize = 4096;
const SEND_LIMIT_MS: u64 = 1000;
/// Delivery mode INIT, level asserted.
const INIT: u32 = 0x4500;
/// Delivery mode start-up, level asserted; the low byte is the page number.
const START_UP: u32 = 0x4600;
/// Identifiers that the memory-mapped registers can name; the highest means all CPUs.
const MAX_X_ID: u32 = 0xfe;

/// The local APIC of the CPU that runs.
#[derive(Clone, Copy)]
pub(crate) enum Apic {
    /// Memory-mapped registers, at this address.
    Mapped(usize),
    /// x2APIC mode.
    X2,
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The identifier needs x2APIC mode, which is off.
    IdTooLarge,
    /// The APIC did not take the command in time.
    Busy,
}

impl Apic {
    /// Finds out the mode, and maps the registers at `phys` if need be.
    pub fn new(phys: u64) -> Result<Self, MapError> {
        if is_x2() { Ok(Self::X2) } else { Ok(Self::Mapped(paging::map_device(phys, REGISTER_BYTES)? as usize)) }
    }

    /// Resets one CPU; it then waits for a start-up message.
    pub fn send_init(&self, apic_id: u32) -> Result<(), SendError> {
        self.send(apic_id, INIT)
    }

    /// Starts one CPU in real mode at the beginning of a page below 1 MiB.
    pub fn send_start_up(&self, apic_id: u32, page_phys: u64) -> Result<(), SendError> {
        debug_assert!(page_phys < 1 << 20 && page_phys.is_multiple_of(4096));
        self.send(apic_id, START_UP | (page_phys >> 12) as u32)
    }

    fn send(&self, apic_id: u32, command: u32) -> Result<(), SendError> {
        match *self {
            Self::X2 => {
                // SAFETY: x2APIC mode is on, and the commands sent here only reset or start another CPU.
                unsafe { Msr::new(X2_COMMAND).write(u64::from(apic_id) << 32 | u64::from(command)) };
                Ok(())
            }
            Self::Mapped(_) if apic_id > MAX_X_ID => Err(SendError::IdTooLarge),
            Self::Mapped(registers) => {
                let low = (registers + COMMAND_LOW) as *mut u32;
                let high = (registers + COMMAND_HIGH) as *mut u32;
                // SAFETY: `registers` is the mapped page of this APIC.
                let is_pending = || unsafe { low.read_volatile() } & COMMAND_PENDING != 0;
                wait_while(is_pending)?;
                // SAFETY: As above; the low half sends, so it comes last.
                unsafe {
                    high.write_volatile(apic_id << 24);
                    low.write_volatile(command);
                }
                wait_while(is_pending)
            }
        }
    }
}

/// Returns whether this CPU's APIC is in x2APIC mode.
pub(crate) fn is_x2() -> bool {
    // SAFETY: Every CPU with 64-bit mode has the register.
    let base = unsafe { Msr::new(APIC_BASE).read() };
    base & APIC_BASE_X2 != 0
}

/// Switches this CPU's APIC to x2APIC mode.
pub(crate) fn enter_x2() {
    let mut base = Msr::new(APIC_BASE);
    // SAFETY: Called only where the boot CPU's APIC is in that mode, so the CPUs have it.
    unsafe { base.write(base.read() | APIC_BASE_ENABLE | APIC_BASE_X2) };
}

/// The APIC identifier of the CPU that runs this.
pub fn current_apic_id() -> u32 {
    const TOPOLOGY: u32 = 0xb;
    if __cpuid(0).eax >= TOPOLOGY {
        let leaf = __cpuid_count(TOPOLOGY, 0);
        if leaf.ebx != 0 {
            return leaf.edx;
        }
    }
    __cpuid(1).ebx >> 24
}

fn wait_while(is_pending: impl Fn() -> bool) -> Result<(), SendError> {
    let begin = delay::ticks();
    let limit = delay::ticks_in_ms(SEND_LIMIT_MS);
    while is_pending() {
        if delay::ticks().wrapping_sub(begin) > limit {
            return Err(SendError::Busy);
        }
        core::hint::spin_loop();
    }
    Ok(())
}
