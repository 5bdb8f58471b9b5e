//! Self-tests of the switch between contexts.
//!
//! # What it is
//! Two contexts that hand control to each other, on request and on the way out of the timer's interrupt.
//!
//! # How it works
//! The first is the boot CPU's own, the second has a stack of its own. Both compute the same sum over and over; a register
//! that an interrupt or a switch loses makes one come out wrong.
//!
//! # Invariants
//! 1. Of the two contexts exactly one runs, on the boot CPU; `OTHER` holds the second's address while one may switch.
//!
//! # Cost
//! None unless asked for.

use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::arch::switch::{Context, switch};
use crate::arch::{irq, timer, tsc};
use crate::println;

/// How often control goes to the second context.
const SWITCHES: u64 = 100_000;

static MAIN_CONTEXT: Context = Context::empty();
static SWITCHED: AtomicU64 = AtomicU64::new(0);

pub(super) fn switching() -> Result<(), &'static str> {
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

/// How often the two contexts of the preemption test are exchanged.
const PREEMPTIONS: u64 = 200;
/// How long each computes in between.
const SLICE_NS: u64 = 500_000;

static PREEMPTING: AtomicBool = AtomicBool::new(false);
static SECOND_RUNS: AtomicBool = AtomicBool::new(false);
static WRONG_SUMS: AtomicUsize = AtomicUsize::new(0);

pub(super) fn preemption() -> Result<(), &'static str> {
    let Ok(stack) = boot::paging::map_stack(4) else {
        return Err("no memory for a stack");
    };
    // SAFETY: the stack is new and ours.
    let other = unsafe { Context::new(stack.top as *mut u8, second_computes, core::ptr::null_mut()) };
    OTHER.store(&raw const other as usize, Ordering::Relaxed);
    let expected = compute();
    EXPECTED.store(expected, Ordering::Relaxed);
    PREEMPTING.store(true, Ordering::Relaxed);
    timer::arm_in(SLICE_NS);
    irq::enable();
    while SWITCHED.load(Ordering::Relaxed) < PREEMPTIONS {
        check_sum();
    }
    irq::disable();
    timer::disarm();
    println!("selftest: {} sums in the second context", SECOND_SUMS.load(Ordering::Relaxed));
    match (WRONG_SUMS.load(Ordering::Relaxed), SECOND_SUMS.load(Ordering::Relaxed)) {
        (0, 1..) => Ok(()),
        (0, 0) => Err("the second context got nowhere"),
        _ => Err("a register was lost"),
    }
}

/// What the sum must be.
static EXPECTED: AtomicU64 = AtomicU64::new(0);
/// How many sums the second context has made.
static SECOND_SUMS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn second_computes(_: *mut ()) -> ! {
    irq::enable();
    loop {
        check_sum();
        SECOND_SUMS.fetch_add(1, Ordering::Relaxed);
    }
}

fn check_sum() {
    if compute() != EXPECTED.load(Ordering::Relaxed) {
        WRONG_SUMS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Keeps all registers busy for a while.
#[inline(never)]
fn compute() -> u64 {
    let mut words = black_box([1_u64, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    for _ in 0..2_000 {
        for at in 0..words.len() {
            words[at] = words[at].wrapping_mul(6_364_136_223_846_793_005).wrapping_add(words[(at + 5) % 12]);
        }
    }
    words.iter().fold(0, |sum, word| sum ^ word)
}

/// The timer's hook; says whether this test is running.
pub(super) fn expired() -> bool {
    let running = PREEMPTING.load(Ordering::Relaxed);
    if running {
        timer::arm_in(SLICE_NS);
    }
    running
}

/// Exchanges the two contexts on the way out of an interrupt, while this test is running.
pub(super) fn irq_exit() {
    if !PREEMPTING.load(Ordering::Relaxed) {
        return;
    }
    SWITCHED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: `preemption` keeps the context alive while this is called.
    let other = unsafe { &*(OTHER.load(Ordering::Relaxed) as *const Context) };
    // SAFETY: interrupts are off; of the two contexts one runs and the other has been left.
    unsafe {
        if SECOND_RUNS.fetch_xor(true, Ordering::Relaxed) {
            switch(other, &MAIN_CONTEXT);
        } else {
            switch(&MAIN_CONTEXT, other);
        }
    }
}
