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
//! | `preempt` | the timer's way out switches between two contexts that compute | ok |
//! | `timer` | the timer, ten times on every CPU: never early | ok |
//! | `ipi` | an interrupt from the boot CPU to every other and back | ok |
//! | `clock` | all CPUs pass the time around: it never goes back | ok |
//!
//! The tests of the thread layer ([`threads`]) run in the first thread of the whole kernel:
//!
//! | name | what happens | how it must end |
//! |---|---|---|
//! | `threads` | 64 threads talk through pipes, and start and join others | ok |
//! | `pipes` | pipes and sockets with many writers and readers, full, and with ends that go away | ok |
//! | `join` | threads in a row that join each other, of all nice values | ok |
//! | `timeouts` | sleeps and deadlines | ok |
//! | `deadlock` | threads that wait for each other | deadlock report |
//! | `crash` | a panic in a thread that the scheduler runs | panic report |
//! | `preemption` | threads that compute without end share a CPU | ok |
//! | `affinity` | running threads are sent from CPU to CPU | ok |
//! | `exitstorm` | 10 000 short threads use the same few stacks | ok |
//! | `wakestorm` | wake-ups and deadlines at the same time | ok |
//!
//! # Invariants
//! 1. A test that does not end as it must fails the run.
//!
//! # Cost
//! None unless asked for.

mod clocks;
mod contexts;
pub mod threads;

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
use crate::arch::{apic, irq};
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
        "switch" => contexts::switching(),
        "preempt" => contexts::preemption(),
        "timer" => clocks::timers(),
        "ipi" => interrupts(),
        "clock" => clocks::clocks(),
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
    timer: || {
        if !contexts::expired() {
            clocks::expired();
        }
    },
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
        contexts::irq_exit();
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
