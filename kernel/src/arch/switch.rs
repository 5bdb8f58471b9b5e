//! Switching between kernel threads.
//!
//! # What it is
//! A [`Context`], which is where a thread that does not run has left its stack pointer, and [`switch`] between two.
//!
//! # How it works
//! The registers that a function must preserve go onto the old stack, the stack pointers are exchanged, and the same
//! registers come from the new one.
//! A thread that has never run finds a hand-made frame there, which "returns" to a small piece of assembly that calls
//! its start function with its argument.
//!
//! # Invariants
//! 1. A thread's context is valid while the thread does not run; the layer above makes sure that no CPU loads it before
//!    the switch away from it is complete, and orders the two CPUs' accesses.
//! 2. The chain of frame pointers ends with a zero in every thread.
//! 3. Interrupts are off during a switch, so a new thread starts with them off.
//!
//! # Cost
//! 15 instructions. No floating-point state (`arch` invariant 3).

use core::arch::naked_asm;
use core::cell::UnsafeCell;

/// The function a new thread starts in, with interrupts off.
pub type ThreadStart = extern "C" fn(argument: *mut ()) -> !;

/// Where a thread that does not run has left its registers.
#[repr(transparent)]
pub struct Context {
    stack_pointer: UnsafeCell<usize>,
}

// SAFETY: only `switch` touches the field, and the layer above lets one CPU at a time do so (invariant 1).
unsafe impl Sync for Context {}

/// The registers as [`switch`] leaves them, lowest address first.
#[repr(C)]
struct SavedRegisters {
    r15: usize,
    r14: usize,
    r13: usize,
    r12: usize,
    rbx: usize,
    rbp: usize,
    return_address: usize,
}

impl Context {
    /// The context of a thread that is running already, or that has no stack yet.
    pub const fn empty() -> Self {
        Self { stack_pointer: UnsafeCell::new(0) }
    }

    /// The context of a thread that will begin with `start(argument)` on the stack that ends at `top`.
    ///
    /// # Safety
    /// - `top` is the upper end, a multiple of 16, of a mapped stack that nobody else uses while the thread lives.
    pub unsafe fn new(top: *mut u8, start: ThreadStart, argument: *mut ()) -> Self {
        // SAFETY: the stack is ours and has room (caller); the frame is a multiple of 8 bytes below an aligned address.
        let frame = unsafe {
            let frame = top.cast::<SavedRegisters>().sub(1);
            frame.write(SavedRegisters {
                r15: argument as usize,
                r14: start as usize,
                r13: 0,
                r12: 0,
                rbx: 0,
                rbp: 0,
                return_address: thread_entry as *const () as usize,
            });
            frame
        };
        Self { stack_pointer: UnsafeCell::new(frame as usize) }
    }
}

/// Leaves the running thread in `from` and goes on with the one in `to`.
///
/// Returns when somebody switches back to `from`, possibly on another CPU: nothing read from GS before is valid after.
///
/// # Safety
/// - Interrupts are off.
/// - `from` is the running thread's own context; `to` holds a thread that has been left completely, on no other CPU
///   (invariant 1).
#[inline]
pub unsafe fn switch(from: &Context, to: &Context) {
    // SAFETY: the caller's duties are the same; both pointers come from references.
    unsafe { switch_stacks(from.stack_pointer.get(), to.stack_pointer.get()) }
}

/// The switch itself. To the compiler it is a call that may read and write any memory.
#[unsafe(naked)]
unsafe extern "C" fn switch_stacks(from: *mut usize, to: *const usize) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, [rsi]",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Where a new thread's first switch returns to.
#[unsafe(naked)]
unsafe extern "C" fn thread_entry() {
    naked_asm!("xor ebp, ebp", "mov rdi, r15", "call r14", "ud2")
}
