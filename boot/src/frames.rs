//! Handing out physical memory.
//!
//! # What it is
//! An allocator of whole page frames that are never given back.
//!
//! # How it works
//! It holds the free regions, sorted; a request is cut from the front of the lowest region that is long enough.
//!
//! # Invariants
//! 1. Every frame is handed out at most once.
//! 2. Frames come in ascending order as long as requests are for one frame.
//!
//! # Cost
//! O(regions) for a request, at most [`crate::memory::MAX_REGIONS`] steps.

use crate::layout::PAGE;
use crate::memory::{MemoryRegion, Regions, total_bytes};

/// The frames nobody has yet.
#[derive(Debug)]
pub struct Frames {
    free: Regions,
}

impl Frames {
    /// Takes over the memory in `free`.
    pub fn new(free: Regions) -> Self {
        Self { free }
    }

    /// Bytes not handed out yet.
    pub fn free_bytes(&self) -> u64 {
        total_bytes(&self.free)
    }

    /// Frames in the longest contiguous run.
    pub fn longest_run(&self) -> u64 {
        self.free.iter().map(|region| region.bytes() / PAGE).max().unwrap_or(0)
    }

    /// The regions nobody has yet.
    pub fn regions(&self) -> &[MemoryRegion] {
        &self.free
    }

    /// Hands out `count` contiguous frames and returns the first one's physical address.
    pub fn alloc(&mut self, count: u64) -> Option<u64> {
        let bytes = count.checked_mul(PAGE).filter(|&bytes| bytes > 0)?;
        let index = self.free.iter().position(|region| region.bytes() >= bytes)?;
        let region = &mut self.free[index];
        let phys = region.start;
        region.start += bytes;
        if region.start == region.end {
            self.free.remove(index);
        }
        Some(phys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(regions: &[(u64, u64)]) -> Frames {
        Frames::new(regions.iter().map(|&(start, end)| MemoryRegion { start: start * PAGE, end: end * PAGE }).collect())
    }

    #[test]
    fn frames_are_handed_out_once_in_order() {
        let mut f = frames(&[(1, 3), (10, 11)]);
        assert_eq!(f.free_bytes(), 3 * PAGE);
        let got: Vec<_> = core::iter::from_fn(|| f.alloc(1)).collect();
        assert_eq!(got, [PAGE, 2 * PAGE, 10 * PAGE]);
        assert_eq!(f.free_bytes(), 0);
        assert_eq!(f.longest_run(), 0);
    }

    #[test]
    fn a_run_skips_a_short_region_without_losing_it() {
        let mut f = frames(&[(1, 2), (10, 20)]);
        assert_eq!(f.longest_run(), 10);
        assert_eq!(f.alloc(4), Some(10 * PAGE));
        assert_eq!(f.alloc(1), Some(PAGE));
        assert_eq!(f.alloc(7), None);
        assert_eq!(f.alloc(6), Some(14 * PAGE));
    }

    #[test]
    fn absurd_requests_are_refused() {
        let mut f = frames(&[(1, 2)]);
        assert_eq!(f.alloc(0), None);
        assert_eq!(f.alloc(u64::MAX), None);
        assert_eq!(f.alloc(1 << 52), None);
        assert_eq!(f.alloc(1), Some(PAGE));
    }
}
