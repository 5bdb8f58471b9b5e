//! What the simulated machine is built of, in a few words.
//!
//! # What it is
//! [`Topology`]: how many hardware threads share a core, how many CPUs a cache, how many a node.
//!
//! # How it works
//! CPUs are numbered core by core: 0 and 1 are the threads of the first core where a core has two.
//!
//! # Invariants
//! 1. Who shares a core shares a cache, and who shares a cache shares a node.
//!
//! # Cost
//! None.

use sched_core::{CpuId, Place};
use serde::Deserialize;

/// What CPUs share. 0: the level is the whole machine.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Topology {
    /// Hardware threads of a core; 0 or 1: a core has one.
    pub threads: u32,
    /// CPUs behind one cache.
    pub cache: u32,
    /// CPUs of one node.
    pub node: u32,
}

impl Topology {
    /// Where a CPU is.
    pub fn place(self, cpu: CpuId) -> Place {
        let part = |of: u32| cpu.0.checked_div(of).unwrap_or(0);
        Place { core: cpu.0 / self.threads.max(1), cache: part(self.cache), node: part(self.node) }
    }

    /// What is wrong with it, if anything.
    pub fn check(self) -> Result<(), String> {
        let fits = |small: u32, large: u32| large == 0 || large.is_multiple_of(small.max(1));
        if fits(self.threads, self.cache) && fits(self.cache.max(self.threads), self.node) {
            Ok(())
        } else {
            Err("topology: a cache must hold whole cores, and a node whole caches".into())
        }
    }
}
