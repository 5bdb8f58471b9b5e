//! Tests of the machine layer on the machine itself.
//!
//! # What it is
//! What `selftest=NAME` on the command line does instead of a run. It is for tests, not for users.
//!
//! # How it works
//! | name | what happens | how it must end |
//! |---|---|---|
//! | `panic` | a panic on the boot CPU | panic report |
//! | `remote` | a panic on the last CPU, in an interrupt handler | panic report |
//! | `deaf` | a panic while the last CPU spins with interrupts off | panic report, that CPU stopped by NMI |
//! | `stubborn` | a panic while the last CPU does not even obey an NMI | panic report that names it |
//! | `nested` | a panic whose message panics | one more line |
//! | `locked` | a panic while the console is in use | panic report |
//! | `stack` | endless recursion | "stack overflow of" |
//! | `ud` | an invalid instruction | registers and backtrace |
//! | `null` | a read at address 8 | page fault, read, not mapped |
//! | `text` | a write to the kernel's text | page fault, write, not allowed |
//! | `data` | a jump into data | page fault, execute |
//! | `oom` | more memory than there is | "memory allocation of" |
//! | `heap` | allocations of many sizes, contents checked | ok |
//! | `switch` | two contexts pass control to and fro | ok |
//! | `timer` | the timer, ten times on every CPU: never early | ok |
//! | `ipi` | an interrupt from the boot CPU to every other and back | ok |
//! | `clock` | all CPUs pass the time around: it never goes back | ok |
//!
//! # Invariants
//! 1. A test that does not end as it must fails the run.
//!
//! # Cost
//! None unless asked for.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::arch::asm;
use core::fmt;
use core::hint::{black_box, spin_loop};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use x86_64::VirtAddr;
use x86_64::structures::idt::InterruptDescriptorTable;

use crate::arch::exit::{Verdict, exit};
use crate::arch::hooks::{self, Hooks};
use crate::arch::percpu::{CpuLocal, cpu_index};
use crate::arch::switch::{Context, switch};
use crate::arch::{apic, irq, timer, tsc};
use crate::{cpu_local, println, smp};

/// What the other CPUs do while a self-test runs: take interrupts, and run the test's part when called.
pub fn other_cpu(_cpu: usize) -> ! {
    loop {
        irq::disable();
        irq::enable_and_halt();
    }
}

/// Runs the test called `name` and ends the machine.
pub fn run(name: &str) -> ! {
    hooks::register(&HOOKS);
    println!("selftest: {name}");
    let result = match name {
        "panic" => outer(7),
        "remote" => on_last_cpu(|| panic!("selftest: in an interrupt handler")),
        "deaf" => {
            tell_last_cpu(|| {
                REACHED.fetch_add(1, Ordering::Release);
                loop {
                    spin_loop();
                }
            });
            wait_for(&REACHED, 1);
            panic!("selftest: one CPU has its interrupts off")
        }
        "stubborn" => {
            tell_last_cpu(stubborn);
            wait_for(&REACHED, 1);
            panic!("selftest: one CPU obeys nobody")
        }
        "nested" => panic!("selftest: first, {}", Panics),
        "locked" => {
            println!("selftest: {}", PanicsLocked);
            Err("it went on")
        }
        "stack" => {
            println!("selftest: depth {}", recurse(0));
            Err("it went on")
        }
        "ud" => {
            // SAFETY: raises an exception, which is the point.
            unsafe { asm!("ud2") };
            Err("it went on")
        }
        "null" => {
            // SAFETY: raises an exception, which is the point: nothing is mapped there.
            unsafe { asm!("mov {0}, [{0}]", inout(reg) 8_u64 => _) };
            Err("it went on")
        }
        "text" => {
            // SAFETY: raises an exception, which is the point: text is read only.
            unsafe { asm!("mov byte ptr [{0}], 0", in(reg) run as *const u8) };
            Err("it went on")
        }
        "data" => {
            // SAFETY: raises an exception, which is the point: data is not executable.
            unsafe { asm!("call {0}", in(reg) &raw const REACHED) };
            Err("it went on")
        }
        "oom" => {
            let mut kept = Vec::new();
            loop {
                kept.push(alloc::vec![1_u8; 8 << 20]);
            }
        }
        "heap" => heap(),
        "switch" => switching(),
        "timer" => timers(),
        "ipi" => interrupts(),
        "clock" => clocks(),
        _ => Err("there is no such test"),
    };
    match result {
        Ok(()) => {
            println!("selftest: {name} ok");
            exit(Verdict::Done)
        }
        Err(why) => {
            println!("selftest: {name} failed: {why}");
            exit(Verdict::Failed)
        }
    }
}

static HOOKS: Hooks = Hooks {
    timer: timer_hook,
    reschedule: || {
        REACHED.fetch_add(1, Ordering::Release);
    },
    call: || {
        let part = PART.load(Ordering::Acquire);
        // SAFETY: `tell_cpu` stored a `fn()` before it sent the call.
        let part = unsafe { core::mem::transmute::<usize, fn()>(part) };
        part();
    },
    irq_exit: || {
        EXITS.here().fetch_add(1, Ordering::Relaxed);
    },
};

/// The function a called CPU runs.
static PART: AtomicUsize = AtomicUsize::new(0);
/// How many CPUs have reached the point being waited for.
static REACHED: AtomicUsize = AtomicUsize::new(0);
/// How often each CPU has left an interrupt.
static EXITS: CpuLocal<AtomicU64> = cpu_local!(AtomicU64::new(0));

fn tell_cpu(cpu: usize, part: fn()) {
    PART.store(part as usize, Ordering::Release);
    apic::send_call(cpu);
}

fn last_cpu() -> usize {
    if smp::online() < 2 {
        println!("selftest: this test needs two CPUs");
        exit(Verdict::Failed);
    }
    smp::online() - 1
}

fn tell_last_cpu(part: fn()) {
    tell_cpu(last_cpu(), part);
}

fn on_last_cpu(part: fn()) -> Result<(), &'static str> {
    tell_last_cpu(part);
    loop {
        spin_loop();
    }
}

fn wait_for(counter: &AtomicUsize, count: usize) {
    while counter.load(Ordering::Acquire) < count {
        spin_loop();
    }
}

/// Makes this CPU ignore NMIs too, by an interrupt table of its own.
fn stubborn() {
    extern "C" fn spin() -> ! {
        loop {
            spin_loop();
        }
    }
    let table = Box::leak(Box::new(InterruptDescriptorTable::new()));
    // SAFETY: the entry's handler never returns, and the table lives for ever; interrupts are off, so only an NMI comes.
    unsafe {
        table.non_maskable_interrupt.set_handler_addr(VirtAddr::from_ptr(spin as *const ()));
        table.load_unsafe();
    }
    REACHED.fetch_add(1, Ordering::Release);
    spin()
}

#[inline(never)]
fn outer(value: u32) -> Result<(), &'static str> {
    inner(black_box(value));
    Err("it went on")
}

#[inline(never)]
fn inner(value: u32) {
    panic!("selftest: on purpose, {value}");
}

#[inline(never)]
#[allow(unconditional_recursion)]
fn recurse(depth: u64) -> u64 {
    let block = black_box([depth; 32]);
    recurse(depth + 1) + block[black_box(3)]
}

/// Panics when it is printed.
struct Panics;

impl fmt::Display for Panics {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("selftest: second")
    }
}

/// Panics when it is printed, in the middle of a line.
struct PanicsLocked;

impl fmt::Display for PanicsLocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("half a line")?;
        panic!("selftest: with the console in use")
    }
}

fn heap() -> Result<(), &'static str> {
    let mut kept: Vec<Vec<u64>> = Vec::new();
    let mut seed = 1_u64;
    for step in 0..20_000_u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let words = 1 + (seed >> 33) as usize % [8, 64, 512, 20_000][(seed >> 20) as usize % 4];
        if kept.len() > 200 {
            let old = kept.swap_remove((seed >> 40) as usize % kept.len());
            if old.iter().any(|&word| word != old[0]) {
                return Err("a block was overwritten");
            }
        }
        kept.push(alloc::vec![step; words]);
    }
    drop(kept);
    match crate::heap::usage() {
        Some(usage) if usage.used_bytes == 0 => Ok(()),
        _ => Err("blocks were lost"),
    }
}

/// How often control goes to the second context.
const SWITCHES: u64 = 100_000;

static MAIN_CONTEXT: Context = Context::empty();
static SWITCHED: AtomicU64 = AtomicU64::new(0);

fn switching() -> Result<(), &'static str> {
    let Ok(stack) = boot::paging::map_stack(4) else {
        return Err("no memory for a stack");
    };
    irq::disable();
    let argument = 0x1234_usize as *mut ();
    // SAFETY: the stack is new and ours.
    let other = unsafe { Context::new(stack.top as *mut u8, second_context, argument) };
    OTHER.store(&raw const other as usize, Ordering::Relaxed);
    let start_ns = tsc::now_ns();
    for round in 0..SWITCHES {
        // SAFETY: interrupts are off, and the other context has been left.
        unsafe { switch(&MAIN_CONTEXT, &other) };
        if SWITCHED.load(Ordering::Relaxed) != round + 1 {
            return Err("control came back too early");
        }
    }
    let ns = tsc::now_ns() - start_ns;
    println!("selftest: {} ns for a switch there and back", ns / SWITCHES);
    Ok(())
}

/// The second context, while `switching` runs.
static OTHER: AtomicUsize = AtomicUsize::new(0);

extern "C" fn second_context(argument: *mut ()) -> ! {
    assert_eq!(argument as usize, 0x1234, "the argument arrives");
    // SAFETY: `switching` keeps the context alive until this never runs again.
    let me = unsafe { &*(OTHER.load(Ordering::Relaxed) as *const Context) };
    loop {
        SWITCHED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: interrupts are off, and `switching` has left its context.
        unsafe { switch(me, &MAIN_CONTEXT) };
    }
}

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

fn timer_hook() {
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

fn timers() -> Result<(), &'static str> {
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

fn interrupts() -> Result<(), &'static str> {
    irq::enable();
    let others = smp::online() - 1;
    for _ in 0..20 {
        let before = REACHED.load(Ordering::Acquire);
        for cpu in 1..=others {
            apic::send_reschedule(cpu);
        }
        wait_for(&REACHED, before + others);
    }
    let before = REACHED.load(Ordering::Acquire);
    for cpu in 1..=others {
        let reached = REACHED.load(Ordering::Acquire);
        tell_cpu(cpu, || apic::send_reschedule(0));
        wait_for(&REACHED, reached + 1);
    }
    // To itself as well.
    apic::send_reschedule(0);
    wait_for(&REACHED, before + others + 1);
    if cpu_index() != 0 || !irq::enabled() {
        return Err("state was not restored");
    }
    Ok(())
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

fn clocks() -> Result<(), &'static str> {
    for cpu in 1..smp::online() {
        tell_cpu(cpu, compare_clocks);
    }
    compare_clocks();
    wait_for(&REACHED, smp::online());
    println!("selftest: the clock went back by {} ns at most", BACKWARD_NS.load(Ordering::Relaxed));
    if BACKWARD_NS.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err("the clock went back") }
}
