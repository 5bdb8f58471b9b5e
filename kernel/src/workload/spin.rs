//! Threads that use all the CPU they get: `spin`.
//!
//! # What it is
//! How much CPU each of some threads gets, against what it weighs.
//!
//! # How it works
//! The first thread leads. For the length of the workload it has the highest weight and, if the others are pinned, is
//! pinned to the same CPU.
//! With preemption off it opens the start line and reads what everybody has run so far; it sleeps until the time is
//! over; with preemption off it reads again. On one CPU nobody else runs while it reads, so all shares are taken over
//! exactly the same interval. On several CPUs the others go on while it reads.
//!
//! # Invariants
//! 1. The leader is asleep between the two readings.
//!
//! # Cost
//! A read of an atomic and a write of a counter of their own every [`STEPS`] steps of the threads' loop.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kernel::figures::{Measured, Sharing, SpinTable, SpinTask};
use kernel::plan::Spin;
use sched_core::{Mask256, Nice, TaskParams};

use super::crew::{Crew, check_memory};
use super::{Failure, Report};
use crate::arch::tsc;
use crate::thread::{self, SpawnOptions};
use crate::{println, sched, timer};

/// Steps of the loop that count as one operation.
const STEPS: u32 = 1_000;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// What everybody had run at one moment.
struct Reading {
    at_ns: u64,
    cpu_nanos: Vec<u64>,
    passes: u64,
}

/// Runs the workload on a machine of so many CPUs.
pub fn run(options: &Spin, cpus: usize) -> Result<Report, Failure> {
    check_memory(options.tasks, 0)?;
    let affinity = options.cpu.map_or(Mask256::ALL, Mask256::only);
    let stop = Arc::new(AtomicBool::new(false));
    let mut counters = Vec::with_capacity(options.tasks);
    let mut crew = Crew::new(options.tasks);
    for number in 0..options.tasks {
        let (nice, policy) = options.parameters(number);
        let params = TaskParams { nice, policy, slice: options.slice };
        let name = format!("spin-{number}");
        let passes = Arc::new(AtomicU64::new(0));
        counters.push(passes.clone());
        let stop = stop.clone();
        crew.add(SpawnOptions { name: &name, params, affinity, ..SpawnOptions::default() }, move || {
            while !stop.load(Ordering::Relaxed) {
                (0..STEPS).for_each(|step| _ = black_box(step));
                passes.store(passes.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
        })?;
    }

    let me = thread::current();
    let (my_params, my_affinity) = (me.params(), me.sched().affinity());
    crew.wait_ready();
    // Neither can fail: the first thread is a fair one, and a workload's CPU is one that runs.
    let _ = thread::set_affinity(&me, affinity);
    let _ = thread::set_params(&me, TaskParams { nice: Nice::MIN, ..my_params });
    let (first, last) = (Reading::room(options.tasks), Reading::room(options.tasks));
    sched::preempt_disable();
    crew.open();
    let first = first.take(&crew, &counters);
    sched::preempt_enable();
    timer::sleep_until(first.at_ns + options.ms * NANOS_PER_MILLI);
    sched::preempt_disable();
    let last = last.take(&crew, &counters);
    sched::preempt_enable();
    stop.store(true, Ordering::Relaxed);
    crew.join();
    let _ = thread::set_params(&me, my_params);
    let _ = thread::set_affinity(&me, my_affinity);

    report(options, cpus, &first, &last)
}

/// Prints what came of it.
fn report(options: &Spin, cpus: usize, first: &Reading, last: &Reading) -> Result<Report, Failure> {
    let measured = Measured { nanos: last.at_ns - first.at_ns, ops: last.passes - first.passes };
    let ran = last.cpu_nanos.iter().zip(&first.cpu_nanos).map(|(last, first)| last.saturating_sub(*first));
    let tasks: Vec<_> = ran
        .enumerate()
        .map(|(number, cpu_nanos)| {
            let (nice, policy) = options.parameters(number);
            SpinTask { nice, policy, cpu_nanos }
        })
        .collect();
    if tasks.iter().all(|task| task.cpu_nanos == 0) {
        return Err(Failure::Fault(measured.nanos, String::from("no thread got any CPU time")));
    }
    let sharing = if options.cpu.is_some() || cpus == 1 { Sharing::OneCpu } else { Sharing::Several };
    let table = SpinTable { spin: options, nanos: measured.nanos, sharing, tasks: &tasks };
    // A line at a time: the console keeps interrupts off while it prints.
    for line in format!("{table}").lines() {
        println!("{line}");
    }
    Ok(Report { measured, worst_share: table.worst_share() })
}

impl Reading {
    /// Room for so many threads, so that taking the reading allocates nothing.
    fn room(tasks: usize) -> Self {
        Self { at_ns: 0, cpu_nanos: Vec::with_capacity(tasks), passes: 0 }
    }

    fn take(mut self, crew: &Crew, passes: &[Arc<AtomicU64>]) -> Self {
        self.at_ns = tsc::now_ns();
        self.cpu_nanos.extend(crew.threads().iter().map(|handle| thread::stats(handle.thread()).sum_exec_runtime));
        self.passes = passes.iter().map(|passes| passes.load(Ordering::Relaxed)).sum();
        self
    }
}
