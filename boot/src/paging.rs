//! The final page tables, and the memory behind them.
//!
//! # What it is
//! One address space for all CPUs, laid out as [`crate::layout`] says, and the owner of all free memory.
//!
//! # How it works
//! `build` makes the tables while the temporary ones are loaded. Afterwards mappings are only ever added:
//! stacks ([`map_stack`]) and device registers ([`map_device`]), so no CPU ever has to drop a stale translation.
//!
//! # Invariants
//! 1. A leaf is writable or executable or neither, never both; frames of the image's text and constants are
//!    writable through no alias.
//! 2. The lower half is empty.
//! 3. The lowest page of each stack slot is never mapped.
//! 4. Mappings are never changed or removed, except by functions whose doc says so.
//!
//! # Cost
//! One lock, held with interrupts off, for a few table writes.

use crate::frames::Frames;
use crate::layout::{self, DEVICES, DEVICES_BYTES, DIRECT_MAP, Image, PAGE, STACK_SLOT_PAGES, STACKS};
use crate::memory::{MemoryRegion, Regions};
use core::fmt;
use spin::mutex::SpinMutex;
use x86_64::structures::paging::mapper::{MapToError, OffsetPageTable};
use x86_64::structures::paging::{
    FrameAllocator, Mapper, Page, PageSize, PageTable, PageTableFlags as Flags, PhysFrame, Size1GiB, Size2MiB, Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};

pub use crate::check::{Report, Violation, check};

const READ_ONLY: Flags = Flags::PRESENT.union(Flags::NO_EXECUTE);
const READ_WRITE: Flags = READ_ONLY.union(Flags::WRITABLE);
const READ_EXECUTE: Flags = Flags::PRESENT;
/// With the power-on page attribute table this pair of bits means uncached.
const UNCACHED: Flags = Flags::NO_CACHE.union(Flags::WRITE_THROUGH);

static SPACE: SpinMutex<Option<Space>> = SpinMutex::new(None);

/// A stack, with an unmapped page below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Address of the lowest byte.
    pub bottom: u64,
    /// Address after the highest byte, 16-byte aligned: what to load into the stack pointer.
    pub top: u64,
}

/// Why nothing was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// No free memory is left.
    OutOfMemory,
    /// A stack has from 1 to 31 pages.
    StackSize {
        /// The pages asked for.
        pages: u64,
    },
    /// The area for such mappings is full.
    AreaFull,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => write!(f, "no memory is left"),
            Self::StackSize { pages } => {
                write!(f, "a stack of {pages} pages: 1 to {} are possible", STACK_SLOT_PAGES - 1)
            }
            Self::AreaFull => write!(f, "the address area is full"),
        }
    }
}

/// The address space's state.
pub(crate) struct Space {
    frames: Frames,
    pml4_phys: u64,
    image: Image,
    /// Stack slots given out.
    stacks: u64,
    next_device: u64,
    trampoline: Option<Trampoline>,
}

/// What starting CPUs needs: a page below 1 MiB, and a root for tables that map it, below 4 GiB.
#[derive(Clone, Copy)]
struct Trampoline {
    page_phys: u64,
    pml4_phys: u64,
}

/// Hands frames out as page tables need them.
struct TableFrames<'a>(&'a mut Frames);

// SAFETY: `Frames` hands out every frame once (frames.rs, I1).
unsafe impl FrameAllocator<Size4KiB> for TableFrames<'_> {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        self.0.alloc(1).map(|phys| PhysFrame::containing_address(PhysAddr::new(phys)))
    }
}

/// Builds the tables. `ram` is all RAM, `free` the part that nobody uses.
///
/// # Safety
/// - The temporary tables are loaded.
/// - `ram` and `free` are true, and this is called once.
pub(crate) unsafe fn build(
    ram: &Regions,
    free: Regions,
    image: Image,
    trampoline_phys: Option<u64>,
) -> Result<u64, MapError> {
    let mut frames = Frames::new(free);
    let mut new_root = || {
        let phys = frames.alloc(1).ok_or(MapError::OutOfMemory)?;
        // SAFETY: The frame is free and the temporary tables map it.
        unsafe { layout::phys_to_virt(phys).write_bytes(0, PAGE as usize) };
        Ok(phys)
    };
    let pml4_phys = new_root()?;
    let trampoline = match trampoline_phys {
        Some(page_phys) => Some(Trampoline { page_phys, pml4_phys: new_root()? }),
        None => None,
    };
    let mut space = Space { frames, pml4_phys, image, stacks: 0, next_device: DEVICES, trampoline };

    for &region in ram {
        space.map_direct(region)?;
    }
    let sections = [
        (image.text_start, image.rodata_start, READ_EXECUTE),
        (image.rodata_start, image.data_start, READ_ONLY),
        (image.data_start, image.end, READ_WRITE),
    ];
    for (start, end, flags) in sections {
        for phys in (start..end).step_by(PAGE as usize) {
            space.map::<Size4KiB>(layout::KERNEL_BASE + phys, phys, flags)?;
        }
    }
    *SPACE.lock() = Some(space);
    Ok(pml4_phys)
}

/// Maps a stack of `pages` pages (1 to 31) with an unmapped page below it.
///
/// It is never unmapped: keep stacks that are done with, and use them again.
pub fn map_stack(pages: u64) -> Result<Stack, MapError> {
    with(|space| {
        if !(1..STACK_SLOT_PAGES).contains(&pages) {
            return Err(MapError::StackSize { pages });
        }
        if space.stacks == layout::STACK_SLOTS {
            return Err(MapError::AreaFull);
        }
        // Up to three new tables come with it; nothing is begun that memory does not suffice for.
        if space.frames.free_bytes() < (pages + 3) * PAGE {
            return Err(MapError::OutOfMemory);
        }
        space.stacks += 1;
        let top = STACKS + space.stacks * STACK_SLOT_PAGES * PAGE;
        let bottom = top - pages * PAGE;
        for virt in (bottom..top).step_by(PAGE as usize) {
            let phys = space.frames.alloc(1).ok_or(MapError::OutOfMemory)?;
            space.map::<Size4KiB>(virt, phys, READ_WRITE)?;
        }
        Ok(Stack { bottom, top })
    })
}

/// Maps `len` bytes of device registers at `phys`, uncached, and returns where `phys` is seen.
pub fn map_device(phys: u64, len: usize) -> Result<*mut u8, MapError> {
    with(|space| {
        let start = phys / PAGE * PAGE;
        let end = phys
            .checked_add(len as u64)
            .and_then(|end| end.checked_next_multiple_of(PAGE))
            .filter(|&end| end <= 1 << 52)
            .ok_or(MapError::AreaFull)?;
        let virt = space.next_device;
        if end - start > DEVICES + DEVICES_BYTES - virt {
            return Err(MapError::AreaFull);
        }
        space.next_device += end - start;
        for offset in (0..end - start).step_by(PAGE as usize) {
            space.map::<Size4KiB>(virt + offset, start + offset, READ_WRITE | UNCACHED)?;
        }
        Ok((virt + (phys - start)) as *mut u8)
    })
}

/// Fills in the tables on which a CPU starts: its page below 1 MiB, seen at its physical address, and the image.
///
/// Returns the page's address and the tables', or nothing if there is no such page. For one call.
pub(crate) fn trampoline_tables() -> Result<Option<(u64, u64)>, MapError> {
    with(|space| {
        let Some(Trampoline { page_phys, pml4_phys }) = space.trampoline else {
            return Ok(None);
        };
        space.map_in::<Size4KiB>(pml4_phys, page_phys, page_phys, READ_EXECUTE)?;
        let slot = (layout::KERNEL_BASE >> 39 & 511) as usize * size_of::<u64>();
        // SAFETY: Both roots are ours, in the map of all RAM; the lock is held.
        unsafe {
            let image = layout::phys_to_virt(space.pml4_phys).add(slot).cast::<u64>().read();
            layout::phys_to_virt(pml4_phys).add(slot).cast::<u64>().write(image);
        }
        Ok(Some((page_phys, pml4_phys)))
    })
}

/// Hands out `count` contiguous frames for good and returns the physical address of the first.
///
/// They lie in the map of all RAM ([`layout::phys_to_virt`]); what they hold is not defined.
pub fn alloc_frames(count: u64) -> Option<u64> {
    with(|space| space.frames.alloc(count))
}

/// Hands out one frame for good.
pub fn alloc_frame() -> Option<u64> {
    alloc_frames(1)
}

/// Bytes of memory not handed out yet.
pub fn free_bytes() -> u64 {
    with(|space| space.frames.free_bytes())
}

/// The largest `count` that [`alloc_frames`] can serve now.
pub fn longest_free_run() -> u64 {
    with(|space| space.frames.longest_run())
}

/// Runs `f` on the address space, with interrupts off so that an interrupt handler may map, too.
pub(crate) fn with<R>(f: impl FnOnce(&mut Space) -> R) -> R {
    x86_64::instructions::interrupts::without_interrupts(|| {
        f(SPACE.lock().as_mut().expect("the page tables are built before anything is mapped"))
    })
}

impl Space {
    /// The kernel's image.
    pub(crate) fn image(&self) -> Image {
        self.image
    }

    /// Stack slots given out.
    pub(crate) fn stacks(&self) -> u64 {
        self.stacks
    }

    /// The memory not handed out yet.
    pub(crate) fn free_regions(&self) -> Regions {
        self.frames.regions().iter().copied().collect()
    }

    /// Maps RAM into the map of all RAM, in pages as large as fit; the image's text and constants read only.
    fn map_direct(&mut self, region: MemoryRegion) -> Result<(), MapError> {
        let constant = self.image.text_start..self.image.data_start;
        // Physical page 0 stays out: nothing there is of use, and a wild pointer near 0 in either form faults.
        let mut phys = region.start.max(PAGE);
        let end = region.end.min(layout::DIRECT_MAP_BYTES);
        while phys < end {
            let virt = DIRECT_MAP + phys;
            let free_run = if constant.contains(&phys) {
                self.map::<Size4KiB>(virt, phys, READ_ONLY)?;
                phys += PAGE;
                continue;
            } else if phys < constant.start {
                end.min(constant.start) - phys
            } else {
                end - phys
            };
            let fits = |size: u64| phys.is_multiple_of(size) && free_run >= size;
            phys += if has_1gib_pages() && fits(Size1GiB::SIZE) {
                self.map::<Size1GiB>(virt, phys, READ_WRITE | Flags::HUGE_PAGE)?;
                Size1GiB::SIZE
            } else if fits(Size2MiB::SIZE) {
                self.map::<Size2MiB>(virt, phys, READ_WRITE | Flags::HUGE_PAGE)?;
                Size2MiB::SIZE
            } else {
                self.map::<Size4KiB>(virt, phys, READ_WRITE)?;
                PAGE
            };
        }
        Ok(())
    }

    fn map<S: PageSize>(&mut self, virt: u64, phys: u64, flags: Flags) -> Result<(), MapError>
    where
        for<'a> OffsetPageTable<'a>: Mapper<S>,
    {
        self.map_in::<S>(self.pml4_phys, virt, phys, flags)
    }

    fn map_in<S: PageSize>(&mut self, pml4_phys: u64, virt: u64, phys: u64, flags: Flags) -> Result<(), MapError>
    where
        for<'a> OffsetPageTable<'a>: Mapper<S>,
    {
        let table = layout::phys_to_virt(pml4_phys).cast::<PageTable>();
        // SAFETY: `pml4_phys` is the root of one of our sets of tables, all of them lie in the map of all RAM (temporary or final),
        // and the lock makes this the only reference.
        let mut tables = unsafe { OffsetPageTable::new(&mut *table, VirtAddr::new(DIRECT_MAP)) };
        let page = Page::<S>::containing_address(VirtAddr::new(virt));
        let frame = PhysFrame::containing_address(PhysAddr::new(phys));
        let parents = Flags::PRESENT | Flags::WRITABLE;
        let mut frames = TableFrames(&mut self.frames);
        // SAFETY: The page was not mapped before (I4), and who asks keeps I1.
        match unsafe { tables.map_to_with_table_flags(page, frame, flags, parents, &mut frames) } {
            // Not present before, so no CPU holds a translation to flush.
            Ok(flush) => flush.ignore(),
            Err(MapToError::FrameAllocationFailed) => return Err(MapError::OutOfMemory),
            Err(MapToError::ParentEntryHugePage | MapToError::PageAlreadyMapped(_)) => {
                unreachable!("{virt:#x} is mapped twice")
            }
        }
        Ok(())
    }
}

fn has_1gib_pages() -> bool {
    const PAGE_1GIB: u32 = 1 << 26;
    core::arch::x86_64::__cpuid(0x8000_0001).edx & PAGE_1GIB != 0
}
