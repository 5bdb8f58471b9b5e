//! Exceptions before the kernel has its own table.
//!
//! # What it is
//! An interrupt table that turns every exception into one line and the end of the machine, instead of a silent reset.
//!
//! # How it works
//! 32 small stubs push their number (and a zero where the CPU pushes no error code) and meet in [`report`].
//! The kernel loads a table of its own as soon as it can.
//!
//! # Invariants
//! 1. Nothing returns from here.
//!
//! # Cost
//! Half a kilobyte.

use crate::serial::fail;
use spin::Once;
use x86_64::VirtAddr;
use x86_64::instructions::tables::lidt;
use x86_64::structures::DescriptorTablePointer;

const EXCEPTIONS: usize = 32;
const STUB_BYTES: u64 = 16;
/// The 64-bit code segment of the table in `entry.s`.
const CODE_SELECTOR: u128 = 0x08;
/// Present, interrupt gate.
const GATE: u128 = 0x8e;

static TABLE: Once<[u128; EXCEPTIONS]> = Once::new();

/// What lies on the stack when the stubs meet.
#[repr(C)]
struct Frame {
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
}

unsafe extern "C" {
    static boot_trap_stubs: u8;
}

/// Loads the table on this CPU.
pub(crate) fn load() {
    let table = TABLE.call_once(|| {
        core::array::from_fn(|vector| {
            let stub = &raw const boot_trap_stubs as u64 + vector as u64 * STUB_BYTES;
            let stub = u128::from(stub);
            stub & 0xffff | CODE_SELECTOR << 16 | GATE << 40 | (stub >> 16) << 48
        })
    });
    let pointer = DescriptorTablePointer { limit: (size_of_val(table) - 1) as u16, base: VirtAddr::from_ptr(table) };
    // SAFETY: The table is never changed again, and each of its gates leads to a stub.
    unsafe { lidt(&pointer) };
}

/// Says what happened.
extern "C" fn report(frame: &Frame) -> ! {
    let cr2 = x86_64::registers::control::Cr2::read_raw();
    fail(format_args!(
        "exception {} (error {:#x}) at {:#x}, stack {:#x}, address {cr2:#x}",
        frame.vector, frame.error, frame.rip, frame.rsp
    ))
}

#[cfg(not(target_os = "none"))]
const _: extern "C" fn(&Frame) -> ! = report;

#[cfg(target_os = "none")]
core::arch::global_asm!(
    // The bit of each exception for which the CPU pushes an error code.
    ".set boot_trap_has_error, 0x60227d00",
    ".balign 16",
    "boot_trap_stubs:",
    ".set boot_trap_vector, 0",
    ".rept 32",
    ".balign 16",
    ".if ((boot_trap_has_error >> boot_trap_vector) & 1) == 0",
    "push 0",
    ".endif",
    "push boot_trap_vector",
    "jmp boot_trap_common",
    ".set boot_trap_vector, boot_trap_vector + 1",
    ".endr",
    "boot_trap_common:",
    "mov rdi, rsp",
    "and rsp, -16",
    "cld",
    "call {report}",
    "ud2",
    report = sym report,
);
