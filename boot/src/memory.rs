//! Which memory may be used.
//!
//! # What it is
//! Arithmetic on lists of physical address ranges: what the loader's memory map calls RAM, less what is taken.
//!
//! # How it works
//! RAM entries are rounded inwards to pages, sorted and merged; then every other entry and every hole is rounded
//! outwards and cut out, so where entries contradict each other, memory is left alone.
//!
//! # Invariants
//! 1. Regions are page aligned, not empty, sorted, and neither overlap nor touch.
//! 2. No byte of a non-RAM entry or of a hole is in a region.
//! 3. When there are more regions than [`MAX_REGIONS`], memory is lost, never invented.
//!
//! # Cost
//! O(entries * regions), once.

use crate::layout::PAGE;
use arrayvec::ArrayVec;

/// How many regions are kept.
pub const MAX_REGIONS: usize = 64;

/// A range of physical memory, page aligned, not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRegion {
    /// Physical address of the first byte.
    pub start: u64,
    /// Physical address of the byte after the last one.
    pub end: u64,
}

/// A sorted list of regions.
pub type Regions = ArrayVec<MemoryRegion, MAX_REGIONS>;

/// What a memory map's entry describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ordinary memory, free to use.
    Ram,
    /// Anything else.
    Other,
}

/// One entry of a memory map, as the loader gave it: unsorted, unaligned, perhaps absurd.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Physical address of the first byte.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// What lies there.
    pub kind: Kind,
}

impl MemoryRegion {
    /// Makes a region of the whole pages inside `start..end`, if there is one.
    pub fn inwards(start: u64, end: u64) -> Option<Self> {
        let start = start.checked_next_multiple_of(PAGE)?;
        let end = end / PAGE * PAGE;
        (start < end).then_some(Self { start, end })
    }

    /// Makes a region of all pages that `start..end` touches, if there is one.
    pub fn outwards(start: u64, end: u64) -> Option<Self> {
        if start >= end {
            return None;
        }
        let last_page = u64::MAX / PAGE * PAGE;
        Some(Self {
            start: (start / PAGE * PAGE).min(last_page - PAGE),
            end: end.checked_next_multiple_of(PAGE).unwrap_or(last_page),
        })
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// Returns the RAM of a memory map.
pub fn ram(map: impl Iterator<Item = Entry> + Clone) -> Regions {
    let mut regions = Regions::new();
    for entry in map.clone().filter(|entry| entry.kind == Kind::Ram) {
        if let Some(region) = MemoryRegion::inwards(entry.start, entry.start.saturating_add(entry.len)) {
            add(&mut regions, region);
        }
    }
    for entry in map.filter(|entry| entry.kind == Kind::Other) {
        if let Some(hole) = MemoryRegion::outwards(entry.start, entry.start.saturating_add(entry.len)) {
            cut(&mut regions, hole);
        }
    }
    regions
}

/// Adds a region, merging it with what it overlaps or touches.
pub fn add(regions: &mut Regions, mut new: MemoryRegion) {
    regions.retain(|old| {
        let apart = old.end < new.start || new.end < old.start;
        if !apart {
            new.start = new.start.min(old.start);
            new.end = new.end.max(old.end);
        }
        apart
    });
    insert_sorted(regions, new);
}

/// Cuts `hole` out of the regions.
pub fn cut(regions: &mut Regions, hole: MemoryRegion) {
    let old = core::mem::take(regions);
    for region in old {
        let below = MemoryRegion::inwards(region.start, region.end.min(hole.start));
        let above = MemoryRegion::inwards(region.start.max(hole.end), region.end);
        for part in [below, above].into_iter().flatten() {
            insert_sorted(regions, part);
        }
    }
}

/// Returns the sum of the regions' lengths in bytes.
pub fn total_bytes(regions: &[MemoryRegion]) -> u64 {
    regions.iter().map(MemoryRegion::bytes).sum()
}

fn insert_sorted(regions: &mut Regions, new: MemoryRegion) {
    if regions.is_full() {
        // I3: the smallest region is given up, be it the new one.
        let (index, smallest) =
            regions.iter().enumerate().min_by_key(|(_, region)| region.bytes()).expect("a full list is not empty");
        if smallest.bytes() >= new.bytes() {
            return;
        }
        regions.remove(index);
    }
    let at = regions.partition_point(|old| old.start < new.start);
    regions.insert(at, new);
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAGE;

    fn region(start: u64, end: u64) -> MemoryRegion {
        MemoryRegion { start, end }
    }

    fn entry(start: u64, len: u64, kind: Kind) -> Entry {
        Entry { start, len, kind }
    }

    fn assert_invariants(regions: &[MemoryRegion]) {
        for r in regions {
            assert!(r.start < r.end && r.start % P == 0 && r.end % P == 0, "{r:x?}");
        }
        for pair in regions.windows(2) {
            assert!(pair[0].end <= pair[1].start, "{pair:x?}");
        }
    }

    #[test]
    fn a_usual_map() {
        let map = [
            entry(0, 0x9fc00, Kind::Ram),
            entry(0x9fc00, 0x400, Kind::Other),
            entry(0xf0000, 0x10000, Kind::Other),
            entry(0x10_0000, 0x1fee_0000, Kind::Ram),
            entry(0x1ffe_0000, 0x2_0000, Kind::Other),
        ];
        let got = ram(map.into_iter());
        assert_eq!(got.as_slice(), [region(0, 0x9f000), region(0x10_0000, 0x1ffe_0000)]);
    }

    #[test]
    fn unsorted_touching_and_overlapping_entries_become_one() {
        let map = [entry(4 * P, 2 * P, Kind::Ram), entry(0, 2 * P, Kind::Ram), entry(P, 3 * P, Kind::Ram)];
        assert_eq!(ram(map.into_iter()).as_slice(), [region(0, 6 * P)]);
    }

    #[test]
    fn a_reserved_entry_wins_and_takes_whole_pages() {
        let map = [entry(2 * P + 5, 1, Kind::Other), entry(0, 6 * P, Kind::Ram)];
        assert_eq!(ram(map.into_iter()).as_slice(), [region(0, 2 * P), region(3 * P, 6 * P)]);
    }

    #[test]
    fn absurd_entries_are_harmless() {
        let map = [
            entry(u64::MAX, u64::MAX, Kind::Ram),
            entry(u64::MAX - 10, 5, Kind::Other),
            entry(5, 0, Kind::Ram),
            entry(5, 0, Kind::Other),
            entry(P + 1, P, Kind::Ram),
            entry(8 * P, u64::MAX, Kind::Ram),
        ];
        let got = ram(map.into_iter());
        assert_invariants(&got);
        assert_eq!(got.first(), Some(&region(8 * P, (u64::MAX / P - 1) * P)));
    }

    #[test]
    fn too_many_regions_lose_memory_and_keep_the_large_ones() {
        let map = (0..200u64).map(|i| entry(i * 4 * P, if i < 100 { P } else { 2 * P }, Kind::Ram));
        let got = ram(map);
        assert_invariants(&got);
        assert_eq!(got.len(), MAX_REGIONS);
        assert!(got.iter().all(|r| r.bytes() == 2 * P));
    }

    /// Every set of up to three entries over a small address range, against a bitmap of bytes.
    #[test]
    fn exhaustive_small_maps_agree_with_a_bitmap() {
        const HALF: u64 = P / 2;
        const CELLS: u64 = 8;
        let mut choices = vec![None];
        for start in 0..CELLS {
            for end in start + 1..=CELLS {
                for kind in [Kind::Ram, Kind::Other] {
                    choices.push(Some(entry(start * HALF, (end - start) * HALF, kind)));
                }
            }
        }
        for a in &choices {
            for b in &choices {
                for c in choices.iter().step_by(5) {
                    let map: Vec<Entry> = [a, b, c].into_iter().flatten().copied().collect();
                    let got = ram(map.iter().copied());
                    assert_invariants(&got);
                    for page in 0..CELLS / 2 {
                        let (lo, hi) = (page * P, (page + 1) * P);
                        let inside = |e: &&Entry| e.start < hi && e.start + e.len > lo;
                        let reserved = map.iter().filter(inside).any(|e| e.kind == Kind::Other);
                        // A page is RAM when one entry, or touching whole-page parts, cover it.
                        let covered =
                            map.iter().filter(|e| e.kind == Kind::Ram).any(|e| e.start <= lo && e.start + e.len >= hi);
                        let got_page = got.iter().any(|r| r.start <= lo && hi <= r.end);
                        assert_eq!(got_page, covered && !reserved, "{map:x?} page {page}");
                    }
                }
            }
        }
    }
}
