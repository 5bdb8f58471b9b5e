//! Walking a stack.
//!
//! # What it is
//! An iterator over the return addresses on a stack, for the panic report.
//!
//! # How it works
//! The kernel is built with frame pointers: `rbp` points at the caller's saved `rbp`, above which lies the return address.
//! The interrupt entries and new threads keep the chain up (`idt`, `switch`).
//! Each frame must lie above the last, on the same stack, and be mapped: a damaged chain ends the walk, it cannot fault.
//!
//! # Invariants
//! 1. At most [`MAX_FRAMES`] addresses.
//!
//! # Cost
//! Two reads and a page-table walk per frame.

use core::arch::asm;

use boot::layout::{PAGE, STACK_SLOT_PAGES, STACK_SLOTS, STACKS, phys_to_virt};
use x86_64::VirtAddr;
use x86_64::registers::control::Cr3;
use x86_64::structures::paging::{PageTable, PageTableFlags};

/// The most frames a walk visits.
pub const MAX_FRAMES: usize = 48;
/// Bytes in a stack's slot.
const SLOT_BYTES: u64 = STACK_SLOT_PAGES * PAGE;

/// The return addresses from one frame on.
pub struct Frames {
    frame: u64,
    left: usize,
}

impl Frames {
    /// Starts at the frame that `rbp` points at.
    pub fn from_frame(rbp: u64) -> Self {
        Self { frame: rbp, left: MAX_FRAMES }
    }

    /// Starts at the caller's own frame.
    #[inline(always)]
    pub fn here() -> Self {
        let rbp: u64;
        // SAFETY: only reads the frame pointer.
        unsafe { asm!("mov {}, rbp", out(reg) rbp, options(nomem, nostack, preserves_flags)) };
        Self::from_frame(rbp)
    }
}

impl Iterator for Frames {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        // A frame is two words, and 16-byte aligned, so it never straddles two pages.
        if !self.frame.is_multiple_of(16) || !is_on_stack(self.frame) || !is_mapped(self.frame) {
            return None;
        }
        let words = self.frame as *const u64;
        // SAFETY: two aligned words of a stack page, which is mapped and never unmapped; volatile, because the thread
        // that owns the stack may still run.
        let (next, address) = unsafe { (words.read_volatile(), words.add(1).read_volatile()) };
        let same_stack = next > self.frame && slot(next) == slot(self.frame);
        self.frame = if same_stack { next } else { 0 };
        (address != 0).then_some(address)
    }
}

/// Says whether `address` lies in the area of the stacks.
pub fn is_on_stack(address: u64) -> bool {
    (STACKS..STACKS + STACK_SLOTS * SLOT_BYTES).contains(&address)
}

/// Which stack's slot an address lies in.
fn slot(address: u64) -> u64 {
    address.wrapping_sub(STACKS) / SLOT_BYTES
}

/// Says whether an address in the area of the stacks is mapped.
///
/// Walks the tables itself, because `boot`'s lock on them may be held by a CPU that has been stopped.
fn is_mapped(address: u64) -> bool {
    let virt = VirtAddr::new_truncate(address);
    let mut table_phys = Cr3::read().0.start_address().as_u64();
    for index in [virt.p4_index(), virt.p3_index(), virt.p2_index(), virt.p1_index()] {
        // SAFETY: tables lie in the map of all RAM, are never freed, and a present entry leads to one:
        // stacks are mapped by pages of 4 KiB (`boot::paging::map_stack`).
        let entry = unsafe { &(&*phys_to_virt(table_phys).cast::<PageTable>())[index] };
        if !entry.flags().contains(PageTableFlags::PRESENT) {
            return false;
        }
        table_phys = entry.addr().as_u64();
    }
    true
}
