//! The figures of a workload, for people and for programs.
//!
//! # What it is
//! What the workloads print: the shapes of `perf bench sched`, the shares of `spin`, and the `bench` line.
//!
//! # How it works
//! Everything is computed from whole nanoseconds and counts in 128-bit integers.
//! Quotients are rounded to the nearest at the last digit that is printed, except where the tool being followed cuts them.
//!
//! # Invariants
//! 1. Nothing overflows and nothing is divided by zero: a quotient by zero prints as zero.
//! 2. The fields of a workload's `bench` line keep their order.
//!
//! # Cost
//! A few divisions a line.

use alloc::format;
use core::fmt;

use sched_core::{Nice, Policy, TaskParams, WatchReport};

use crate::plan::{Messaging, Pipe, Spin, Work, policy_name};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A decimal number: `units` of the last of `decimals` places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    units: u128,
    decimals: u32,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// How long it took.
    pub nanos: u64,
    /// How many operations were done in that time.
    pub ops: u64,
}

/// What every `bench` line says about the machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// How many CPUs run.
    pub cpus: usize,
    /// What is compiled in, as `--build` takes it.
    pub build: &'a str,
    /// The command line as it was given.
    pub cmdline: &'a [u8],
}

/// How a workload went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All was as it should be.
    Ok,
    /// Something was not.
    Failed,
}

/// The line for programs.
pub struct BenchLine<'a> {
    /// What ran.
    pub work: &'a Work,
    /// On what.
    pub machine: &'a Machine<'a>,
    /// What came of it.
    pub measured: Measured,
    /// For `spin`: by how much the worst share is off, in percent of what it should be.
    pub worst_share: Option<Decimal>,
    /// How it went.
    pub status: Status,
}

/// The last line of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many workloads were asked for.
    pub workloads: u64,
    /// How many of them failed.
    pub failed: u64,
    /// How many CPUs ran.
    pub cpus: usize,
    /// How many mistakes of its own the scheduler noticed. Each has a line of its own; any makes the run a failure.
    pub faults: u64,
}

/// What the watch over idle CPUs has seen, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchLine(pub WatchReport);

/// What one thread of `spin` got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpinTask {
    /// Its nice value.
    pub nice: Nice,
    /// Its policy.
    pub policy: Policy,
    /// How long it ran.
    pub cpu_nanos: u64,
}

/// What the threads of `spin` got.
pub struct SpinTable<'a> {
    /// What was asked for.
    pub spin: &'a Spin,
    /// How long it took.
    pub nanos: u64,
    /// Whether all had to share one CPU.
    pub sharing: Sharing,
    /// The threads, in order.
    pub tasks: &'a [SpinTask],
}

/// Whether threads had to share one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All ran on one: each should get its share by weight.
    OneCpu,
    /// They ran on several, where shares depend on who is where.
    Several,
}

impl Decimal {
    /// `numerator / denominator` to so many places, rounded to the nearest; zero for a denominator of zero.
    pub fn quotient(numerator: u128, denominator: u128, decimals: u32) -> Self {
        let scaled = numerator.saturating_mul(10_u128.saturating_pow(decimals));
        let units = scaled.saturating_add(denominator / 2).checked_div(denominator).unwrap_or(0);
        Self { units, decimals }
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scale = 10_u128.saturating_pow(self.decimals);
        let (whole, part) = (self.units / scale, self.units % scale);
        match self.decimals {
            0 => f.pad(&format!("{whole}")),
            places => f.pad(&format!("{whole}.{part:0places$}", places = places as usize)),
        }
    }
}

impl Measured {
    fn seconds(self) -> Decimal {
        Decimal { units: self.nanos.into(), decimals: 9 }
    }

    fn ops_per_second(self, decimals: u32) -> Decimal {
        Decimal::quotient(u128::from(self.ops) * NANOS_PER_SECOND, self.nanos.into(), decimals)
    }

    fn usecs_per_op(self) -> Decimal {
        Decimal::quotient(self.nanos.into(), u128::from(self.ops) * 1_000, 6)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
        })
    }
}

impl fmt::Display for BenchLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { work, machine, measured, status, .. } = self;
        write!(f, "bench {work} smp={} build={} cmdline=", machine.cpus, machine.build)?;
        Quoted(machine.cmdline).fmt(f)?;
        write!(f, " clock=tsc seconds={} ops={}", measured.seconds(), measured.ops)?;
        write!(f, " ops_per_s={} usecs_per_op={}", measured.ops_per_second(1), measured.usecs_per_op())?;
        if let Some(worst) = self.worst_share {
            write!(f, " worst_share_percent={worst}")?;
        }
        write!(f, " status={status}")
    }
}

impl Summary {
    /// How the run went.
    pub fn status(&self) -> Status {
        if self.failed == 0 && self.faults == 0 { Status::Ok } else { Status::Failed }
    }
}

impl fmt::Display for WatchLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(report) = self;
        let milliseconds = |nanos: u64| Decimal::quotient(u128::from(nanos), 1_000_000, 3);
        write!(f, "watch bound_ms={} violations={}", report.bound / 1_000_000, report.violations)?;
        match report.worst {
            None => f.write_str(" worst_ms=0.000"),
            Some(worst) => write!(
                f,
                " worst_ms={} idle_cpu={} waits_on_cpu={}",
                milliseconds(worst.nanos),
                worst.idle.0,
                worst.waits_on.0
            ),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workloads, failed, cpus, faults: _ } = self;
        write!(f, "end status={} workloads={workloads} failed={failed} cpus={cpus}", self.status())
    }
}

impl SpinTable<'_> {
    /// What a thread weighs.
    fn weight(task: &SpinTask) -> u128 {
        let params = TaskParams { nice: task.nice, policy: task.policy, slice: None };
        params.weight().get().into()
    }

    /// By how much the worst share is off, in percent of what it should be; none where shares are not due by weight.
    pub fn worst_share(&self) -> Option<Decimal> {
        if self.sharing == Sharing::Several {
            return None;
        }
        let all_nanos: u128 = self.tasks.iter().map(|task| u128::from(task.cpu_nanos)).sum();
        let all_weight: u128 = self.tasks.iter().map(Self::weight).sum();
        let off = self.tasks.iter().map(|task| {
            // |share - due| / due with share = nanos / all_nanos and due = weight / all_weight, over a common denominator.
            let share = u128::from(task.cpu_nanos) * all_weight;
            let due = Self::weight(task) * all_nanos;
            Decimal::quotient(share.abs_diff(due).saturating_mul(100), due, 3)
        });
        off.max_by_key(|off| off.units)
    }
}

impl fmt::Display for SpinTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Running 'spin' workload:")?;
        write!(
            f,
            "# {} threads for {} s, ",
            self.tasks.len(),
            Decimal::quotient(self.nanos.into(), NANOS_PER_SECOND, 3)
        )?;
        match self.spin.cpu {
            Some(cpu) => writeln!(f, "all on CPU {}", cpu.0)?,
            None => writeln!(f, "on any CPU")?,
        }
        writeln!(f, "# share: of the CPU time all of them got; due: what their weights say, where they share one CPU")?;
        writeln!(f)?;
        writeln!(
            f,
            "{:<15} {:>4} {:<6} {:>14} {:>10} {:>10}",
            "task", "nice", "policy", "cpu [ms]", "share [%]", "due [%]"
        )?;
        let all_nanos: u128 = self.tasks.iter().map(|task| u128::from(task.cpu_nanos)).sum();
        let all_weight: u128 = self.tasks.iter().map(Self::weight).sum();
        for (number, task) in self.tasks.iter().enumerate() {
            let cpu_ms = Decimal { units: task.cpu_nanos.into(), decimals: 6 };
            let share = Decimal::quotient(u128::from(task.cpu_nanos) * 100, all_nanos, 4);
            let (name, policy) = (format!("spin-{number}"), policy_name(task.policy));
            write!(f, "{name:<15} {:>4} {policy:<6} {cpu_ms:>14} {share:>10}", task.nice.get())?;
            match self.sharing {
                Sharing::OneCpu => writeln!(f, " {:>10}", Decimal::quotient(Self::weight(task) * 100, all_weight, 4))?,
                Sharing::Several => writeln!(f, " {:>10}", "-")?,
            }
        }
        Ok(())
    }
}

/// What `perf bench sched pipe -T` prints.
pub fn pipe_text(pipe: &Pipe, measured: Measured) -> impl fmt::Display + use<> {
    let ops_per_second = Decimal {
        units: (u128::from(measured.ops) * NANOS_PER_SECOND).checked_div(measured.nanos.into()).unwrap_or(0),
        decimals: 0,
    };
    format!(
        "# Running 'sched/pipe' benchmark:\n# Executed {} pipe operations between two threads\n\n{}\n\n {:>14} usecs/op\n {:>14} ops/sec\n",
        pipe.loops,
        total_time(measured),
        measured.usecs_per_op(),
        ops_per_second,
    )
}

/// What `perf bench sched messaging -t` prints, with `-p` for pipes.
pub fn messaging_text(messaging: &Messaging, measured: Measured) -> impl fmt::Display + use<> {
    format!(
        "# Running 'sched/messaging' benchmark:\n# {} sender and receiver threads per group\n# {} groups == {} threads run\n\n{}\n",
        messaging.fds,
        messaging.groups,
        messaging.threads(),
        total_time(measured),
    )
}

/// The line both have: seconds, cut after the milliseconds.
fn total_time(measured: Measured) -> impl fmt::Display + use<> {
    let millis = Decimal { units: u128::from(measured.nanos) / 1_000_000, decimals: 3 };
    format!(" {:>14}: {millis} [sec]", "Total time")
}

/// Bytes in double quotes; what would end them, and what cannot be printed, as an escape.
struct Quoted<'a>(&'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for &byte in self.0 {
            match byte {
                b'"' | b'\\' => write!(f, "\\x{byte:02x}")?,
                b' '..=b'~' => write!(f, "{}", char::from(byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        f.write_str("\"")
    }
}

#[cfg(test)]
#[path = "figures_tests.rs"]
mod tests;
