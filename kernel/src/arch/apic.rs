//! The local interrupt controller.
//!
//! # What it is
//! Each CPU's local APIC: acknowledging interrupts, sending them to other CPUs, and the registers of its timer.
//!
//! # How it works
//! The firmware leaves it in one of two modes, and the kernel keeps that one:
//! *xAPIC*, registers in memory at the same physical address on every CPU, or *x2APIC*, the same registers as MSRs.
//! The old interrupt controllers are moved out of the exceptions' way and masked.
//!
//! # Invariants
//! 1. A register access goes to the APIC of the CPU that runs it, so multi-step operations have interrupts off.
//! 2. `BASE` and `IDS` are written before another CPU or an interrupt can read them.
//!
//! # Cost
//! EOI: a load, a branch, a register write. An IPI: in xAPIC mode three register accesses.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use boot::paging::{MapError, map_device};
use x86_64::instructions::port::Port;
use x86_64::registers::model_specific::{ApicBase, ApicBaseFlags, Msr};

use super::percpu::MAX_CPUS;
use super::{irq, vectors};

/// Bytes of registers.
const REGISTER_BYTES: usize = 4096;
/// Where the x2APIC's registers begin among the MSRs.
const X2APIC_BASE: u32 = 0x800;

/// A register's offset in xAPIC mode.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(super) enum Register {
    Id = 0x020,
    TaskPriority = 0x080,
    EndOfInterrupt = 0x0b0,
    Spurious = 0x0f0,
    ErrorStatus = 0x280,
    CommandLow = 0x300,
    CommandHigh = 0x310,
    TimerEntry = 0x320,
    ThermalEntry = 0x330,
    PerformanceEntry = 0x340,
    Lint0Entry = 0x350,
    Lint1Entry = 0x360,
    ErrorEntry = 0x370,
    TimerInitial = 0x380,
    TimerCurrent = 0x390,
    TimerDivide = 0x3e0,
}

/// In an entry of the local vector table: deliver nothing.
pub(super) const MASKED: u32 = 1 << 16;
/// In the spurious register: the APIC is on.
const SOFTWARE_ENABLE: u32 = 1 << 8;
/// In the command register: the last command is still on its way.
const DELIVERY_PENDING: u32 = 1 << 12;
/// In the command register: level "assert", as all commands but one have it.
const ASSERT: u32 = 1 << 14;
/// In the command register: deliver as an NMI.
const DELIVER_NMI: u32 = 0b100 << 8;

/// The registers' address in xAPIC mode; null in x2APIC mode.
static BASE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Each CPU's APIC identifier.
static IDS: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];

/// Finds the registers and silences the old controllers; on the boot CPU, before [`install`].
///
/// # Errors
/// When the registers cannot be mapped.
///
/// # Safety
/// - Called once, by the boot CPU, while no other CPU runs and interrupts are off.
/// - `phys` is the physical address of the local APIC's registers.
pub unsafe fn init(phys: u64) -> Result<(), MapError> {
    silence_old_controllers();
    if !ApicBase::read().1.contains(ApicBaseFlags::X2APIC_ENABLE) {
        BASE.store(map_device(phys, REGISTER_BYTES)?, Ordering::Release);
    }
    Ok(())
}

/// Turns the calling CPU's APIC on, with every local source masked.
///
/// # Safety
/// - [`init`] has returned, interrupts are off, and `cpu` is the calling CPU's number.
pub unsafe fn install(cpu: usize) {
    let id = read(Register::Id);
    let id = if is_x2apic() { id } else { id >> 24 };
    IDS[cpu].store(id, Ordering::Release);
    for entry in [
        Register::TimerEntry,
        Register::ThermalEntry,
        Register::PerformanceEntry,
        Register::Lint0Entry,
        Register::Lint1Entry,
    ] {
        write(entry, MASKED);
    }
    write(Register::ErrorEntry, u32::from(vectors::APIC_ERROR));
    write(Register::ErrorStatus, 0);
    write(Register::TaskPriority, 0);
    write(Register::Spurious, SOFTWARE_ENABLE | u32::from(vectors::SPURIOUS));
}

/// The APIC identifier of CPU `cpu`.
pub fn id_of(cpu: usize) -> u32 {
    IDS[cpu].load(Ordering::Acquire)
}

/// Acknowledges the interrupt being served.
#[inline]
pub fn end_of_interrupt() {
    write(Register::EndOfInterrupt, 0);
}

/// Interrupts CPU `cpu` so that it looks at its run queue; usable in any context.
#[inline]
pub fn send_reschedule(cpu: usize) {
    send(id_of(cpu), ASSERT | u32::from(vectors::RESCHEDULE));
}

/// Interrupts CPU `cpu` so that it runs the `call` hook; usable in any context.
#[inline]
pub fn send_call(cpu: usize) {
    send(id_of(cpu), ASSERT | u32::from(vectors::CALL));
}

/// Tells CPU `cpu` to stop, by an interrupt it may have turned off.
pub(crate) fn send_stop(cpu: usize) {
    send(id_of(cpu), ASSERT | u32::from(vectors::STOP));
}

/// Tells CPU `cpu` to stop, by an interrupt it cannot turn off.
pub(crate) fn send_stop_nmi(cpu: usize) {
    send(id_of(cpu), ASSERT | DELIVER_NMI);
}

/// Reads a register of this CPU's APIC.
#[inline]
pub(super) fn read(register: Register) -> u32 {
    let base = BASE.load(Ordering::Relaxed);
    if base.is_null() {
        // SAFETY: the CPU is in x2APIC mode, in which every register we name (but `CommandHigh`) is an MSR.
        return unsafe { Msr::new(x2apic_msr(register)).read() as u32 };
    }
    // SAFETY: `init` mapped a page of registers there, and all offsets are aligned and inside.
    unsafe { base.add(register as usize).cast::<u32>().read_volatile() }
}

/// Writes a register of this CPU's APIC.
#[inline]
pub(super) fn write(register: Register, value: u32) {
    let base = BASE.load(Ordering::Relaxed);
    if base.is_null() {
        // SAFETY: as in `read`; the values written are ones the register defines.
        unsafe { Msr::new(x2apic_msr(register)).write(u64::from(value)) };
        return;
    }
    // SAFETY: as in `read`.
    unsafe { base.add(register as usize).cast::<u32>().write_volatile(value) };
}

fn send(id: u32, command: u32) {
    if is_x2apic() {
        // Unlike the write to memory this one is not ordered after earlier stores; the receiver must see those.
        core::sync::atomic::fence(Ordering::SeqCst);
        // SAFETY: one write sends the command; the fence above and `lfence` order it, as the mode demands.
        unsafe {
            core::arch::x86_64::_mm_lfence();
            Msr::new(x2apic_msr(Register::CommandLow)).write(u64::from(id) << 32 | u64::from(command));
        }
        return;
    }
    // An interrupt between the two halves could send a command of its own to our destination.
    irq::without(|| {
        while read(Register::CommandLow) & DELIVERY_PENDING != 0 {
            core::hint::spin_loop();
        }
        write(Register::CommandHigh, id << 24);
        write(Register::CommandLow, command);
    });
}

#[inline]
fn is_x2apic() -> bool {
    BASE.load(Ordering::Relaxed).is_null()
}

const fn x2apic_msr(register: Register) -> u32 {
    X2APIC_BASE + (register as u32 >> 4)
}

/// Moves the old interrupt controllers' vectors away from the exceptions and masks all their lines.
fn silence_old_controllers() {
    const COMMAND: [u16; 2] = [0x20, 0xa0];
    const DATA: [u16; 2] = [0x21, 0xa1];
    /// How the two are wired: the second sits on line 2 of the first.
    const WIRING: [u8; 2] = [1 << 2, 2];
    for chip in 0..2 {
        let mut command = Port::<u8>::new(COMMAND[chip]);
        let mut data = Port::<u8>::new(DATA[chip]);
        // SAFETY: the documented start sequence of the controller; with all lines masked it interrupts nobody.
        unsafe {
            command.write(0x11);
            data.write(vectors::PIC_BASE + 8 * chip as u8);
            data.write(WIRING[chip]);
            data.write(0x01);
            data.write(0xff);
        }
    }
}
