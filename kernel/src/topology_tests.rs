//! Identifiers to domains, for machines that CPUID describes in full, in part, or wrongly.

use alloc::string::ToString;

use raw_cpuid::{CpuId as Cpuid, CpuIdResult};
use sched_core::Place;

use super::*;

/// A processor that describes itself like this.
#[derive(Clone, Copy)]
struct Described {
    /// Leaf 0xb: bits below a core, and below a package; none: the leaf is not there.
    topology: Option<(u32, u32)>,
    /// Leaf 4: how many identifiers share the third-level cache.
    sharing: Option<u32>,
}

fn shifts(described: Described) -> Shifts {
    let read = move |leaf: u32, subleaf: u32| {
        let [mut eax, mut ebx, mut ecx, mut edx] = [0; 4];
        match (leaf, subleaf) {
            // The highest leaf, and the name of the vendor.
            (0, _) => {
                eax = if described.topology.is_some() { 0xb } else { 4 };
                (ebx, edx, ecx) = (0x756e_6547, 0x4965_6e69, 0x6c65_746e);
            }
            (4, 0) if described.sharing.is_some() => (eax, ebx, ecx) = (1 | 1 << 5, 63, 63),
            (4, 1) => eax = described.sharing.map_or(0, |sharing| 3 | 3 << 5 | (sharing - 1) << 14),
            (0xb, 0) => (eax, ebx, ecx) = (described.topology.map_or(0, |(core, _)| core), 2, 1 << 8),
            (0xb, 1) => (eax, ebx, ecx) = (described.topology.map_or(0, |(_, package)| package), 8, 2 << 8 | 1),
            _ => {}
        }
        CpuIdResult { eax, ebx, ecx, edx }
    };
    Shifts::read(&Cpuid::with_cpuid_reader(read))
}

#[test]
fn identifiers_are_cut_where_the_leaves_say() {
    // Two threads, four cores, one cache a package.
    let full = shifts(Described { topology: Some((1, 3)), sharing: Some(8) });
    assert_eq!(full.place(0b1011), Place { core: 0b101, cache: 1, node: 1 });
    // Two caches a package.
    let halved = shifts(Described { topology: Some((1, 3)), sharing: Some(4) });
    assert_eq!(halved.place(0b1111), Place { core: 0b111, cache: 0b11, node: 1 });
}

#[test]
fn what_is_not_said_is_a_core_each_and_a_cache_a_package() {
    let silent = shifts(Described { topology: None, sharing: None });
    assert_eq!(silent.place(5), Place { core: 5, cache: 5, node: 5 });
    let no_cache = shifts(Described { topology: Some((0, 2)), sharing: None });
    assert_eq!(no_cache.place(5), Place { core: 5, cache: 1, node: 1 });
}

#[test]
fn a_cache_that_is_said_to_reach_too_far_or_not_far_enough_is_cut_to_size() {
    assert_eq!(shifts(Described { topology: Some((1, 3)), sharing: Some(64) }).place(15).cache, 1);
    assert_eq!(shifts(Described { topology: Some((1, 3)), sharing: Some(1) }).place(15).cache, 7);
}

#[test]
fn every_level_has_a_line() {
    let place = |cpu: CpuId| Place { core: cpu.0 / 2, cache: cpu.0 / 4, node: 0 };
    assert_eq!(
        Lines { cpus: 8, place }.to_string(),
        "topology: 4 x core of 2 CPUs\ntopology: 2 x cache of 4 CPUs\ntopology: 1 x node of 8 CPUs\ntopology: 1 x machine of 8 CPUs"
    );
    let odd = Lines { cpus: 3, place }.to_string();
    assert!(odd.starts_with("topology: 2 x core of 1 to 2 CPUs\ntopology: 1 x cache of 3 CPUs\n"), "{odd}");
    let one = Lines { cpus: 1, place }.to_string();
    assert!(one.starts_with("topology: 1 x core of 1 CPU\n"), "{one}");
}
