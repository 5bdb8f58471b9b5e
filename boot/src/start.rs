//! The boot CPU's way from the temporary page tables to the kernel.
//!
//! # What it is
//! The first Rust that runs: it gathers the facts and builds the address space.
//!
//! # How it works
//! 1. Memory map, command line and ACPI tables are read through the temporary tables and copied.
//! 2. Free memory is RAM less the low 1 MiB and the image.
//! 3. The final tables are built; the CPU moves to them and to a guarded stack and calls `kernel_main`.
//!
//! # Invariants
//! 1. Nothing of the loader's or the firmware's is read after the final tables are loaded.
//! 2. What goes wrong is said in one line, and the machine ends with the failure code.
//!
//! # Cost
//! A few milliseconds, most of it in ACPI checksums.

use crate::info::{BootInfo, Cpu};
use crate::layout::{self, PAGE};
use crate::memory::{self, MemoryRegion, Regions};
use crate::paging;
use crate::pvh::StartInfo;
use crate::serial::{self, Com1, fail};
use crate::{acpi, apic, traps};
use arrayvec::ArrayVec;
use spin::Once;

/// Command lines are cut to this length in bytes.
pub const MAX_CMDLINE: usize = 2047;
/// CPUs beyond this number are left out.
pub const MAX_CPUS: usize = 256;
/// Free memory that boot wants to find beside the image, in bytes: tables and stacks, and something to begin with.
pub const MIN_FREE_BYTES: u64 = 4 << 20;
/// Pages of the stack that a CPU starts on.
pub const CPU_STACK_PAGES: u64 = 16;
/// End of the memory that belongs to the firmware and to the CPU start.
pub const LOW_MEMORY_END: u64 = 1 << 20;
/// The trampoline's page is not below this address.
const LOWEST_TRAMPOLINE: u64 = 0x8000;

/// The copies that [`BootInfo`] points to.
struct Store {
    cmdline: ArrayVec<u8, MAX_CMDLINE>,
    memory: Regions,
    cpus: ArrayVec<Cpu, MAX_CPUS>,
}

static STORE: Once<Store> = Once::new();
static INFO: Once<BootInfo> = Once::new();

/// The first Rust function.
///
/// # Safety
/// Called once, by `entry.s`, with the temporary tables loaded and the physical address of the loader's structure.
pub unsafe extern "C" fn start(start_info_phys: u64) -> ! {
    Com1::init();
    traps::load();
    // SAFETY: entry.s has checked the magic number; the temporary tables map it.
    let start_info = unsafe { &*layout::phys_to_virt(start_info_phys).cast::<StartInfo>() };

    // First, so that every failure after it can power the machine off.
    // SAFETY: Temporary tables.
    let facts = unsafe { acpi::read(start_info.rsdp_phys(), apic::current_apic_id()) }
        .unwrap_or_else(|error| fail(format_args!("no CPUs found, ACPI's tables are needed: {error:?}")));
    serial::remember_power_off(facts.power_off);

    // SAFETY: Temporary tables, loader's structure.
    let ram = memory::ram(unsafe { start_info.memory_map() });
    let image = layout::image();
    let mut free = ram.clone();
    memory::cut(&mut free, MemoryRegion { start: 0, end: LOW_MEMORY_END });
    memory::cut(&mut free, MemoryRegion { start: image.text_start, end: image.end });
    let free_bytes = memory::total_bytes(&free);
    if free_bytes < MIN_FREE_BYTES {
        fail(format_args!(
            "too little memory: {} KiB are left beside the kernel's image, {} KiB are needed; give the machine more (--mem, -m)",
            free_bytes / 1024,
            MIN_FREE_BYTES / 1024,
        ));
    }

    // SAFETY: Temporary tables, loader's structure.
    let (cmdline, cmdline_cut) = unsafe { copy_cmdline(start_info.cmdline_phys()) };
    // The firmware keeps its own data in page 0 and near it, and the loader's are copied: the rest of the low memory is ours.
    let trampoline_phys = ram
        .iter()
        .map(|region| (region.start.max(LOWEST_TRAMPOLINE), region.end.min(LOW_MEMORY_END)))
        .find_map(|(start, end)| (start + PAGE <= end).then_some(start));

    // SAFETY: The temporary tables are loaded; the regions come from the memory map.
    let pml4_phys = unsafe { paging::build(&ram, free, image, trampoline_phys) }
        .unwrap_or_else(|error| fail(format_args!("no page tables: {error}")));
    let stack = paging::map_stack(CPU_STACK_PAGES).unwrap_or_else(|error| fail(format_args!("no stack: {error}")));

    let memory = paging::with(|space| space.free_regions());
    let store = STORE.call_once(|| Store { cmdline, memory, cpus: facts.cpus });
    INFO.call_once(|| BootInfo {
        cmdline: &store.cmdline,
        cmdline_cut,
        memory: &store.memory,
        ram_bytes: memory::total_bytes(&ram),
        cpus: &store.cpus,
        cpus_left_out: facts.cpus_left_out,
        lapic_phys: facts.lapic_phys,
        power_off: facts.power_off,
    });

    // SAFETY: The final tables map this code, its data and the new stack; nothing on the old stack is needed again.
    unsafe {
        core::arch::asm!(
            "mov cr3, {tables}",
            "mov rsp, {stack}",
            "xor ebp, ebp",
            "call {run}",
            "ud2",
            tables = in(reg) pml4_phys,
            stack = in(reg) stack.top,
            run = sym run,
            options(noreturn)
        )
    }
}

/// Runs the kernel on the final tables and stack.
extern "C" fn run() -> ! {
    unsafe extern "Rust" {
        safe fn boot_kernel_main(info: &'static BootInfo) -> !;
    }
    boot_kernel_main(INFO.get().expect("the facts are complete before the kernel runs"))
}

/// Copies the command line out of the loader's memory; the flag says that it was longer.
///
/// # Safety
/// The temporary tables are loaded, and the address is what the loader gave.
unsafe fn copy_cmdline(phys: Option<u64>) -> (ArrayVec<u8, MAX_CMDLINE>, bool) {
    let mut copy = ArrayVec::new();
    for at in phys.into_iter().flat_map(|phys| phys..) {
        // SAFETY: The text ends with a zero byte, which is the last one read.
        match unsafe { layout::phys_to_virt(at).read_volatile() } {
            0 => break,
            byte => {
                if copy.try_push(byte).is_err() {
                    return (copy, true);
                }
            }
        }
    }
    (copy, false)
}
