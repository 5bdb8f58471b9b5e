//! Segments and the stacks for faults.
//!
//! # What it is
//! Each CPU's GDT and TSS.
//! 64-bit code hardly uses segments; what counts is the TSS, which gives three exceptions a stack that is always good.
//!
//! # How it works
//! A double fault needs a stack of its own because the commonest cause is an overflow of the current one: the access
//! to the guard page faults, the frame of that page fault does not fit either, and the CPU raises a double fault.
//! NMI and machine check can come at any instruction, so they get one each too.
//! Device interrupts use none of these: their handlers may switch threads (`arch` invariant 2).
//!
//! # Invariants
//! 1. The selectors are the same on all CPUs, as the shared IDT needs.
//! 2. A CPU's tables are written once, by that CPU, before it loads them.
//!
//! # Cost
//! Three stacks of [`FAULT_STACK_PAGES`] pages per CPU.

use core::cell::UnsafeCell;

use boot::paging::{MapError, map_stack};
use x86_64::VirtAddr;
use x86_64::instructions::tables::load_tss;
use x86_64::registers::segmentation::{CS, DS, ES, SS, Segment};
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable};
use x86_64::structures::tss::TaskStateSegment;

use super::percpu::MAX_CPUS;

/// Pages in each fault stack.
pub const FAULT_STACK_PAGES: u64 = 4;
/// Which TSS stack a double fault runs on.
pub const DOUBLE_FAULT_STACK: u16 = 0;
/// Which TSS stack an NMI runs on.
pub const NMI_STACK: u16 = 1;
/// Which TSS stack a machine check runs on.
pub const MACHINE_CHECK_STACK: u16 = 2;
/// How many TSS stacks there are.
const FAULT_STACKS: usize = 3;

/// One CPU's tables.
#[repr(align(128))]
struct Tables {
    gdt: UnsafeCell<GlobalDescriptorTable>,
    tss: UnsafeCell<TaskStateSegment>,
}

// SAFETY: written by the owning CPU only, before it loads them (invariant 2).
unsafe impl Sync for Tables {}

static TABLES: [Tables; MAX_CPUS] = [const {
    Tables { gdt: UnsafeCell::new(GlobalDescriptorTable::new()), tss: UnsafeCell::new(TaskStateSegment::new()) }
}; MAX_CPUS];

/// Gives the calling CPU its GDT, TSS and fault stacks.
///
/// # Errors
/// When there is no memory for the stacks; nothing has been loaded then.
///
/// # Safety
/// - Called once per CPU, by CPU `cpu`, with interrupts off and before `percpu::install`.
pub unsafe fn install(cpu: usize) -> Result<(), MapError> {
    let tables = &TABLES[cpu];
    let mut stacks = [VirtAddr::zero(); 7];
    for stack in &mut stacks[..FAULT_STACKS] {
        *stack = VirtAddr::new(map_stack(FAULT_STACK_PAGES)?.top);
    }
    // SAFETY: only this CPU touches its tables, once, and has not loaded them yet (invariant 2); afterwards they are
    // read by the CPU alone, and being static they outlive every use.
    unsafe {
        (*tables.tss.get()).interrupt_stack_table = stacks;
        let gdt = &mut *tables.gdt.get();
        let code = gdt.append(Descriptor::kernel_code_segment());
        let data = gdt.append(Descriptor::kernel_data_segment());
        let tss = gdt.append(Descriptor::tss_segment(&*tables.tss.get()));
        (*tables.gdt.get()).load_unsafe();
        CS::set_reg(code);
        SS::set_reg(data);
        DS::set_reg(data);
        ES::set_reg(data);
        load_tss(tss);
    }
    Ok(())
}
