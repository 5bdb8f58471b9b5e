//! The interrupt vectors, in one table.
//!
//! # What it is
//! The number of every interrupt the kernel raises or takes.
//!
//! # How it works
//! The CPU serves a pending interrupt of a higher class (the upper four bits) first, so the ones that must not wait
//! have the higher numbers.
//!
//! | vector | from | what it does |
//! |---|---|---|
//! | 0-31 | the CPU | exceptions; all of them end in a panic, NMI also stops a CPU |
//! | 32-47 | the old interrupt controller | masked; only its spurious 39 and 47 may arrive, and are ignored |
//! | [`TIMER`] | this CPU's APIC timer | `hooks::Hooks::timer` |
//! | [`RESCHEDULE`] | another CPU | `hooks::Hooks::reschedule` |
//! | [`CALL`] | another CPU | `hooks::Hooks::call` |
//! | [`STOP`] | a panicking CPU | halts this CPU for good |
//! | [`APIC_ERROR`] | this CPU's APIC | panic: somebody sent nonsense |
//! | [`SPURIOUS`] | this CPU's APIC | ignored, and not acknowledged |
//!
//! # Invariants
//! 1. Every other vector ends in a panic that names it.
//!
//! # Cost
//! None: constants.

/// First vector of the old interrupt controllers.
pub const PIC_BASE: u8 = 0x20;
/// The spurious interrupt of the first old controller.
pub const PIC_SPURIOUS_LOW: u8 = PIC_BASE + 7;
/// The spurious interrupt of the second old controller.
pub const PIC_SPURIOUS_HIGH: u8 = PIC_BASE + 15;
/// Another CPU asks this one to run a function.
pub const CALL: u8 = 0xd0;
/// This CPU's timer has expired.
pub const TIMER: u8 = 0xe0;
/// Another CPU asks this one to look at its run queue.
pub const RESCHEDULE: u8 = 0xe1;
/// A panicking CPU asks this one to stop.
pub const STOP: u8 = 0xf0;
/// The local APIC reports an error.
pub const APIC_ERROR: u8 = 0xfe;
/// The local APIC had nothing to deliver after all; its low four bits must be ones.
pub const SPURIOUS: u8 = 0xff;

/// The CPU's own exceptions.
pub mod exception {
    /// Non-maskable interrupt.
    pub const NMI: u8 = 2;
    /// An exception while an exception was being delivered.
    pub const DOUBLE_FAULT: u8 = 8;
    /// An address that is not mapped, or not for this use.
    pub const PAGE_FAULT: u8 = 14;
    /// The machine itself reports damage.
    pub const MACHINE_CHECK: u8 = 18;
}

/// The name and mnemonic of an exception.
pub fn exception_name(vector: u8) -> &'static str {
    match vector {
        0 => "divide error (#DE)",
        1 => "debug exception (#DB)",
        2 => "non-maskable interrupt (NMI)",
        3 => "breakpoint (#BP)",
        4 => "overflow (#OF)",
        5 => "bound range exceeded (#BR)",
        6 => "invalid opcode (#UD)",
        7 => "device not available (#NM)",
        8 => "double fault (#DF)",
        10 => "invalid TSS (#TS)",
        11 => "segment not present (#NP)",
        12 => "stack segment fault (#SS)",
        13 => "general protection fault (#GP)",
        14 => "page fault (#PF)",
        16 => "x87 floating-point error (#MF)",
        17 => "alignment check (#AC)",
        18 => "machine check (#MC)",
        19 => "SIMD floating-point error (#XM)",
        20 => "virtualisation exception (#VE)",
        21 => "control protection exception (#CP)",
        28 => "hypervisor injection exception (#HV)",
        29 => "VMM communication exception (#VC)",
        30 => "security exception (#SX)",
        APIC_ERROR => "local APIC error",
        9 | 15 | 22..=27 | 31 => "reserved exception",
        32..APIC_ERROR | SPURIOUS => "unexpected interrupt",
    }
}
