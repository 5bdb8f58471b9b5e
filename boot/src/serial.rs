//! The last words of a boot that fails.
//!
//! # What it is
//! A writer for the first serial port, and the two ways to end the machine: QEMU's exit device and ACPI.
//!
//! # How it works
//! Each byte waits a bounded time for room in the port. Lines end in LF alone.
//!
//! # Invariants
//! 1. Nothing here waits for ever, except the halt that nothing is left to follow.
//! 2. No lock: during boot one CPU runs; a kernel that has more puts its own console in place.
//!
//! # Cost
//! A few port accesses a byte.

use crate::{PowerOff, PowerOffRegister};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};
use x86_64::instructions::port::Port;

/// I/O base of the first serial port.
pub const COM1: u16 = 0x3f8;
/// I/O port of QEMU's exit device (`-device isa-debug-exit,iobase=0xf4,iosize=0x04`).
pub const EXIT_PORT: u16 = 0xf4;
/// Value written there when the run is done and all went well.
pub const EXIT_DONE: u32 = 0x10;
/// Value written there when the kernel or a workload reports failure.
pub const EXIT_FAILED: u32 = 0x11;
/// Value written there after a panic.
pub const EXIT_PANIC: u32 = 0x12;

/// How QEMU's usual machines (`pc`, `q35`) power off, tried when ACPI has not said how, and only in a virtual machine.
pub(crate) const VM_POWER_OFF: PowerOffRegister = PowerOffRegister { port: 0x604, value: 0x2000 };

/// How often the port is asked for room before a byte is sent regardless.
const MAX_POLLS: u32 = 1_000_000;
const LINE_STATUS: u16 = COM1 + 5;
const ROOM: u8 = 0x20;

/// How to power off, once ACPI has been read: PM1a and PM1b port and value, 16 bits each. 0: not known.
static POWER_OFF: AtomicU64 = AtomicU64::new(0);

/// The first serial port.
pub struct Com1;

impl Com1 {
    /// Sets 115200 baud, 8 bits, no parity, FIFOs on, no interrupts.
    pub fn init() {
        for (offset, value) in [(1, 0x00), (3, 0x80), (0, 0x01), (1, 0x00), (3, 0x03), (2, 0xc7), (4, 0x03)] {
            // SAFETY: The first serial port's registers; setting them up has no effect on memory.
            unsafe { Port::<u8>::new(COM1 + offset).write(value) };
        }
    }

    /// Sends one byte.
    pub fn send(byte: u8) {
        for _ in 0..MAX_POLLS {
            // SAFETY: Reading the line status has no effect on memory.
            if unsafe { Port::<u8>::new(LINE_STATUS).read() } & ROOM != 0 {
                break;
            }
            core::hint::spin_loop();
        }
        // SAFETY: Sending a byte has no effect on memory.
        unsafe { Port::<u8>::new(COM1).write(byte) };
    }
}

impl Write for Com1 {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(Self::send);
        Ok(())
    }
}

/// Ends the machine: through QEMU's exit device with `code`, else by `power_off`, else this CPU halts.
pub fn exit(code: u32, power_off: Option<PowerOff>) -> ! {
    x86_64::instructions::interrupts::disable();
    // SAFETY: The port belongs to QEMU's exit device, or to nothing.
    unsafe { Port::<u32>::new(EXIT_PORT).write(code) };
    match power_off {
        Some(power_off) => power_off.power_off(),
        None if is_virtual() => PowerOff { pm1a: VM_POWER_OFF, pm1b: None }.power_off(),
        None => {}
    }
    loop {
        x86_64::instructions::hlt();
    }
}

/// Prints `boot: ` and one line of why, then ends the machine with the failure code.
///
/// For the boot CPU, as long as no other CPU prints.
pub fn fail(why: fmt::Arguments<'_>) -> ! {
    let _ = writeln!(Com1, "boot: {why}; the machine ends");
    exit(EXIT_FAILED, known_power_off())
}

/// Keeps how to power off, for failures after this.
pub(crate) fn remember_power_off(power_off: Option<PowerOff>) {
    let word = power_off.map_or(0, |p| {
        let b = p.pm1b.map_or(0, |b| u64::from(b.port) << 32 | u64::from(b.value) << 48);
        u64::from(p.pm1a.port) | u64::from(p.pm1a.value) << 16 | b
    });
    POWER_OFF.store(word, Ordering::Relaxed);
}

/// Whether a hypervisor says that it is there.
fn is_virtual() -> bool {
    core::arch::x86_64::__cpuid(1).ecx >> 31 != 0
}

fn known_power_off() -> Option<PowerOff> {
    let word = POWER_OFF.load(Ordering::Relaxed);
    let register = |bits: u64| {
        let (port, value) = (bits as u16, (bits >> 16) as u16);
        (port != 0).then_some(PowerOffRegister { port, value })
    };
    Some(PowerOff { pm1a: register(word)?, pm1b: register(word >> 32) })
}
