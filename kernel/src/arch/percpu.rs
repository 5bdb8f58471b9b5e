//! Each CPU's own data.
//!
//! # What it is
//! A small block per CPU that the GS register points at, and [`CpuLocal`], an array with one padded element per CPU.
//! CPUs are numbered from 0 without gaps, in the order in which they came up.
//!
//! # How it works
//! Every access to the running CPU's block is a single GS-relative instruction, so an interrupt or a move to another
//! CPU cannot fall inside it.
//! The assembly of the readers is `pure, readonly`: the compiler may merge two reads with nothing between them, but never
//! moves one across something that may write memory, which is how it sees a context switch, `cli`, `sti`, and the
//! preemption count.
//! With interrupts and preemption on, the CPU number may be out of date as soon as it is read; a caller that needs
//! it to stay true turns one of the two off first.
//!
//! # Invariants
//! 1. From [`install`] on, GS base on a CPU is the address of that CPU's block, for good.
//! 2. The fields of a block are written by their own CPU only, through GS; other CPUs may read the constant ones, and
//!    `current` for reports.
//!
//! # Cost
//! One instruction per read or count; 128 bytes per CPU.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;

use x86_64::VirtAddr;
use x86_64::registers::model_specific::GsBase;

/// How many CPUs the kernel has room for.
pub const MAX_CPUS: usize = 64;

/// One CPU's block, found through GS.
#[repr(C, align(128))]
pub struct PerCpu {
    /// This CPU's number (constant).
    cpu: u32,
    /// How many reasons there are not to preempt (own CPU).
    preempt_count: u32,
    /// How many interrupt handlers are running, one inside the other (own CPU).
    irq_depth: u32,
    /// Padding, free for use.
    reserved: u32,
    /// The thread that runs here; the machine layer never looks behind it (own CPU).
    current: *const (),
    /// Added to the raw time-stamp counter to get the common clock's ticks (own CPU; `tsc`).
    clock_offset: u64,
}

/// One CPU's block with interior mutability.
struct Block(UnsafeCell<PerCpu>);

// SAFETY: after `install`, only the owning CPU touches the fields, through GS (invariant 2).
unsafe impl Sync for Block {}

static BLOCKS: [Block; MAX_CPUS] = [const {
    Block(UnsafeCell::new(PerCpu {
        cpu: 0,
        preempt_count: 0,
        irq_depth: 0,
        reserved: 0,
        current: core::ptr::null(),
        clock_offset: 0,
    }))
}; MAX_CPUS];

/// Where the clock's offset lies relative to GS.
pub const CLOCK_OFFSET_AT: usize = offset_of!(PerCpu, clock_offset);

/// Makes the calling CPU number `cpu` and points its GS at its block.
///
/// # Safety
/// - Called once per CPU, with interrupts off, by the CPU that owns the number from now on.
/// - `cpu` is below [`MAX_CPUS`] and no other CPU has it.
/// - Nobody loads the GS selector afterwards (that would clear the base).
pub unsafe fn install(cpu: usize) {
    let block = BLOCKS[cpu].0.get();
    // SAFETY: nobody else uses this block (caller), and the address is a static's, hence canonical.
    unsafe {
        (*block).cpu = cpu as u32;
        GsBase::write(VirtAddr::from_ptr(block));
    }
}

/// The number of the CPU this runs on.
#[inline]
pub fn cpu_index() -> usize {
    let cpu: u64;
    // SAFETY: reads the constant field of this CPU's block (invariant 1); see the module text for `pure, readonly`.
    unsafe {
        asm!("mov {0:e}, gs:[{1}]", out(reg) cpu, const offset_of!(PerCpu, cpu),
            options(pure, readonly, nostack, preserves_flags));
    }
    cpu as usize
}

/// The thread layer's pointer to the thread that runs here; null before the first [`set_current`].
///
/// A thread may call this at any time: wherever it has moved, the answer is itself.
#[inline]
pub fn current() -> *const () {
    let current: *const ();
    // SAFETY: reads a field of this CPU's block (invariant 1).
    unsafe {
        asm!("mov {0}, gs:[{1}]", out(reg) current, const offset_of!(PerCpu, current),
            options(pure, readonly, nostack, preserves_flags));
    }
    current
}

/// The thread layer's pointer to the thread that runs on CPU `cpu`, for reports: it may be out of date at once.
///
/// # Panics
/// If `cpu` is not below [`MAX_CPUS`].
pub fn current_of(cpu: usize) -> *const () {
    // SAFETY: the block is a static; the field is an aligned word that its CPU writes by single instructions, so a
    // volatile read of it sees one value or another, whole.
    unsafe { (&raw const (*BLOCKS[cpu].0.get()).current).read_volatile() }
}

/// Records which thread runs on this CPU; called with interrupts off around the switch.
#[inline]
pub fn set_current(thread: *const ()) {
    // SAFETY: writes a field of this CPU's block (invariants 1 and 2); nothing here dereferences it.
    unsafe {
        asm!("mov gs:[{1}], {0}", in(reg) thread, const offset_of!(PerCpu, current),
            options(nostack, preserves_flags));
    }
}

/// How many reasons there are not to preempt on this CPU; 0 means preemption is allowed.
#[inline]
pub fn preempt_count() -> u32 {
    let count: u32;
    // SAFETY: reads a field of this CPU's block (invariant 1).
    unsafe {
        asm!("mov {0:e}, gs:[{1}]", out(reg) count, const offset_of!(PerCpu, preempt_count),
            options(pure, readonly, nostack, preserves_flags));
    }
    count
}

/// Adds a reason not to preempt; memory accesses do not move up across it.
#[inline]
pub fn preempt_disable() {
    // SAFETY: one instruction on a field of this CPU's block (invariants 1 and 2); all memory counts as clobbered.
    unsafe { asm!("inc dword ptr gs:[{0}]", const offset_of!(PerCpu, preempt_count), options(nostack)) };
}

/// Takes a reason not to preempt away and says whether it was the last one.
///
/// A caller for whom it was must then look whether it should preempt: nothing here does.
#[inline]
#[must_use = "when the last reason goes, a pending preemption must be carried out"]
pub fn preempt_enable() -> bool {
    let last: u8;
    // SAFETY: one instruction on a field of this CPU's block (invariants 1 and 2); all memory counts as clobbered.
    unsafe {
        asm!("dec dword ptr gs:[{1}]", "setz {0}", out(reg_byte) last, const offset_of!(PerCpu, preempt_count),
            options(nostack));
    }
    last != 0
}

/// Says whether this CPU is inside an interrupt handler.
#[inline]
pub fn in_interrupt() -> bool {
    let depth: u32;
    // SAFETY: reads a field of this CPU's block (invariant 1).
    unsafe {
        asm!("mov {0:e}, gs:[{1}]", out(reg) depth, const offset_of!(PerCpu, irq_depth),
            options(pure, readonly, nostack, preserves_flags));
    }
    depth != 0
}

/// Counts the entry into an interrupt handler.
#[inline]
pub(super) fn irq_enter() {
    // SAFETY: one instruction on a field of this CPU's block (invariants 1 and 2).
    unsafe { asm!("inc dword ptr gs:[{0}]", const offset_of!(PerCpu, irq_depth), options(nostack)) };
}

/// Counts the way out of an interrupt handler and says whether it was the outermost.
#[inline]
pub(super) fn irq_leave() -> bool {
    let last: u8;
    // SAFETY: one instruction on a field of this CPU's block (invariants 1 and 2).
    unsafe {
        asm!("dec dword ptr gs:[{1}]", "setz {0}", out(reg_byte) last, const offset_of!(PerCpu, irq_depth),
            options(nostack));
    }
    last != 0
}

/// What is added to this CPU's raw time-stamp counter.
pub(super) fn clock_offset() -> u64 {
    let offset: u64;
    // SAFETY: reads a field of this CPU's block (invariant 1).
    unsafe {
        asm!("mov {0}, gs:[{1}]", out(reg) offset, const CLOCK_OFFSET_AT,
            options(pure, readonly, nostack, preserves_flags));
    }
    offset
}

/// Sets what is added to this CPU's raw time-stamp counter.
pub(super) fn set_clock_offset(offset: u64) {
    // SAFETY: writes a field of this CPU's block (invariants 1 and 2).
    unsafe {
        asm!("mov gs:[{1}], {0}", in(reg) offset, const CLOCK_OFFSET_AT, options(nostack, preserves_flags));
    }
}

/// Keeps a value away from its neighbours' cache lines; two lines, because CPUs fetch them in pairs.
#[repr(align(128))]
pub struct Padded<T>(T);

/// Pads a value; for [`cpu_local!`](crate::cpu_local).
pub const fn padded<T>(value: T) -> Padded<T> {
    Padded(value)
}

/// One `T` per CPU, each on cache lines of its own.
///
/// Shared references only: `T` brings the interior mutability it needs (atomics, cells behind a lock).
pub struct CpuLocal<T> {
    slots: [Padded<T>; MAX_CPUS],
}

impl<T> CpuLocal<T> {
    /// Makes one from padded elements; for [`cpu_local!`](crate::cpu_local).
    pub const fn from_slots(slots: [Padded<T>; MAX_CPUS]) -> Self {
        Self { slots }
    }

    /// The element of CPU `cpu`.
    ///
    /// # Panics
    /// If `cpu` is not below [`MAX_CPUS`].
    #[inline]
    pub fn of(&self, cpu: usize) -> &T {
        &self.slots[cpu].0
    }

    /// The element of the CPU this runs on; the caller has interrupts or preemption off if that matters.
    #[inline]
    pub fn here(&self) -> &T {
        let cpu = cpu_index();
        // SAFETY: `install` indexed an array of MAX_CPUS with this number, so it is below MAX_CPUS.
        unsafe { &self.slots.get_unchecked(cpu).0 }
    }
}

/// Makes a `CpuLocal` in a constant: `cpu_local!(AtomicU64::new(0))`.
#[macro_export]
macro_rules! cpu_local {
    ($value:expr) => {
        $crate::arch::percpu::CpuLocal::from_slots(
            [const { $crate::arch::percpu::padded($value) }; $crate::arch::percpu::MAX_CPUS],
        )
    };
}
