//! # What it is
//! The texts of `/proc/schedstat` and `/proc/<pid>/schedstat`.
//!
//! # How it works
//! `/proc/schedstat` starts with the version of its layout and the time in ticks.
//! Then each CPU has a line of nine numbers; the second is a zero that once was a counter.
//!
//! # Invariants
//! 1. Event counters are those of a 32-bit counter that wraps, because readers subtract them that way.
//!    Times and numbers of runs are 64 bits wide.
//!
//! # Cost
//! That of formatting.

use core::fmt::{self, Write};

use crate::{
    platform::CpuId,
    stats::schedstat::{CpuStats, TaskStats},
};

/// The layout of `/proc/schedstat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// As Linux has it since 6.14.
    V17 = 17,
}

/// Writes `/proc/schedstat`: the head, and a line for each of `cpus`.
///
/// `jiffies` is the time in ticks, as [`jiffies`](super::jiffies) counts.
///
/// ```
/// use sched_core::{CpuId, CpuStats, text::schedstat};
///
/// let cpu = CpuStats { yld_count: 3, sched_count: 812, sched_goidle: 97, rq_cpu_time: 51_200_345, ..CpuStats::default() };
/// let mut text = String::new();
/// schedstat::write(&mut text, schedstat::Version::V17, 4_294_901_234, [(CpuId(0), cpu)])?;
/// assert_eq!(text, "version 17\ntimestamp 4294901234\ncpu0 3 0 812 97 0 0 51200345 0 0\n");
/// # Ok::<(), core::fmt::Error>(())
/// ```
///
/// # Errors
/// Those of the writer.
pub fn write(
    w: &mut (impl Write + ?Sized),
    version: Version,
    jiffies: u64,
    cpus: impl IntoIterator<Item = (CpuId, CpuStats)>,
) -> fmt::Result {
    writeln!(w, "version {}", version as u32)?;
    writeln!(w, "timestamp {jiffies}")?;
    for (CpuId(number), stats) in cpus {
        writeln!(
            w,
            "cpu{number} {} 0 {} {} {} {} {} {} {}",
            stats.yld_count as u32,
            stats.sched_count as u32,
            stats.sched_goidle as u32,
            stats.ttwu_count as u32,
            stats.ttwu_local as u32,
            stats.rq_cpu_time,
            stats.run_delay,
            stats.pcount,
        )?;
    }
    Ok(())
}

/// Writes `/proc/<pid>/schedstat`: run time, run delay, and how often the task was switched to.
///
/// # Errors
/// Those of the writer.
pub fn write_task(w: &mut (impl Write + ?Sized), stats: &TaskStats) -> fmt::Result {
    let TaskStats { sum_exec_runtime, run_delay, pcount } = stats;
    writeln!(w, "{sum_exec_runtime} {run_delay} {pcount}")
}
