//! Starting the other CPUs.
//!
//! # What it is
//! INIT, SIPI, SIPI to one CPU, and a ticket that tells a CPU which answers too late to stay away.
//!
//! # How it works
//! ```text
//! boot CPU:  Idle -> Waiting ---------------------------------> Void (time is up)
//! other CPU:            \-> Claimed (it is I, ticket good) ----> Void (time is up again)
//!                              \-> Running (in Rust, on its own stack)
//! ```
//! Each CPU has its own words (`Start`). The trampoline, on a page below 1 MiB with page tables that map just
//! that page and the kernel's image, compares the CPU's identifier, claims the ticket, and goes to the high half;
//! there the CPU takes the final tables, its guarded stack and the boot CPU's control registers.
//!
//! # Invariants
//! 1. A ticket goes Waiting -> Claimed -> Running only by its own CPU; whoever finds another state halts for good.
//! 2. A CPU touches nothing but its ticket before it has claimed it.
//! 3. A stack given to a start that failed is never used again.
//! 4. The trampoline's page is not part of the free memory, and stays as it is.
//!
//! # Cost
//! About 12 ms a CPU: 10 ms after INIT, 0.2 ms after each SIPI, and the CPU's own way.

use crate::apic::{self, Apic, SendError};
use crate::delay;
use crate::info::BootInfo;
use crate::layout::{self, PAGE};
use crate::paging::{self, MapError};
use crate::start::{CPU_STACK_PAGES, MAX_CPUS};
use crate::traps;
use core::fmt;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use spin::Once;
use spin::mutex::SpinMutex;
use x86_64::registers::control::{Cr0, Cr3, Cr4, Efer};

/// How long a CPU may take to answer, and then again to get ready, in milliseconds.
pub const START_LIMIT_MS: u64 = 5000;
const INIT_WAIT_US: u32 = 10_000;
const SIPI_WAIT_US: u32 = 200;

const IDLE: u32 = 0;
const WAITING: u32 = 1;
const CLAIMED: u32 = 2;
const RUNNING: u32 = 3;
const VOID: u32 = 4;

/// Why a CPU does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// There is no CPU of that index.
    NotListed,
    /// It runs already (the boot CPU always does), or its start has failed before.
    StartedBefore,
    /// No page below 1 MiB is free for the trampoline.
    NoLowPage,
    /// There is no memory for its stack, or none for page tables.
    Map(MapError),
    /// Its identifier needs x2APIC mode, which the firmware left off.
    IdTooLarge,
    /// The boot CPU's APIC did not take the message.
    ApicBusy,
    /// It did not answer in time, and will halt if it does now.
    Silent,
    /// It answered but did not get ready in time, and will halt if it does now.
    Stuck,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotListed => write!(f, "the firmware lists no such CPU"),
            Self::StartedBefore => write!(f, "it was started before"),
            Self::NoLowPage => write!(f, "no page below 1 MiB is free to start it from"),
            Self::Map(error) => write!(f, "no stack for it: {error}"),
            Self::IdTooLarge => write!(f, "its APIC identifier needs x2APIC mode, which is off"),
            Self::ApicBusy => write!(f, "the local APIC does not send"),
            Self::Silent => write!(f, "no answer within {START_LIMIT_MS} ms"),
            Self::Stuck => write!(f, "it answered but was not ready within {START_LIMIT_MS} ms"),
        }
    }
}

impl From<MapError> for StartError {
    fn from(error: MapError) -> Self {
        Self::Map(error)
    }
}

impl From<SendError> for StartError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::IdTooLarge => Self::IdTooLarge,
            SendError::Busy => Self::ApicBusy,
        }
    }
}

/// What one CPU's start needs; trampoline and [`enter`] read it by offset.
#[repr(C)]
struct Start {
    state: AtomicU32,
    apic_id: AtomicU32,
    tables: AtomicU64,
    stack_top: AtomicU64,
    efer: AtomicU64,
    cr0: AtomicU64,
    cr4: AtomicU64,
    index: AtomicU64,
    x2: AtomicU32,
    entry: Once<fn(usize) -> !>,
}

impl Start {
    const fn idle() -> Self {
        Self {
            state: AtomicU32::new(IDLE),
            apic_id: AtomicU32::new(0),
            tables: AtomicU64::new(0),
            stack_top: AtomicU64::new(0),
            efer: AtomicU64::new(0),
            cr0: AtomicU64::new(0),
            cr4: AtomicU64::new(0),
            index: AtomicU64::new(0),
            x2: AtomicU32::new(0),
            entry: Once::new(),
        }
    }

    /// Moves the ticket, if it is where it should be.
    fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Waits until the ticket is in one of `states`; returns whether it got there in time.
    fn wait_for(&self, states: &[u32]) -> bool {
        let begin = delay::ticks();
        let limit = delay::ticks_in_ms(START_LIMIT_MS);
        while !states.contains(&self.state.load(Ordering::Acquire)) {
            if delay::ticks().wrapping_sub(begin) > limit {
                return false;
            }
            core::hint::spin_loop();
        }
        true
    }
}

static STARTS: [Start; MAX_CPUS] = [const { Start::idle() }; MAX_CPUS];

/// The APIC and the trampoline, once needed; the lock also lets one start happen at a time.
static STARTER: SpinMutex<Option<Starter>> = SpinMutex::new(None);

#[derive(Clone, Copy)]
struct Starter {
    apic: Apic,
    page_phys: u64,
}

/// Starts the CPU at `index` of `info.cpus` and returns when it is in Rust, on a guarded stack of its own,
/// about to call `entry(index)` with interrupts off.
///
/// It has the page tables, EFER, CR0 and CR4 of the CPU that calls this.
pub fn start_cpu(info: &BootInfo, index: usize, entry: fn(usize) -> !) -> Result<(), StartError> {
    let cpu = info.cpus.get(index).ok_or(StartError::NotListed)?;
    let start = STARTS.get(index).ok_or(StartError::NotListed)?;
    let mut guard = STARTER.lock();
    if index == 0 || start.state.load(Ordering::Acquire) != IDLE {
        return Err(StartError::StartedBefore);
    }
    let starter = match *guard {
        Some(starter) => starter,
        None => *guard.insert(Starter::new(info)?),
    };

    let stack = paging::map_stack(CPU_STACK_PAGES)?;
    start.apic_id.store(cpu.apic_id, Ordering::Relaxed);
    let (tables, flags) = Cr3::read_raw();
    start.tables.store(tables.start_address().as_u64() | u64::from(flags), Ordering::Relaxed);
    start.stack_top.store(stack.top, Ordering::Relaxed);
    start.efer.store(Efer::read_raw(), Ordering::Relaxed);
    start.cr0.store(Cr0::read_raw(), Ordering::Relaxed);
    start.cr4.store(Cr4::read_raw(), Ordering::Relaxed);
    start.index.store(index as u64, Ordering::Relaxed);
    start.x2.store(u32::from(matches!(starter.apic, Apic::X2)), Ordering::Relaxed);
    start.entry.call_once(|| entry);
    starter.point_trampoline_at(start);
    start.state.store(WAITING, Ordering::Release);

    let sent = starter.wake(start, cpu.apic_id);
    if sent.is_ok() && start.wait_for(&[CLAIMED, RUNNING]) || !start.change(WAITING, VOID) {
        // Claimed: the CPU is on its way, and gets the same time again to arrive.
        if start.wait_for(&[RUNNING]) || !start.change(CLAIMED, VOID) {
            return Ok(());
        }
        return Err(StartError::Stuck);
    }
    sent?;
    Err(StartError::Silent)
}

impl Starter {
    fn new(info: &BootInfo) -> Result<Self, StartError> {
        let (page_phys, tables) = paging::trampoline_tables()?.ok_or(StartError::NoLowPage)?;
        let starter = Self { apic: Apic::new(info.lapic_phys)?, page_phys };
        // SAFETY: The page is set aside for this, and no CPU runs on it yet.
        unsafe { install(page_phys, tables) };
        Ok(starter)
    }

    fn wake(&self, start: &Start, apic_id: u32) -> Result<(), SendError> {
        self.apic.send_init(apic_id)?;
        delay::wait_us(INIT_WAIT_US);
        for _ in 0..2 {
            self.apic.send_start_up(apic_id, self.page_phys)?;
            delay::wait_us(SIPI_WAIT_US);
            if start.state.load(Ordering::Acquire) != WAITING {
                break;
            }
        }
        Ok(())
    }

    fn point_trampoline_at(&self, start: &'static Start) {
        let word = layout::phys_to_virt(self.page_phys + offset(&raw const boot_trampoline_args));
        // SAFETY: The word is in the trampoline's page, 8-byte aligned. A late CPU may read it at the same time:
        // it finds one start's words or the other's, and those tell whether they are for it (I1).
        unsafe { word.cast::<u64>().write_volatile(&raw const *start as u64) };
    }
}

unsafe extern "C" {
    static boot_trampoline: u8;
    static boot_trampoline_end: u8;
    static boot_trampoline_gdt: u8;
    static boot_trampoline_gdt_base: u8;
    static boot_trampoline_long: u8;
    static boot_trampoline_far: u8;
    static boot_trampoline_tables: u8;
    static boot_trampoline_args: u8;
}

/// Distance of a trampoline's symbol from its beginning.
fn offset(symbol: *const u8) -> u64 {
    symbol as u64 - &raw const boot_trampoline as u64
}

/// Copies the trampoline to its page and fills in what depends on where that is.
///
/// # Safety
/// The page is this trampoline's own, and nobody executes there.
unsafe fn install(page_phys: u64, tables_phys: u64) {
    let page = layout::phys_to_virt(page_phys);
    let bytes = offset(&raw const boot_trampoline_end);
    assert!(bytes <= PAGE, "the trampoline fits a page");
    let patches = [
        (&raw const boot_trampoline_gdt_base, page_phys + offset(&raw const boot_trampoline_gdt)),
        (&raw const boot_trampoline_far, page_phys + offset(&raw const boot_trampoline_long)),
        (&raw const boot_trampoline_tables, tables_phys),
    ];
    // SAFETY: The caller's page; the patched words lie in it and hold values below 4 GiB.
    unsafe {
        page.copy_from_nonoverlapping(&raw const boot_trampoline, bytes as usize);
        for (symbol, value) in patches {
            page.add(offset(symbol) as usize).cast::<u32>().write_unaligned(value as u32);
        }
    }
}

#[cfg(target_os = "none")]
core::arch::global_asm!(
    include_str!("trampoline.s"),
    apic_id = const offset_of!(Start, apic_id),
    state = const offset_of!(Start, state),
    waiting = const WAITING,
    claimed = const CLAIMED,
    enter = sym enter,
    options(att_syntax)
);

/// On a host there is no trampoline; this keeps what it leads to type-checked.
#[cfg(not(target_os = "none"))]
const _: extern "C" fn() -> ! = enter;

/// Where the trampoline ends, `rdi` pointing to this CPU's [`Start`]: final tables, stack, control registers, Rust.
#[unsafe(naked)]
extern "C" fn enter() -> ! {
    core::arch::naked_asm!(
        "mov rax, [rdi + {tables}]",
        "mov cr3, rax",
        "mov rsp, [rdi + {stack_top}]",
        "lgdt [rip + boot_gdt_pointer]",
        "mov eax, 0x10",
        "mov ds, eax",
        "mov es, eax",
        "mov ss, eax",
        "xor eax, eax",
        "mov fs, eax",
        "mov gs, eax",
        "mov ecx, 0xc0000080",
        "mov eax, [rdi + {efer}]",
        "mov edx, [rdi + {efer} + 4]",
        "wrmsr",
        "mov rax, [rdi + {cr4}]",
        "mov cr4, rax",
        "mov rax, [rdi + {cr0}]",
        "mov cr0, rax",
        "xor ebp, ebp",
        "call {arrive}",
        "ud2",
        tables = const offset_of!(Start, tables),
        stack_top = const offset_of!(Start, stack_top),
        efer = const offset_of!(Start, efer),
        cr4 = const offset_of!(Start, cr4),
        cr0 = const offset_of!(Start, cr0),
        arrive = sym arrive,
    )
}

/// The first Rust of a started CPU.
extern "C" fn arrive(start: &'static Start) -> ! {
    traps::load();
    if start.x2.load(Ordering::Relaxed) != 0 && !apic::is_x2() {
        apic::enter_x2();
    }
    let index = start.index.load(Ordering::Relaxed) as usize;
    if let Some(entry) = start.entry.get()
        && start.change(CLAIMED, RUNNING)
    {
        entry(index)
    }
    loop {
        x86_64::instructions::interrupts::disable();
        x86_64::instructions::hlt();
    }
}
