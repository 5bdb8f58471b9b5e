//! From power-on to Rust on every CPU.
//!
//! # What it is
//! The part of the kernel that runs before there is a kernel.
//! A PVH loader (`qemu-system-x86_64 -kernel`) starts it in 32-bit mode;
//! it ends by calling the function named in [`entry!`] in 64-bit mode, on a guarded stack and on final page tables.
//!
//! # How it works
//! 1. [`pvh`]: 32-bit entry, checks of the CPU and of the memory map, temporary page tables, long mode, jump to the high half.
//! 2. [`start`]: memory map, command line and ACPI tables are read and copied while the temporary tables still map the low 4 GiB.
//! 3. [`paging`]: the final tables are built and loaded; the temporary ones are never used again.
//! 4. `kernel_main(&BootInfo)` runs; it calls [`start_cpu`] for every other CPU it wants.
//!
//! # Invariants
//! 1. No page is both writable and executable, under no alias ([`paging::check`]).
//! 2. Nothing in the lower half of the address space is mapped once `kernel_main` runs.
//! 3. Below every stack lies a page that is never mapped.
//! 4. Memory is handed out once, by [`paging::alloc_frames`]; boot and kernel share that allocator.
//! 5. A CPU that answers too late halts and touches nothing ([`start_cpu`]).
//!
//! # Cost
//! One pass over memory map and ACPI tables; about 12 ms of waiting for each CPU started.

#![cfg_attr(not(test), no_std)]

pub mod aml;
pub mod cmdline;
pub mod frames;
pub mod layout;
pub mod memory;

#[cfg(target_arch = "x86_64")]
mod acpi;
#[cfg(target_arch = "x86_64")]
pub mod apic;
#[cfg(target_arch = "x86_64")]
mod check;
#[cfg(target_arch = "x86_64")]
pub mod cpu;
#[cfg(target_arch = "x86_64")]
mod delay;
#[cfg(target_arch = "x86_64")]
pub mod paging;
#[cfg(target_arch = "x86_64")]
pub mod pvh;
#[cfg(target_arch = "x86_64")]
pub mod serial;
#[cfg(target_arch = "x86_64")]
pub mod start;
#[cfg(target_arch = "x86_64")]
mod traps;

mod info;

#[cfg(target_arch = "x86_64")]
pub use apic::current_apic_id;
#[cfg(target_arch = "x86_64")]
pub use cpu::{StartError, start_cpu};
pub use info::{BootInfo, Cpu, PowerOff, PowerOffRegister};
pub use memory::MemoryRegion;
#[cfg(target_arch = "x86_64")]
pub use serial::fail;

/// The page-table and register types that appear in this crate's interface.
#[cfg(target_arch = "x86_64")]
pub use x86_64;

/// Names the function that the boot CPU runs when boot is done: `fn(&'static BootInfo) -> !`.
///
/// It is called once, on a guarded stack, with the final page tables loaded and interrupts off.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        const _: () = {
            #[unsafe(export_name = "boot_kernel_main")]
            extern "Rust" fn boot_kernel_main(info: &'static $crate::BootInfo) -> ! {
                let main: fn(&'static $crate::BootInfo) -> ! = $main;
                main(info)
            }
        };
    };
}
