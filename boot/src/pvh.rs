//! The first instructions.
//!
//! # What it is
//! The entry point of the PVH boot protocol, and the path from 32-bit mode to the high half in 64-bit mode.
//!
//! # How it works
//! 1. The ELF note gives the loader the physical address of `boot_pvh_start`;
//!    it is entered in 32-bit mode without paging, `ebx` pointing to `hvm_start_info`.
//! 2. Before any memory is written: is there a memory map, does RAM hold the whole image, can the CPU do
//!    64-bit mode and no-execute? If not, one line on COM1 and the failure code.
//! 3. Temporary tables map the low 4 GiB with 2 MiB pages three times: at 0, at `DIRECT_MAP`,
//!    and its first 2 GiB at `KERNEL_BASE`.
//! 4. 64-bit mode with no-execute and write-protect on, then a jump into the high half and [`crate::start`].
//!
//! # Invariants
//! 1. The temporary tables are loaded only between here and the end of [`crate::start`].
//! 2. The GDT's descriptors are marked as accessed already, so the CPU never writes to it and it can be constant.
//!
//! # Cost
//! A few thousand instructions.

use crate::memory::{Entry, Kind};

/// `hvm_start_info`, as the loader leaves it in memory.
#[repr(C)]
pub struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    modules_phys: u64,
    cmdline_phys: u64,
    rsdp_phys: u64,
    memory_map_phys: u64,
    memory_map_entries: u32,
    reserved: u32,
}

/// One entry of its memory map.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MapEntry {
    start: u64,
    len: u64,
    kind: u32,
    reserved: u32,
}

const KIND_RAM: u32 = 1;
/// More entries than this are not believed.
const MAX_MAP_ENTRIES: u32 = 4096;
/// The low memory that the temporary tables map.
pub const TEMPORARY_BYTES: u64 = 4 << 30;

impl StartInfo {
    /// The physical address of ACPI's root pointer, when the loader knows it.
    pub fn rsdp_phys(&self) -> Option<u64> {
        (self.rsdp_phys != 0).then_some(self.rsdp_phys)
    }

    /// The physical address of the command line, when there is one.
    pub fn cmdline_phys(&self) -> Option<u64> {
        (self.cmdline_phys != 0).then_some(self.cmdline_phys)
    }

    /// The memory map.
    ///
    /// # Safety
    /// The temporary tables are loaded, and `self` is what the loader gave.
    pub unsafe fn memory_map(&self) -> impl Iterator<Item = Entry> + Clone {
        let count = self.memory_map_entries.min(MAX_MAP_ENTRIES) as usize;
        let first = crate::layout::phys_to_virt(self.memory_map_phys).cast::<MapEntry>();
        (0..count).map(move |i| {
            // SAFETY: The caller vouches for the loader's table, which has that many entries.
            let entry = unsafe { first.add(i).read_unaligned() };
            let kind = if entry.kind == KIND_RAM { Kind::Ram } else { Kind::Other };
            Entry { start: entry.start, len: entry.len, kind }
        })
    }
}

#[cfg(target_os = "none")]
core::arch::global_asm!(
    include_str!("entry.s"),
    base = const crate::layout::KERNEL_BASE,
    direct_slot = const (crate::layout::DIRECT_MAP >> 39) & 511,
    stack_bytes = const 64 * 1024,
    fail_port = const crate::serial::EXIT_PORT,
    fail_code = const crate::serial::EXIT_FAILED,
    vm_power_off_port = const crate::serial::VM_POWER_OFF.port,
    vm_power_off_value = const crate::serial::VM_POWER_OFF.value,
    start = sym crate::start::start,
    options(att_syntax)
);
