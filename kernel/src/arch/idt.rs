//! Where interrupts and exceptions enter.
//!
//! # What it is
//! The IDT, one for all CPUs, and the assembly between the CPU and the handlers.
//!
//! # How it works
//! A device interrupt ([`device_entry!`]) saves the registers a function may change, calls its handler on the
//! interrupted stack, and returns; `rbp` is pushed first, so a backtrace walks through it like through a call.
//! Every other vector goes through one of 256 small stubs to `exception_common`, which saves all registers as an
//! [`ExceptionFrame`] and never returns: exceptions are fatal in this kernel, and a CPU told to stop stays stopped.
//!
//! # Invariants
//! 1. All gates are interrupt gates: handlers start with interrupts off.
//! 2. The direction flag is cleared on entry, because the interrupted code may be in the middle of a backward copy.
//! 3. The stack pointer is a multiple of 16 at each call: the CPU aligns it before it pushes its five words.
//!
//! # Cost
//! A device interrupt: 10 pushes and pops, two counts, the acknowledgement, the hooks.

use core::arch::{global_asm, naked_asm};
use core::cell::UnsafeCell;
use core::mem::{MaybeUninit, offset_of};

use x86_64::VirtAddr;
use x86_64::structures::idt::InterruptDescriptorTable;

use super::vectors::{self, exception};
use super::{apic, gdt, hooks, percpu};
use crate::panic;

/// Distance between two stubs.
const STUB_BYTES: u64 = 16;

/// All registers of the interrupted code, as `exception_common` pushes them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExceptionFrame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rbp: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rbx: u64,
    pub rax: u64,
    /// Which vector it was.
    pub vector: u64,
    /// The CPU's error code; 0 for vectors that have none.
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

const _: () = assert!(offset_of!(ExceptionFrame, ss) == 21 * 8);

/// The table, filled once by the boot CPU.
struct Table(UnsafeCell<MaybeUninit<InterruptDescriptorTable>>);

// SAFETY: written once by the boot CPU before another CPU runs, then only read, by the CPUs themselves.
unsafe impl Sync for Table {}

static IDT: Table = Table(UnsafeCell::new(MaybeUninit::uninit()));

unsafe extern "C" {
    /// The first of the 256 stubs.
    static exception_stubs: u8;
}

/// Fills the table.
///
/// # Safety
/// - Called once, by the boot CPU, after `gdt::install` and before any other CPU runs.
pub unsafe fn init() {
    let stubs = VirtAddr::from_ptr(&raw const exception_stubs);
    let stub = |vector: u8| stubs + u64::from(vector) * STUB_BYTES;
    // SAFETY: nobody else sees the table yet (caller). Each address is an entry point of ours with the layout its
    // vector needs, and the stack indices are the ones `gdt` fills.
    unsafe {
        let idt = (*IDT.0.get()).write(InterruptDescriptorTable::new());
        idt.divide_error.set_handler_addr(stub(0));
        idt.debug.set_handler_addr(stub(1));
        idt.non_maskable_interrupt.set_handler_addr(stub(exception::NMI)).set_stack_index(gdt::NMI_STACK);
        idt.breakpoint.set_handler_addr(stub(3));
        idt.overflow.set_handler_addr(stub(4));
        idt.bound_range_exceeded.set_handler_addr(stub(5));
        idt.invalid_opcode.set_handler_addr(stub(6));
        idt.device_not_available.set_handler_addr(stub(7));
        idt.double_fault.set_handler_addr(stub(exception::DOUBLE_FAULT)).set_stack_index(gdt::DOUBLE_FAULT_STACK);
        idt.invalid_tss.set_handler_addr(stub(10));
        idt.segment_not_present.set_handler_addr(stub(11));
        idt.stack_segment_fault.set_handler_addr(stub(12));
        idt.general_protection_fault.set_handler_addr(stub(13));
        idt.page_fault.set_handler_addr(stub(exception::PAGE_FAULT));
        idt.x87_floating_point.set_handler_addr(stub(16));
        idt.alignment_check.set_handler_addr(stub(17));
        idt.machine_check.set_handler_addr(stub(exception::MACHINE_CHECK)).set_stack_index(gdt::MACHINE_CHECK_STACK);
        idt.simd_floating_point.set_handler_addr(stub(19));
        idt.virtualization.set_handler_addr(stub(20));
        idt.cp_protection_exception.set_handler_addr(stub(21));
        idt.hv_injection_exception.set_handler_addr(stub(28));
        idt.vmm_communication_exception.set_handler_addr(stub(29));
        idt.security_exception.set_handler_addr(stub(30));
        for vector in 32..=255 {
            idt[vector].set_handler_addr(stub(vector));
        }
        let mut set = |vector: u8, entry: unsafe extern "C" fn()| {
            idt[vector].set_handler_addr(VirtAddr::from_ptr(entry as *const ()));
        };
        set(vectors::TIMER, timer_entry);
        set(vectors::RESCHEDULE, reschedule_entry);
        set(vectors::CALL, call_entry);
        set(vectors::SPURIOUS, ignored_entry);
        set(vectors::PIC_SPURIOUS_LOW, ignored_entry);
        set(vectors::PIC_SPURIOUS_HIGH, ignored_entry);
    }
}

/// Makes the calling CPU use the table.
///
/// # Safety
/// - [`init`] has returned, and this CPU has its GDT and its block (`gdt::install`, `percpu::install`).
pub unsafe fn load() {
    // SAFETY: the table is filled (caller), static, and not written again.
    unsafe { (*IDT.0.get()).assume_init_ref().load_unsafe() };
}

/// Defines the entry of a device interrupt: saves what a function may change, calls `$handler`, returns.
macro_rules! device_entry {
    ($entry:ident, $handler:path) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $entry() {
            naked_asm!(
                "cld",
                "push rbp",
                "mov rbp, rsp",
                "push rax",
                "push rcx",
                "push rdx",
                "push rsi",
                "push rdi",
                "push r8",
                "push r9",
                "push r10",
                "push r11",
                "sub rsp, 8",
                "call {handler}",
                "add rsp, 8",
                "pop r11",
                "pop r10",
                "pop r9",
                "pop r8",
                "pop rdi",
                "pop rsi",
                "pop rdx",
                "pop rcx",
                "pop rax",
                "pop rbp",
                "iretq",
                handler = sym $handler,
            )
        }
    };
}

device_entry!(timer_entry, timer_interrupt);
device_entry!(reschedule_entry, reschedule_interrupt);
device_entry!(call_entry, call_interrupt);

/// Entry of an interrupt that means nothing and must not be acknowledged.
#[unsafe(naked)]
unsafe extern "C" fn ignored_entry() {
    naked_asm!("iretq")
}

extern "C" fn timer_interrupt() {
    device_interrupt(hooks::get().timer);
}

extern "C" fn reschedule_interrupt() {
    device_interrupt(hooks::get().reschedule);
}

extern "C" fn call_interrupt() {
    device_interrupt(hooks::get().call);
}

/// What all device interrupts have in common.
#[inline(always)]
fn device_interrupt(handler: fn()) {
    percpu::irq_enter();
    apic::end_of_interrupt();
    handler();
    if percpu::irq_leave() {
        (hooks::get().irq_exit)();
    }
}

/// Where every exception and every unexpected vector ends up.
extern "C" fn exception_handler(frame: &ExceptionFrame) -> ! {
    let vector = frame.vector as u8;
    let told_to_stop = vector == vectors::STOP || (vector == exception::NMI && panic::in_progress());
    if told_to_stop {
        panic::stop_this_cpu(frame.rip)
    }
    panic::exception(frame)
}

// The stubs: an error code where the CPU gives none, the vector, and on to the common part.
global_asm!(
    ".section .text.exception_stubs, \"ax\", @progbits",
    ".balign 16",
    ".global exception_stubs",
    "exception_stubs:",
    ".irp high, 0,1,2,3,4,5,6,7,8,9,a,b,c,d,e,f",
    ".irp low, 0,1,2,3,4,5,6,7,8,9,a,b,c,d,e,f",
    ".balign 16",
    ".if !(0x\\high\\low == 8 || (0x\\high\\low >= 10 && 0x\\high\\low <= 14) || 0x\\high\\low == 17 || 0x\\high\\low == 21 || 0x\\high\\low == 29 || 0x\\high\\low == 30)",
    "push 0",
    ".endif",
    "push 0x\\high\\low",
    "jmp {common}",
    ".endr",
    ".endr",
    ".balign 16",
    ".text",
    common = sym exception_common,
);

/// Saves all registers and goes to [`exception_handler`], which does not return.
#[unsafe(naked)]
unsafe extern "C" fn exception_common() {
    naked_asm!(
        "cld",
        "push rax",
        "push rbx",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "push rbp",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov rdi, rsp",
        // The backtrace of the handler itself ends here; the interrupted code's starts from the frame.
        "xor ebp, ebp",
        "and rsp, -16",
        "call {handler}",
        "ud2",
        handler = sym exception_handler,
    )
}
