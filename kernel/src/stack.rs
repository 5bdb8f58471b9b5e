//! Stacks of threads.
//!
//! # What it is
//! A pool: a stack is mapped once, with a guard page below it, and used by one thread after another.
//!
//! # How it works
//! A free stack holds the address of the next free one in its topmost word, so the pool needs no memory of its own and
//! giving a stack back cannot fail.
//! The last one given back is the first one used again.
//!
//! # Invariants
//! 1. A stack in the pool is used by nobody: it comes back after its CPU has switched away from it.
//! 2. Stacks and their guard pages stay mapped as they are for good.
//!
//! # Cost
//! One lock and one word each way; a new stack is [`STACK_PAGES`] page mappings.

use core::ptr::NonNull;

use boot::paging::{self, MapError};
use sched_core::IrqOff;

use crate::lock::IrqLock;

/// Pages of a thread's stack; the guard page comes on top of that, or rather below.
pub const STACK_PAGES: u64 = 4;

/// A thread's stack, owned.
#[derive(Debug)]
pub struct Stack {
    top: NonNull<u8>,
}

// SAFETY: the memory is mapped on every CPU, and one owner has it at a time (I1).
unsafe impl Send for Stack {}

/// The topmost word of a free stack.
type NextFree = Option<NonNull<u8>>;

struct Pool {
    first: NextFree,
    free: usize,
    mapped: usize,
}

// SAFETY: the stacks in the pool are used by nobody (I1).
unsafe impl Send for Pool {}

static POOL: IrqLock<Pool> = IrqLock::new(Pool { first: None, free: 0, mapped: 0 });

/// How many stacks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Mapped so far, in use or free.
    pub mapped: usize,
    /// Free.
    pub free: usize,
}

/// How many stacks there are.
pub fn count() -> Count {
    POOL.with(|pool| Count { mapped: pool.mapped, free: pool.free })
}

impl Stack {
    /// A free stack, or a new one.
    pub fn take() -> Result<Self, MapError> {
        if let Some(top) = POOL.with(Pool::pop) {
            return Ok(Self { top });
        }
        let new = paging::map_stack(STACK_PAGES)?;
        POOL.with(|pool| pool.mapped += 1);
        let top = NonNull::new(new.top as *mut u8).ok_or(MapError::OutOfMemory)?;
        Ok(Self { top })
    }

    /// Back into the pool. Nobody uses the stack any more.
    pub fn give_back(self, irq: &IrqOff) {
        POOL.lock(irq).push(self.top);
    }

    /// The upper end; a multiple of the page size.
    pub fn top(&self) -> *mut u8 {
        self.top.as_ptr()
    }
}

impl Pool {
    fn pop(&mut self) -> Option<NonNull<u8>> {
        let top = self.first?;
        // SAFETY: a free stack is mapped and used by nobody (I1), and `push` wrote its topmost word.
        self.first = unsafe { top.cast::<NextFree>().sub(1).read() };
        self.free -= 1;
        Some(top)
    }

    fn push(&mut self, top: NonNull<u8>) {
        // SAFETY: the stack is mapped and its owner gave it up (I1); the top is aligned to a page.
        unsafe { top.cast::<NextFree>().sub(1).write(self.first) };
        self.first = Some(top);
        self.free += 1;
    }
}
