//! What the CPUs share, by their APIC identifiers.
//!
//! # What it is
//! [`Shifts`], how many low bits of an identifier tell threads, cores and packages apart, as CPUID says it;
//! [`Lines`], the machine's scheduling domains for people.
//!
//! # How it works
//! Two CPUs share a level if their identifiers agree above its bits. Leaf 0x1f or 0xb says it for cores and packages;
//! leaf 4, or its like on AMD, for the last-level cache. What is not said is taken to be shared by nobody (a core)
//! or by the package (a cache). A package is taken for a memory node.
//!
//! # Invariants
//! 1. Whatever the leaves say, who shares a core shares a cache, and who shares a cache shares a package.
//!
//! # Cost
//! A few CPUID instructions, at boot.

use core::fmt;

use raw_cpuid::{CpuIdReader, TopologyType};
use sched_core::{CpuId, Level, Place};

/// How many low bits of an APIC identifier are below each level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shifts {
    core: u32,
    cache: u32,
    package: u32,
}

impl Shifts {
    /// What `cpuid` says.
    pub fn read<R: CpuIdReader>(cpuid: &raw_cpuid::CpuId<R>) -> Self {
        let levels = || cpuid.get_extended_topology_info_v2().or_else(|| cpuid.get_extended_topology_info());
        let mut shifts = Self { core: 0, cache: 0, package: 0 };
        for level in levels().into_iter().flatten() {
            let shift = level.shift_right_for_next_apic_id();
            match level.level_type() {
                TopologyType::Invalid => break,
                TopologyType::SMT => shifts.core = shift,
                _ => {}
            }
            shifts.package = shifts.package.max(shift);
        }
        let last = cpuid.get_cache_parameters().into_iter().flatten().max_by_key(|cache| cache.level());
        shifts.cache = match last {
            Some(cache) if cache.level() > 1 => {
                (cache.max_cores_for_cache() as u32).next_power_of_two().trailing_zeros()
            }
            _ => shifts.package,
        };
        shifts.package = shifts.package.max(shifts.core);
        shifts.cache = shifts.cache.clamp(shifts.core, shifts.package);
        shifts
    }

    /// Where the CPU with this identifier is.
    pub fn place(self, apic_id: u32) -> Place {
        let above = |shift: u32| apic_id.checked_shr(shift).unwrap_or(0);
        Place { core: above(self.core), cache: above(self.cache), node: above(self.package) }
    }
}

/// A line for each level of scheduling domains: how many there are, and of how many CPUs.
pub struct Lines<F: Fn(CpuId) -> Place> {
    /// How many CPUs there are.
    pub cpus: u32,
    /// Where they are.
    pub place: F,
}

impl<F: Fn(CpuId) -> Place> fmt::Display for Lines<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, level) in Level::ALL.into_iter().enumerate() {
            let name = match level {
                Level::Smt => "core",
                Level::Cache => "cache",
                Level::Node => "node",
                Level::Machine => "machine",
            };
            let near = |a: u32, b: u32| (self.place)(CpuId(a)).nearest((self.place)(CpuId(b))) <= level;
            let (mut domains, mut least, mut most) = (0, u32::MAX, 0);
            for cpu in 0..self.cpus {
                if (0..cpu).any(|before| near(before, cpu)) {
                    continue;
                }
                let size = (cpu..self.cpus).filter(|other| near(cpu, *other)).count() as u32;
                (domains, least, most) = (domains + 1, least.min(size), most.max(size));
            }
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "topology: {domains} x {name} of {least}")?;
            if most != least {
                write!(f, " to {most}")?;
            }
            f.write_str(if (least, most) == (1, 1) { " CPU" } else { " CPUs" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "topology_tests.rs"]
mod tests;
