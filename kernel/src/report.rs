//! The end that nobody would notice.
//!
//! # What it is
//! The detector of "every thread is blocked and no timer is pending", and its report.
//!
//! # How it works
//! In this kernel a blocked thread is woken by a thread that runs or by a CPU's timer, and by nothing else.
//! So when all CPUs are idle and no timer has a sleeper, nothing will ever happen again.
//! The CPU that goes idle last looks whether that is so:
//! 1. every CPU's idle count is odd (it is in its idle loop); the counts are kept;
//! 2. no CPU's timer has a sleeper, each looked at under its lock;
//! 3. no CPU has a runnable thread;
//! 4. every idle count is still what it was.
//!
//! No false alarm is possible. By 1 and 4 no CPU ran a thread from before 2 until after 3, so no thread went to sleep with a
//! time meanwhile. A timer that was waking a sleeper did so under the lock that 2 took afterwards, so that
//! sleeper is queued by then, and 3 sees it. (A wake-up leaves a thread unqueued only while a CPU switches away from it;
//! an idle CPU has done so.)
//!
//! No deadlock is missed either: of the CPUs that go idle at the same time, the one whose count reaches the number of
//! CPUs looks, after all the others have counted.
//!
//! # Invariants
//! 1. A CPU's idle count is odd while it is in its idle loop with nothing to do, and even while it runs threads.
//! 2. One CPU reports.
//!
//! # Cost
//! Two counts per idle period; the look itself only when all CPUs are idle.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use sched_core::{IrqOff, TaskState};

use crate::arch::exit::{Verdict, exit};
use crate::arch::percpu::CpuLocal;
use crate::arch::tsc;
use crate::thread::{Daemon, Thread};
use crate::{cpu_local, println, sched, smp, thread, timer};

/// How often each CPU has entered and left its idle loop.
static PASSAGES: CpuLocal<AtomicU64> = cpu_local!(AtomicU64::new(0));
/// How many CPUs are idle.
static IDLE: AtomicUsize = AtomicUsize::new(0);
/// Some CPU reports already.
static REPORTING: AtomicBool = AtomicBool::new(false);

/// This CPU is about to halt; if it is the last one, looks whether that is the end.
pub fn enter_idle(irq: &IrqOff) {
    let passages = PASSAGES.here();
    passages.store(passages.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
    if IDLE.fetch_add(1, Ordering::SeqCst) + 1 == smp::online()
        && thread::unfinished() != 0
        && is_the_end(irq)
        && !REPORTING.swap(true, Ordering::Relaxed)
    {
        report(irq)
    }
}

/// This CPU has stopped halting.
pub fn leave_idle() {
    IDLE.fetch_sub(1, Ordering::SeqCst);
    let passages = PASSAGES.here();
    passages.store(passages.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
}

/// See the module's text.
fn is_the_end(irq: &IrqOff) -> bool {
    let cpus = smp::online();
    let sum = |is_idle: &mut bool| {
        (0..cpus).fold(0_u64, |sum, cpu| {
            let passages = PASSAGES.of(cpu).load(Ordering::SeqCst);
            *is_idle &= passages % 2 == 1;
            // Counts only grow, so an equal sum is an equal count on every CPU.
            sum + passages
        })
    };
    let mut all_idle = true;
    let before = sum(&mut all_idle);
    all_idle
        && (0..cpus).all(|cpu| !timer::has_sleepers(irq, cpu))
        && (0..cpus).all(|cpu| sched::nr_running(cpu) == 0)
        && sum(&mut all_idle) == before
}

/// Prints what everybody waits for and ends the run.
fn report(irq: &IrqOff) -> ! {
    println!(
        "deadlock: every thread is blocked and no timer is pending; {} threads have not finished:",
        thread::unfinished()
    );
    let now_ns = tsc::now_ns();
    let complete = thread::try_for_each(irq, |thread| println!("deadlock: {}", Line { thread, now_ns }));
    if !complete {
        println!("deadlock: the list of threads is in use");
    }
    println!("end status=failed reason=deadlock cpus={}", smp::online());
    exit(Verdict::Failed)
}

/// What one thread waits for.
struct Line<'a> {
    thread: &'a Thread,
    now_ns: u64,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread, now_ns } = *self;
        write!(f, "tid {} {} cpu {} ", thread.tid(), thread.name(), thread.cpu())?;
        if thread.daemon() == Daemon::Yes {
            f.write_str("(daemon) ")?;
        }
        match (thread.wait.read(), thread.sched().state()) {
            (Some((place, since_ns)), _) => {
                let us = now_ns.saturating_sub(since_ns) / 1000;
                write!(
                    f,
                    "waits for {} since {}.{:06} s ({}:{})",
                    place.what,
                    us / 1_000_000,
                    us % 1_000_000,
                    place.at.file(),
                    place.at.line()
                )
            }
            (None, TaskState::Dead) => f.write_str("has ended"),
            (None, state) => write!(f, "is {state:?} without saying why"),
        }
    }
}
