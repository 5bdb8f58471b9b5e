//! What the kernel is told.
//!
//! # What it is
//! Plain facts about the machine, gathered once by the boot CPU and never changed.
//!
//! # How it works
//! Everything is copied out of the loader's and the firmware's memory, so nothing here points there.
//!
//! # Invariants
//! 1. `cpus[0]` is the boot CPU.
//! 2. `memory` is sorted, page aligned and without overlaps.
//!
//! # Cost
//! None after boot.

use crate::memory::MemoryRegion;

/// What the kernel is told about the machine.
#[derive(Debug)]
pub struct BootInfo {
    /// The command line, bytes as given, at most 2047 of them.
    pub cmdline: &'static [u8],
    /// Whether the loader gave a longer command line, of which `cmdline` is the beginning.
    pub cmdline_cut: bool,
    /// RAM that boot left unused, for information: it is handed out by `paging::alloc_frames`, never taken directly.
    pub memory: &'static [MemoryRegion],
    /// All RAM the memory map lists, in bytes, used or not.
    pub ram_bytes: u64,
    /// The CPUs that the firmware lists as usable, the boot CPU first.
    pub cpus: &'static [Cpu],
    /// How many usable CPUs the firmware lists beyond those that `cpus` can hold.
    pub cpus_left_out: usize,
    /// Physical address of the local APIC's registers.
    pub lapic_phys: u64,
    /// How to power the machine off, when ACPI says so.
    pub power_off: Option<PowerOff>,
}

/// One usable CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its local APIC's identifier; identifiers may have gaps.
    pub apic_id: u32,
}

/// How ACPI powers the machine off: values to write to ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerOff {
    /// The first control register.
    pub pm1a: PowerOffRegister,
    /// The second one, where the machine has it.
    pub pm1b: Option<PowerOffRegister>,
}

/// One control register and the value that powers off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerOffRegister {
    /// I/O port.
    pub port: u16,
    /// Sleep type of state S5 and the sleep-enable bit.
    pub value: u16,
}

impl PowerOff {
    /// Powers the machine off. Returns only if the machine ignores it.
    #[cfg(target_arch = "x86_64")]
    pub fn power_off(&self) {
        use x86_64::instructions::port::PortWriteOnly;
        for register in [Some(self.pm1a), self.pm1b].into_iter().flatten() {
            // SAFETY: The port is the one that ACPI's FADT names for this; writing it ends the machine.
            unsafe { PortWriteOnly::<u16>::new(register.port).write(register.value) };
        }
    }
}
