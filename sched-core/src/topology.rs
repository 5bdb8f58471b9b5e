//! # What it is
//! What CPUs share: [`Place`] says it of one CPU, [`Level`] names the scheduling domains that follow from it.
//!
//! # How it works
//! The embedder numbers the cores, the last-level caches and the memory nodes of its machine, and says of each CPU
//! which of them it belongs to. Two CPUs are in one domain of a level if that number is the same, and all CPUs are in one machine.
//! A CPU's queue keeps the set of CPUs of each of its domains ([`Domains`]), so that walking one costs a step a member.
//!
//! # Invariants
//! 1. Domains of one level do not overlap.
//! 2. A domain contains those below it: who shares a core shares its cache and its node, whatever was said.
//!
//! # Cost
//! Built once, one step for each pair of CPUs; read by words.

use crate::{mask::CpuMask, platform::CpuId};

/// What a CPU belongs to: numbers that are the same for two CPUs if they share it.
///
/// Machine-wide: core 0 of one package and core 0 of another have different numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The core, whose hardware threads share its execution units.
    pub core: u32,
    /// The last-level cache.
    pub cache: u32,
    /// The memory node.
    pub node: u32,
}

/// A level of scheduling domains, from the nearest to the farthest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The hardware threads of one core.
    Smt,
    /// The CPUs behind one last-level cache.
    Cache,
    /// The CPUs of one memory node.
    Node,
    /// All CPUs.
    Machine,
}

impl Level {
    /// All levels, from the nearest to the farthest.
    pub const ALL: [Self; 4] = [Self::Smt, Self::Cache, Self::Node, Self::Machine];
}

impl Place {
    /// Where CPU number `cpu` is in a machine of which nothing is known: a core of its own, and one cache and node for all.
    pub const fn unknown(cpu: CpuId) -> Self {
        Self { core: cpu.0, cache: 0, node: 0 }
    }

    /// The nearest level at which CPUs at `self` and `other` are in one domain.
    pub const fn nearest(self, other: Self) -> Level {
        if self.node != other.node {
            Level::Machine
        } else if self.cache != other.cache {
            Level::Node
        } else if self.core != other.core {
            Level::Cache
        } else {
            Level::Smt
        }
    }
}

/// The domains of one CPU below the machine, as sets.
pub(crate) struct Domains<M: CpuMask> {
    spans: [M; 3],
}

impl<M: CpuMask> Domains<M> {
    /// Those of any CPU of a machine of which nothing is known: one cache and one node for all.
    pub(crate) const UNKNOWN: Self = Self { spans: [M::EMPTY, M::ALL, M::ALL] };

    /// Those of `cpu` in a machine of `cpus` CPUs.
    pub(crate) fn new(cpu: CpuId, cpus: u32, place: impl Fn(CpuId) -> Place) -> Self {
        let here = place(cpu);
        let span = |level| {
            let near = (0..cpus).map(CpuId).filter(|other| here.nearest(place(*other)) <= level);
            near.fold(M::EMPTY, M::with)
        };
        Self { spans: [span(Level::Smt), span(Level::Cache), span(Level::Node)] }
    }

    /// The CPUs from `64 * at` on that are in the domain of `level`, as bits.
    #[inline(always)]
    pub(crate) fn word(&self, level: Level, at: usize) -> u64 {
        self.spans.get(level as usize).map_or(u64::MAX, |span| span.word(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::Mask64;

    #[test]
    fn what_is_shared_says_how_near_two_cpus_are() {
        let place = |core, cache, node| Place { core, cache, node };
        let here = place(1, 2, 3);
        assert_eq!(here.nearest(place(1, 2, 3)), Level::Smt);
        assert_eq!(here.nearest(place(9, 2, 3)), Level::Cache);
        assert_eq!(here.nearest(place(9, 9, 3)), Level::Node);
        assert_eq!(here.nearest(place(9, 9, 9)), Level::Machine);
        assert_eq!(here.nearest(place(1, 2, 9)), Level::Machine, "a core does not reach across nodes");
    }

    #[test]
    fn domains_contain_those_below_them_and_do_not_overlap() {
        // Two nodes of two caches of two cores of two threads, the threads numbered as firmware likes to.
        let place = |cpu: CpuId| Place { core: cpu.0 % 8, cache: cpu.0 % 8 / 2, node: cpu.0 % 8 / 4 };
        let words = |cpu, level| Domains::<Mask64>::new(CpuId(cpu), 16, place).word(level, 0);
        assert_eq!(words(1, Level::Smt), 0b10_0000_0010);
        assert_eq!(words(1, Level::Cache), 0b11_0000_0011);
        assert_eq!(words(1, Level::Node), 0xf0f);
        assert_eq!(words(1, Level::Machine), u64::MAX);
        for cpu in 0..16 {
            for (near, far) in Level::ALL.into_iter().zip(Level::ALL.into_iter().skip(1)) {
                assert_eq!(words(cpu, near) & !words(cpu, far), 0);
            }
            for other in 0..16 {
                let (here, there) = (words(cpu, Level::Node), words(other, Level::Node));
                assert!(here == there || here & there == 0);
            }
        }
    }
}
