//! Time: the tick, and threads that sleep until a time.
//!
//! # What it is
//! What each CPU's one timer interrupt is used for: the scheduler's tick, [`HZ`](sched_core::Config::HZ) times a second,
//! and [`sleep_until`], [`sleep_for`] and the deadlines of waits.
//!
//! # How it works
//! The timer is armed for the next tick or the first sleeper, whichever comes first.
//!
//! *The tick* lies on a grid of absolute times, staggered over the CPUs.
//! A tick that comes late does not move the next one, and ticks that were missed are not made up.
//! A tick that finds its CPU idle is the last one: the idle CPU is then woken for sleepers only. It begins again when the CPU
//! finds work, on the same grid.
//! So a CPU that is idle for less than a tick never touches its timer.
//!
//! *Sleepers* hang in a tree on the CPU on which they went to sleep, wherever they wake up.
//!
//! # Invariants
//! 1. `armed_ns` is when the timer will fire, and is not later than the next tick or the first sleeper.
//! 2. `armed_ns` and `next_tick_ns` are touched by their CPU only, with interrupts off.
//! 3. A sleeper is woken under the lock of the tree it was taken out of, and takes that lock once more before its sleep
//!    ends.
//!
//! # Cost
//! A tick: one lock, no division. A sleep: O(log n) twice, over the sleepers of one CPU.

use core::panic::Location;
use core::sync::atomic::{AtomicU64, Ordering};

use intrusive_collections::{KeyAdapter, RBTree, UnsafeRef};
use sched_core::{Config, IrqOff, SleepKind};

use crate::arch::percpu::{CpuLocal, cpu_index};
use crate::arch::{timer, tsc};
use crate::config::KernelConfig;
use crate::cpu_local;
use crate::lock::{IrqLock, irq_off};
use crate::sched::{self, scheduler};
use crate::smp;
use crate::thread::{self, CurrentThread, SleepAdapter, Thread};
use crate::wait::{self, Place};

/// Between two ticks.
const TICK_NS: u64 = KernelConfig::TICK_NANOS as u64;
/// No tick, or no timer, is set.
const NEVER: u64 = u64::MAX;

/// One CPU's timer.
struct CpuTimer {
    sleepers: IrqLock<RBTree<SleepAdapter>>,
    next_tick_ns: AtomicU64,
    armed_ns: AtomicU64,
}

static TIMERS: CpuLocal<CpuTimer> = cpu_local!(CpuTimer {
    sleepers: IrqLock::new(RBTree::new(SleepAdapter::NEW)),
    next_tick_ns: AtomicU64::new(NEVER),
    armed_ns: AtomicU64::new(NEVER),
});

impl<'a> KeyAdapter<'a> for SleepAdapter {
    type Key = u64;

    fn get_key(&self, thread: &'a Thread) -> u64 {
        thread.wake_at_ns()
    }
}

/// A wake-up that a CPU's timer owes the running thread.
#[derive(Debug)]
#[must_use = "an alarm is cancelled before its thread's wait ends"]
pub struct Alarm {
    cpu: usize,
}

/// Sleeps until the clock shows `ns`.
#[track_caller]
pub fn sleep_until(ns: u64) {
    sched::may_switch();
    let me = thread::current();
    wait::begin_alone(me, Place { what: "its time to come", at: Location::caller() });
    irq_off(|irq| {
        while tsc::now_ns() < ns {
            let alarm = set_alarm(irq, me, ns);
            let sleep = sched::prepare(irq, SleepKind::Interruptible);
            sched::block(irq, sleep);
            alarm.cancel(irq, me);
        }
    });
    wait::end_alone(&me);
}

/// Sleeps for at least `ns` nanoseconds.
#[track_caller]
pub fn sleep_for(ns: u64) {
    sleep_until(tsc::now_ns().saturating_add(ns));
}

/// The running thread is to be woken when the clock shows `at_ns`.
pub fn set_alarm(irq: &IrqOff, me: CurrentThread, at_ns: u64) -> Alarm {
    let here = TIMERS.here();
    me.set_wake_at_ns(at_ns);
    let mut sleepers = here.sleepers.lock(irq);
    // SAFETY: the thread stays alive and in place while it is among the sleepers: its alarm is cancelled before its wait
    // ends (thread I2).
    sleepers.insert(unsafe { UnsafeRef::from_raw(me.unsafe_ref().as_ptr()) });
    drop(sleepers);
    here.arm_by(at_ns);
    Alarm { cpu: cpu_index() }
}

impl Alarm {
    /// The thread does not want it any more, or has been woken by it.
    pub fn cancel(self, irq: &IrqOff, me: CurrentThread) {
        let mut sleepers = TIMERS.of(self.cpu).sleepers.lock(irq);
        if me.is_sleeper() {
            // SAFETY: a thread is among the sleepers of one CPU only (thread I2), and this is the CPU.
            let _ = unsafe { sleepers.cursor_mut_from_ptr(me.unsafe_ref().as_ptr()) }.remove();
        }
    }
}

/// Whether somebody sleeps on CPU `cpu`'s timer.
pub fn has_sleepers(irq: &IrqOff, cpu: usize) -> bool {
    !TIMERS.of(cpu).sleepers.lock(irq).is_empty()
}

/// This CPU's timer has fired.
pub fn interrupt(irq: &IrqOff) {
    let here = TIMERS.here();
    here.armed_ns.store(NEVER, Ordering::Relaxed);
    let now_ns = tsc::now_ns();
    let mut next_ns = here.tick(irq, now_ns);
    let mut sleepers = here.sleepers.lock(irq);
    loop {
        let first = sleepers.front_mut();
        match first.get().map(Thread::wake_at_ns) {
            Some(at_ns) if at_ns <= now_ns => here.wake_first(irq, first),
            Some(at_ns) => {
                next_ns = next_ns.min(at_ns);
                break;
            }
            None => break,
        }
    }
    drop(sleepers);
    here.arm_by(next_ns);
}

/// This CPU is about to leave its idle loop: its tick begins again.
pub fn leave_idle(_irq: &IrqOff) {
    let here = TIMERS.here();
    if here.next_tick_ns.load(Ordering::Relaxed) == NEVER {
        let next_ns = next_on_grid(tsc::now_ns());
        here.next_tick_ns.store(next_ns, Ordering::Relaxed);
        here.arm_by(next_ns);
    }
}

impl CpuTimer {
    /// Does the tick if it is due, and says when the next one is.
    fn tick(&self, irq: &IrqOff, now_ns: u64) -> u64 {
        let due_ns = self.next_tick_ns.load(Ordering::Relaxed);
        if now_ns < due_ns {
            return due_ns;
        }
        let next_ns = if scheduler().is_idle(irq) {
            NEVER
        } else {
            scheduler().tick(irq);
            let next_ns = due_ns + TICK_NS;
            if next_ns > now_ns { next_ns } else { next_on_grid(now_ns) }
        };
        self.next_tick_ns.store(next_ns, Ordering::Relaxed);
        next_ns
    }

    fn wake_first(&self, irq: &IrqOff, mut first: intrusive_collections::rbtree::CursorMut<'_, SleepAdapter>) {
        if let Some(thread) = first.remove() {
            sched::wake(irq, &thread);
        }
    }

    /// Arms the timer for `ns` unless it fires before that anyway (I1).
    #[inline]
    fn arm_by(&self, ns: u64) {
        if ns < self.armed_ns.load(Ordering::Relaxed) {
            self.armed_ns.store(ns, Ordering::Relaxed);
            timer::arm_at(ns);
        }
    }
}

/// The first tick of this CPU after `now_ns`.
fn next_on_grid(now_ns: u64) -> u64 {
    let offset_ns = TICK_NS * cpu_index() as u64 / smp::online() as u64;
    let whole = (now_ns + TICK_NS - offset_ns) / TICK_NS;
    whole * TICK_NS + offset_ns
}
