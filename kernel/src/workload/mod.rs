//! What the kernel runs.
//!
//! # What it is
//! The first thread's work: the workloads of the command line one after another, then the kernel's files, then the last line.
//!
//! # How it works
//! The list is read by [`kernel::plan`]; an entry that cannot be read counts as failed, and the others still run.
//! A workload returns what it measured, or why it failed; what is printed about it is made by [`kernel::figures`].
//!
//! # Invariants
//! 1. One workload's threads have all ended before the next begins.
//! 2. Every workload that runs prints one line for programs, whatever comes of it.
//!
//! # Cost
//! Nothing runs beside a workload but its own threads; the first thread sleeps meanwhile.

mod crew;
mod messaging;
mod pipe;
mod spin;

use alloc::string::{String, ToString};
use core::fmt;

use kernel::figures::{BenchLine, Decimal, Machine, Measured, Status, Summary, WatchLine};
use kernel::param::{Built, End, Settings};
use kernel::plan::{Work, works};
use kernel::rules::Asked;
use sched_core::Faults;

use crate::arch::exit::Verdict;
use crate::arch::irq;
use crate::lock::irq_off;
use crate::thread::SpawnError;
use crate::{console, files, println, sched};

/// Why a workload failed.
#[derive(Debug)]
enum Failure {
    /// It could need more memory than there is.
    Memory {
        /// How many bytes it could need.
        needed: u64,
        /// How many there are.
        free: u64,
    },
    /// A thread of it could not be made.
    Spawn(SpawnError),
    /// It ran for so many nanoseconds, and something was wrong.
    Fault(u64, String),
}

/// What a workload that did well has to say.
struct Report {
    measured: Measured,
    /// For `spin`: by how much the worst share is off.
    worst_share: Option<Decimal>,
}

/// The first thread's work, and the verdict of the run.
pub fn main(settings: &Settings<'_>, asked: &Asked, cmdline: &[u8]) -> Verdict {
    if let Some(milliseconds) = settings.watch {
        sched::scheduler().set_idle_bound(u64::from(milliseconds) * 1_000_000);
    }
    let mut summary = run(settings, cmdline);
    files::dump(settings, asked);
    if let Some(report) = sched::scheduler().watch_report() {
        println!("{}", WatchLine(report));
    }
    summary.faults = faults();
    println!("{summary}");
    if settings.end == End::Halt {
        console::flush();
        irq::halt_for_ever();
    }
    match summary.status() {
        Status::Ok => Verdict::Done,
        Status::Failed => Verdict::Failed,
    }
}

/// Runs the workloads.
fn run(settings: &Settings<'_>, cmdline: &[u8]) -> Summary {
    let build = Built::here().to_string();
    let machine = Machine { cpus: sched::cpus(), build: &build, cmdline };
    let mut summary = Summary { cpus: machine.cpus, ..Summary::default() };
    for work in works(settings.run, machine.cpus) {
        summary.workloads += 1;
        let status = match work {
            Ok(work) => one(&work, &machine),
            Err(refused) => {
                println!("{refused}");
                Status::Failed
            }
        };
        summary.failed += u64::from(status == Status::Failed);
    }
    summary
}

/// Says what the scheduler noticed of its own mistakes, and counts it.
fn faults() -> u64 {
    let mut count = 0;
    for cpu in sched::scheduler().online() {
        let faults = irq_off(|irq| sched::scheduler().faults(irq, cpu));
        if faults != Faults::default() {
            println!("scheduler: CPU {} noticed mistakes of its own, please report them: {faults:?}", cpu.0);
            count += faults.picks_without_eligible + faults.unfinished_switches + faults.pressure_inconsistencies;
        }
    }
    count
}

/// Runs one workload and prints its line for programs.
fn one(work: &Work, machine: &Machine<'_>) -> Status {
    println!();
    let result = match work {
        Work::Pipe(options) => pipe::run(options),
        Work::Messaging(options) => messaging::run(options),
        Work::Spin(options) => spin::run(options, machine.cpus),
    };
    let (measured, worst_share, status) = match result {
        Ok(Report { measured, worst_share }) => (measured, worst_share, Status::Ok),
        Err(failure) => {
            println!("{}: failed: {failure}", work.name());
            // Of what went wrong no operation counts.
            (Measured { nanos: failure.nanos(), ops: 0 }, None, Status::Failed)
        }
    };
    println!("{}", BenchLine { work, machine, measured, worst_share, status });
    status
}

impl Failure {
    /// For how long the workload ran.
    fn nanos(&self) -> u64 {
        match self {
            Self::Fault(nanos, _) => *nanos,
            Self::Memory { .. } | Self::Spawn(_) => 0,
        }
    }
}

impl From<SpawnError> for Failure {
    fn from(error: SpawnError) -> Self {
        Self::Spawn(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { needed, free } => {
                write!(f, "it could need {} MiB, {} MiB are free", needed.div_ceil(1 << 20), free >> 20)
            }
            Self::Spawn(error) => error.fmt(f),
            Self::Fault(_, what) => f.write_str(what),
        }
    }
}
