//! The kernel's heap.
//!
//! # What it is
//! The global allocator: `talc` behind a lock that keeps interrupts off, over page frames that boot hands out.
//!
//! # How it works
//! When the heap has no room for a request it takes a run of contiguous frames, at least [`STEP_FRAMES`] of them when
//! there are that many, and adds it.
//! Frames that follow the last run extend it, so a big request can use both.
//! Frames are never given back, so stacks and heap share what is left in the order in which they ask.
//!
//! # Invariants
//! 1. Every frame the heap uses came from `boot::paging::alloc_frames`, once.
//! 2. `talc` is used with interrupts off only.
//!
//! # Cost
//! Constant time per request but for growth. A failed request is remembered for the panic report ([`shortage`]).

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use boot::layout::{PAGE, phys_to_virt};
use talc::TalcLock;
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::source::Source;

use crate::spin::RawSpinIrq;

/// How many frames the heap grows by when it must: 1 MiB.
const STEP_FRAMES: u64 = 256;
/// What a run must hold beyond the request: the allocator's own tags and, in the first run, its lists.
const OVERHEAD_BYTES: u64 = 4 * PAGE;

/// The last request that could not be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// How many bytes were asked for.
    pub wanted_bytes: usize,
    /// How many bytes the heap had, in pieces.
    pub heap_free_bytes: usize,
    /// How many bytes the heap has taken in all.
    pub heap_bytes: usize,
    /// How many bytes of the machine nobody had taken; the longest run of them was too short.
    pub machine_free_bytes: u64,
}

/// How much the heap holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in live allocations.
    pub used_bytes: usize,
    /// Bytes free inside the heap.
    pub free_bytes: usize,
    /// Bytes taken from boot so far.
    pub heap_bytes: usize,
}

/// Takes frames from boot.
#[derive(Debug)]
struct Frames {
    /// The end of the newest run, which the next may follow.
    end: Option<NonNull<u8>>,
}

// SAFETY: the pointer is only compared and handed back to the allocator that owns the memory behind it.
unsafe impl Send for Frames {}

// SAFETY: `acquire` touches boot's frame allocator only, never the heap itself, and says `Ok` only after it has added
// memory.
unsafe impl Source for Frames {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        let bytes = (layout.size() as u64)
            .checked_add(layout.align() as u64)
            .and_then(|bytes| bytes.checked_add(OVERHEAD_BYTES))
            .ok_or(())?;
        let least = bytes.div_ceil(PAGE);
        let (phys, frames) = [least.max(STEP_FRAMES), least]
            .into_iter()
            .find_map(|frames| boot::paging::alloc_frames(frames).map(|phys| (phys, frames)))
            .ok_or(())?;
        let base = phys_to_virt(phys);
        let size = (frames * PAGE) as usize;
        let end = match talc.source.end {
            Some(end) if end.as_ptr() == base => {
                // SAFETY: the run is ours (invariant 1), follows the heap that ends here, and is mapped.
                unsafe { talc.extend(end, base.add(size)) }
            }
            // SAFETY: the run is ours alone from now on (invariant 1) and mapped readable and writable.
            _ => unsafe { talc.claim(base, size) }.ok_or(())?,
        };
        talc.source.end = Some(end);
        Ok(())
    }
}

/// The allocator and its memory of failures.
pub struct Heap {
    talc: TalcLock<RawSpinIrq, Frames>,
    /// How many bytes the last request that failed was for; 0: none has failed.
    failed_bytes: AtomicUsize,
    /// How many bytes of the machine nobody had taken then.
    machine_free_bytes: AtomicU64,
}

/// The one heap.
#[cfg_attr(target_os = "none", global_allocator)]
static HEAP: Heap = Heap {
    talc: TalcLock::new(Frames { end: None }),
    failed_bytes: AtomicUsize::new(0),
    machine_free_bytes: AtomicU64::new(0),
};

/// The last request that failed, if any did; never waits.
pub fn shortage() -> Option<Shortage> {
    let wanted_bytes = HEAP.failed_bytes.load(Ordering::Relaxed);
    let usage = usage()?;
    (wanted_bytes != 0).then_some(Shortage {
        wanted_bytes,
        heap_free_bytes: usage.free_bytes,
        heap_bytes: usage.heap_bytes,
        machine_free_bytes: HEAP.machine_free_bytes.load(Ordering::Relaxed),
    })
}

/// How much the heap holds; `None` while somebody else holds its lock.
pub fn usage() -> Option<Usage> {
    let talc = HEAP.talc.try_lock()?;
    let counters = talc.counters();
    Some(Usage {
        used_bytes: counters.allocated_bytes,
        free_bytes: counters.available_bytes,
        heap_bytes: counters.claimed_bytes,
    })
}

// SAFETY: every call goes to `talc` with the caller's own duties; a failure is only noted.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's duties are the same.
        self.note(unsafe { self.talc.alloc(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller's duties are the same.
        unsafe { self.talc.dealloc(address, layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's duties are the same.
        self.note(unsafe { self.talc.realloc(address, layout, new_size) }, new_size)
    }
}

impl Heap {
    fn note(&self, address: *mut u8, bytes: usize) -> *mut u8 {
        if address.is_null() {
            self.machine_free_bytes.store(boot::paging::free_bytes(), Ordering::Relaxed);
            self.failed_bytes.store(bytes, Ordering::Relaxed);
        }
        address
    }
}
