//! Self-tests of timers and clocks.
//!
//! # What it is
//! Timers that must not be early, and clocks that must not go back.
//!
//! # How it works
//! Every CPU takes part, called by an interrupt; a counter says how many are done.
//!
//! # Invariants
//! 1. A timer that comes before its time as the clock counts, or a clock that shows less than another CPU has seen before,
//!    fails the run.
//!
//! # Cost
//! None unless asked for.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{EXITS, REACHED, tell_cpu, wait_for};
use crate::arch::percpu::CpuLocal;
use crate::arch::{irq, timer, tsc};
use crate::{cpu_local, println, smp};

/// How often each CPU's timer expires.
const EXPIRIES: u64 = 10;
/// How long it is armed for.
const ARMED_NS: u64 = 3_000_000;

struct TimerTest {
    due_ns: AtomicU64,
    left: AtomicU64,
    early: AtomicU64,
    latest_ns: AtomicU64,
}

static TIMERS: CpuLocal<TimerTest> = cpu_local!(TimerTest {
    due_ns: AtomicU64::new(0),
    left: AtomicU64::new(0),
    early: AtomicU64::new(0),
    latest_ns: AtomicU64::new(0),
});

fn arm_next() {
    let due_ns = tsc::now_ns() + ARMED_NS;
    TIMERS.here().due_ns.store(due_ns, Ordering::Relaxed);
    timer::arm_at(due_ns);
}

/// The timer's hook.
pub(super) fn expired() {
    let test = TIMERS.here();
    let (now_ns, due_ns) = (tsc::now_ns(), test.due_ns.load(Ordering::Relaxed));
    if now_ns < due_ns {
        test.early.fetch_add(1, Ordering::Relaxed);
    }
    test.latest_ns.fetch_max(now_ns.saturating_sub(due_ns), Ordering::Relaxed);
    if test.left.fetch_sub(1, Ordering::Relaxed) > 1 {
        arm_next();
    } else {
        REACHED.fetch_add(1, Ordering::Release);
    }
}

pub(super) fn timers() -> Result<(), &'static str> {
    let start = || {
        TIMERS.here().left.store(EXPIRIES, Ordering::Relaxed);
        arm_next();
    };
    for cpu in 1..smp::online() {
        let before = EXITS.of(cpu).load(Ordering::Relaxed);
        tell_cpu(cpu, start);
        while EXITS.of(cpu).load(Ordering::Relaxed) == before {
            spin_loop();
        }
    }
    irq::without(start);
    irq::enable();
    wait_for(&REACHED, smp::online());
    irq::disable();
    let all = (0..smp::online()).map(|cpu| TIMERS.of(cpu));
    let early: u64 = all.clone().map(|test| test.early.load(Ordering::Relaxed)).sum();
    let latest_ns = all.map(|test| test.latest_ns.load(Ordering::Relaxed)).max();
    println!("selftest: {early} early, latest {} ns after it was due", latest_ns.unwrap_or(0));
    if early == 0 { Ok(()) } else { Err("a timer was early") }
}

/// How often each CPU compares its clock with the newest time seen anywhere.
const COMPARISONS: u64 = 20_000;

static NEWEST_NS: AtomicU64 = AtomicU64::new(0);
static BACKWARD_NS: AtomicU64 = AtomicU64::new(0);

fn compare_clocks() {
    for _ in 0..COMPARISONS {
        let seen_ns = NEWEST_NS.load(Ordering::Acquire);
        let now_ns = tsc::now_ns();
        BACKWARD_NS.fetch_max(seen_ns.saturating_sub(now_ns), Ordering::Relaxed);
        NEWEST_NS.fetch_max(now_ns, Ordering::Release);
    }
    REACHED.fetch_add(1, Ordering::Release);
}

pub(super) fn clocks() -> Result<(), &'static str> {
    for cpu in 1..smp::online() {
        tell_cpu(cpu, compare_clocks);
    }
    compare_clocks();
    wait_for(&REACHED, smp::online());
    println!("selftest: the clock went back by {} ns at most", BACKWARD_NS.load(Ordering::Relaxed));
    if BACKWARD_NS.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err("the clock went back") }
}
