//! Where things lie in memory.
//!
//! # What it is
//! The address plan shared with `kernel/linker.ld`, and the borders of the kernel's image as the linker set them.
//!
//! # How it works
//! | virtual address | what | access |
//! |---|---|---|
//! | lower half | nothing | none |
//! | [`DIRECT_MAP`] + physical | all RAM | read-write, the image's text and constants read only |
//! | [`STACKS`] | kernel stacks in slots, lowest page of each slot never mapped | read-write |
//! | [`DEVICES`] | device registers | read-write, uncached |
//! | [`KERNEL_BASE`] + physical | the image: text, constants, data | read-execute, read, read-write |
//!
//! # Invariants
//! 1. Only the image's text is executable.
//! 2. The areas do not overlap.
//!
//! # Cost
//! Constants.

/// Bytes in a page.
pub const PAGE: u64 = 4096;
/// Virtual address of physical address 0 in the map of all RAM.
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;
/// Bytes of physical memory that the map of all RAM can hold: 64 TiB.
pub const DIRECT_MAP_BYTES: u64 = 1 << 46;
/// Virtual start of the stacks.
pub const STACKS: u64 = 0xffff_c000_0000_0000;
/// Pages in one stack's slot, the guard page included.
pub const STACK_SLOT_PAGES: u64 = 32;
/// Stack slots there are.
pub const STACK_SLOTS: u64 = 1 << 20;
/// Virtual start of the device registers.
pub const DEVICES: u64 = 0xffff_d000_0000_0000;
/// Bytes that the device area can hold: 1 TiB.
pub const DEVICES_BYTES: u64 = 1 << 40;
/// Virtual address of physical address 0 in the map of the kernel's image.
pub const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

/// Borders of the kernel's image, as physical addresses, page aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// First byte of the text.
    pub text_start: u64,
    /// End of the text and first byte of the constants.
    pub rodata_start: u64,
    /// End of the constants and first byte of the data.
    pub data_start: u64,
    /// End of the data.
    pub end: u64,
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    static __text_start: u8;
    static __rodata_start: u8;
    static __data_start: u8;
    static __image_end: u8;
}

/// Returns the borders of the image this code runs in.
#[cfg(target_arch = "x86_64")]
pub fn image() -> Image {
    let phys = |symbol: *const u8| symbol as u64 - KERNEL_BASE;
    Image {
        text_start: phys(&raw const __text_start),
        rodata_start: phys(&raw const __rodata_start),
        data_start: phys(&raw const __data_start),
        end: phys(&raw const __image_end),
    }
}

/// Returns where physical address `phys` is seen in the map of all RAM.
#[cfg(target_arch = "x86_64")]
pub fn phys_to_virt(phys: u64) -> *mut u8 {
    debug_assert!(phys < DIRECT_MAP_BYTES);
    (DIRECT_MAP + phys) as *mut u8
}

/// Returns whether `address` lies on a guard page, that is: an access there is a stack overflow.
pub fn is_stack_guard(address: u64) -> bool {
    let slot_bytes = STACK_SLOT_PAGES * PAGE;
    (STACKS..STACKS + STACK_SLOTS * slot_bytes).contains(&address) && (address - STACKS) % slot_bytes < PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_do_not_overlap() {
        let areas = [
            (DIRECT_MAP, DIRECT_MAP_BYTES),
            (STACKS, STACK_SLOTS * STACK_SLOT_PAGES * PAGE),
            (DEVICES, DEVICES_BYTES),
            (KERNEL_BASE, 1 << 31),
        ];
        for (i, &(a, a_len)) in areas.iter().enumerate() {
            for &(b, b_len) in &areas[i + 1..] {
                assert!(a + (a_len - 1) < b || b + (b_len - 1) < a);
            }
        }
    }

    #[test]
    fn only_the_lowest_page_of_a_slot_is_a_guard() {
        let slot = STACK_SLOT_PAGES * PAGE;
        for base in [STACKS, STACKS + slot, STACKS + 77 * slot] {
            assert!(is_stack_guard(base));
            assert!(is_stack_guard(base + PAGE - 1));
            assert!(!is_stack_guard(base + PAGE));
            assert!(!is_stack_guard(base + slot - 1));
        }
        assert!(!is_stack_guard(STACKS - 1));
        assert!(!is_stack_guard(0));
    }
}
