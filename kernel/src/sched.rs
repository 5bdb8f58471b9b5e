//! The kernel's one scheduler, and what carries its decisions out.
//!
//! # What it is
//! The glue between `sched-core`, which decides, and the machine, which acts: context switches, preemption, the hooks of the
//! interrupt paths, the idle loop.
//!
//! # How it works
//! Every switch is [`reschedule`]: ask the scheduler, exchange the stacks, and first thing on the other side release
//! who was left; a thread that was left for good goes back to where it came from there.
//! A release may make somebody preempt the new thread, so the request is looked at again before going on.
//!
//! *Preemption* happens where a request is pending and nobody objects: on the way out of an interrupt, when
//! [`preempt_enable`] takes the last objection away, and after a wake-up ([`preempt_here`]).
//!
//! *Idle* is a CPU's boot context. It keeps interrupts off, looks at the request, and halts by `sti; hlt`, so a kick
//! that comes after the look ends the halt. While it halts it objects to preemption: it switches in its loop only,
//! where it also starts the tick again.
//!
//! # Invariants
//! 1. The scheduler is called with interrupts off only; the token says so ([`irq_off`]).
//! 2. A context switch happens with no lock held, no objection to preemption counted, and outside of interrupt handlers
//!    (their way out is outside). So the count is 0 on both sides and need not be saved.
//! 3. The current thread of [`percpu`] and the scheduler's are the same whenever interrupts are on.
//! 4. A dead thread is given up after the switch away from it, on another stack.
//!
//! # Cost
//! A switch: the decision, 15 instructions of exchange, the release. The way out of an interrupt: four loads.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use kernel::rules::{Asked, Shown};
use kernel::topology::{Lines, Shifts};
use sched_core::{
    Algorithm, CpuId, CpuQueue, Decision, Gates, IrqOff, Reason, Scheduler, Sleep, SleepKind, Tunables, Woken,
};
use spin::Once;

use crate::arch::exit::{Verdict, exit};
use crate::arch::hooks::{self, Hooks};
use crate::arch::{apic, irq, kick, percpu, switch, tsc};
use crate::config::{KernelConfig, Machine};
use crate::lock::irq_off;
use crate::thread::{self, SpawnOptions, Thread};
use crate::wait::WaitQueue;
use crate::{panic, println, report, smp, timer};

/// The scheduler of all CPUs.
static SCHEDULER: Once<Scheduler<'static, KernelConfig>> = Once::new();
/// How many CPUs have come online.
static READY: AtomicUsize = AtomicUsize::new(0);
/// Where the first thread waits for all CPUs.
static ALL_READY: WaitQueue = WaitQueue::new();

/// For how long an idle CPU looks for something to do before it halts.
static IDLE_POLL_NS: AtomicU64 = AtomicU64::new(0);
static HOOKS: Hooks = Hooks {
    timer: || irq_off(timer::interrupt),
    // The request is looked at on the way out.
    reschedule: || {},
    // Nobody calls yet.
    call: || {},
    irq_exit,
};

/// Sets the scheduler up, as `algorithm` with the features `asked` for, over the CPUs that are up, and runs `main` in the first thread once all of them take part.
///
/// What `main` returns is the verdict of the run. Called once, on the boot CPU, whose context becomes its idle thread.
pub fn start(
    algorithm: Algorithm,
    gates: Gates<KernelConfig>,
    asked: Asked,
    idle_poll_us: u32,
    main: impl FnOnce() -> Verdict + Send + 'static,
) -> ! {
    let cpus = smp::online();
    let tunables = Tunables::for_cpus(cpus as u32).with(algorithm);
    println!("sched: {}", Shown(tunables));
    let shifts = Shifts::read(&raw_cpuid::CpuId::new());
    let place = |cpu: CpuId| shifts.place(apic::id_of(cpu.index()));
    println!("{}", Lines { cpus: cpus as u32, place });
    let queues: Vec<CpuQueue<KernelConfig>> =
        (0..cpus as u32).map(|cpu| CpuQueue::placed(&tunables, CpuId(cpu), cpus as u32, place)).collect();
    IDLE_POLL_NS.store(u64::from(idle_poll_us) * 1000, Ordering::Relaxed);
    match Scheduler::new(Box::leak(queues.into_boxed_slice()), Machine, gates) {
        Ok(scheduler) => {
            irq_off(|irq| change_features(irq, &scheduler, &asked));
            SCHEDULER.call_once(|| scheduler)
        }
        Err(error) => panic!("no scheduler: {error}"),
    };
    hooks::register(&HOOKS);
    panic::set_task_name(thread::name_on);
    bring_online();
    let first = thread::spawn(SpawnOptions { name: "main", ..SpawnOptions::default() }, move || {
        ALL_READY.wait_until("CPUs to come online", SleepKind::Uninterruptible, || {
            (READY.load(Ordering::Acquire) == cpus).then_some(())
        });
        exit(main())
    });
    if let Err(error) = first {
        panic!("no first thread: {error}");
    }
    for cpu in 1..cpus {
        apic::send_reschedule(cpu);
    }
    idle()
}

/// Before anybody runs, so that every decision is made by the same rules.
fn change_features(irq: &IrqOff, scheduler: &Scheduler<'static, KernelConfig>, asked: &Asked) {
    for (feature, on) in asked.changes() {
        if let Err(error) = scheduler.set_feature(irq, feature, on) {
            // The command line's reader leaves the parameter out where features are constants.
            panic!("the feature {} cannot be changed: {error}", feature.name());
        }
    }
}

/// Where the other CPUs come from their start: waits for the scheduler and takes part.
pub fn other_cpu(_cpu: usize) -> ! {
    // Interrupts are off but for the halt, in which nothing may preempt what is no thread yet.
    percpu::preempt_disable();
    while SCHEDULER.get().is_none() {
        irq::enable_and_halt();
        irq::disable();
    }
    // The idle loop looks for requests itself.
    let _ = percpu::preempt_enable();
    bring_online();
    idle()
}

/// The scheduler.
///
/// # Panics
/// Before [`start`] made it.
#[inline(always)]
pub fn scheduler() -> &'static Scheduler<'static, KernelConfig> {
    match SCHEDULER.get() {
        Some(scheduler) => scheduler,
        None => no_scheduler(),
    }
}

/// How many CPUs take part.
pub fn cpus() -> usize {
    scheduler().online().count()
}

/// Adds an objection to preemption of this CPU; they nest.
#[inline]
pub fn preempt_disable() {
    percpu::preempt_disable();
}

/// Takes an objection away; the last one makes up for a preemption that was put off.
#[inline]
pub fn preempt_enable() {
    if percpu::preempt_enable() && irq::enabled() {
        irq_off(preempt_here);
    }
}

/// Like [`preempt_here`], for where no section is open, or none of one's own: then who opened it looks at its end.
#[inline]
pub fn preempt_check() {
    if percpu::preempt_count() == 0 && irq::enabled() {
        irq_off(preempt_here);
    }
}

/// Switches to another thread if the scheduler asks for it and nobody objects.
///
/// For the end of a section that woke somebody; its locks are given up, and it did not begin in an interrupt handler.
#[inline]
pub fn preempt_here(irq: &IrqOff) {
    if scheduler().need_resched(irq) && percpu::preempt_count() == 0 {
        reschedule(irq, Reason::Preempt);
    }
}

/// Lets other threads of this CPU go first.
pub fn yield_now() {
    may_switch();
    irq_off(|irq| reschedule(irq, Reason::Yield));
}

/// The current thread is about to sleep; see [`Scheduler::prepare`].
#[inline(always)]
pub fn prepare(irq: &IrqOff, kind: SleepKind) -> Sleep<KernelConfig> {
    scheduler().prepare(irq, kind)
}

/// Puts the current thread to sleep unless it was woken since `prepare`; returns when it was.
#[inline]
pub fn block(irq: &IrqOff, sleep: Sleep<KernelConfig>) {
    reschedule(irq, Reason::Block(sleep));
}

/// Wakes `thread`.
///
/// The caller holds a lock that `thread` takes before it goes on, or a counted reference; either keeps it alive.
#[inline(always)]
pub fn wake(irq: &IrqOff, thread: &Thread) -> Woken {
    scheduler().wake(irq, thread)
}

/// The end of the current thread.
pub fn leave_for_good(irq: &IrqOff) -> ! {
    reschedule(irq, Reason::Exit);
    unreachable!("a dead thread went on");
}

/// Panics unless the current thread may be switched away from (I2).
#[inline]
pub fn may_switch() {
    if percpu::preempt_count() != 0 || percpu::in_interrupt() {
        must_not_switch();
    }
}

/// The rest of a switch, for a thread that has never run: called first thing on its stack.
pub fn begin() {
    irq_off(|irq| {
        finish(irq);
        preempt_here(irq);
    });
}

/// Asks the scheduler and does what it says, until nobody asks for more.
#[inline]
fn reschedule(irq: &IrqOff, reason: Reason<KernelConfig>) {
    let mut decision = scheduler().schedule(irq, reason);
    while let Decision::Switch { prev, next } = decision {
        switch_to(irq, prev, next);
        if !scheduler().need_resched(irq) {
            return;
        }
        decision = scheduler().schedule(irq, Reason::Preempt);
    }
}

#[inline(always)]
fn switch_to(irq: &IrqOff, prev: NonNull<Thread>, next: NonNull<Thread>) {
    percpu::set_current(next.as_ptr().cast_const().cast());
    // No lock is held any more (I2): nobody that is kicked now meets one of ours.
    kick::send();
    // SAFETY: interrupts are off. `prev` is the running thread; the scheduler keeps both alive until they are dead and
    // left, and gives `next` out only after the CPU that ran it last has called `finish_switch`, which orders the two.
    unsafe { switch::switch(prev.as_ref().context(), next.as_ref().context()) };
    finish(irq);
}

/// Releases who was left (I4).
#[inline(always)]
fn finish(irq: &IrqOff) {
    if let Some(dead) = scheduler().finish_switch(irq) {
        thread::reap(irq, dead);
    }
}

/// The way out of every interrupt.
fn irq_exit() {
    if percpu::preempt_count() == 0 {
        irq_off(preempt_here);
    }
}

/// Makes the calling CPU take part, with its own context as idle thread.
fn bring_online() {
    irq_off(|irq| {
        let idle = Thread::idle(&format!("idle/{}", percpu::cpu_index()));
        percpu::set_current(Arc::as_ptr(&idle).cast());
        if let Err(rejected) = scheduler().bring_online(irq, idle) {
            panic!("cpu {} cannot take part: {}", percpu::cpu_index(), rejected.error);
        }
        READY.fetch_add(1, Ordering::Release);
        ALL_READY.wake_all_in(irq);
    });
}

/// What a CPU does when there is nothing to do. Interrupts are off but for the halt.
fn idle() -> ! {
    loop {
        let halts = irq_off(|irq| {
            if scheduler().need_resched(irq) {
                timer::leave_idle(irq);
                reschedule(irq, Reason::Preempt);
                return false;
            }
            report::enter_idle(irq);
            true
        });
        if halts {
            percpu::preempt_disable();
            if poll() {
                // A request that comes after the last look comes with an interrupt, which ends the halt.
                irq::enable_and_halt();
                irq::disable();
            }
            // The loop looks for requests itself.
            let _ = percpu::preempt_enable();
            report::leave_idle();
        }
    }
}

/// Looks for something to do for a while, with interrupts on; they are off before and after. False if there is something.
fn poll() -> bool {
    let nanos = IDLE_POLL_NS.load(Ordering::Relaxed);
    if nanos == 0 {
        return true;
    }
    if !irq_off(|irq| scheduler().begin_poll(irq)) {
        return false;
    }
    let until = tsc::now_ns() + nanos;
    while tsc::now_ns() < until && !irq_off(|irq| scheduler().need_resched(irq)) {
        irq::enable();
        core::hint::spin_loop();
        irq::disable();
    }
    irq_off(|irq| scheduler().end_poll(irq))
}

/// Runnable threads of `cpu`; a hint.
pub fn nr_running(cpu: usize) -> u64 {
    scheduler().nr_running(CpuId(cpu as u32))
}

#[cold]
fn no_scheduler() -> ! {
    panic!("there are no threads yet");
}

#[cold]
fn must_not_switch() -> ! {
    if percpu::in_interrupt() {
        panic!("an interrupt handler must not sleep");
    }
    panic!("a thread must not sleep while it objects to preemption");
}
