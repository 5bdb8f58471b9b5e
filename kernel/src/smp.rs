//! Bringing the CPUs up.
//!
//! # What it is
//! The order of a CPU's first steps, for the boot CPU ([`start_boot_cpu`]) and for the others ([`start_others`]), and
//! the number of CPUs that are up.
//!
//! # How it works
//! CPUs are started one by one. Each sets up its own tables, APIC and timer, compares its clock with the boot CPU's, takes
//! the next free number, and goes to the function that the layer above has named.
//! A CPU that cannot be started is named in one line and left out; the numbers have no gaps.
//!
//! # Invariants
//! 1. `ONLINE` only grows; CPU `n` is up when it is greater than `n`.
//! 2. The number in `STARTING` belongs to the one CPU that is being started.
//!
//! # Cost
//! About 20 ms per CPU, most of it in the comparison of the clocks.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use boot::BootInfo;

use crate::arch::calibrate::{self, Frequency, NoClock};
use crate::arch::percpu::MAX_CPUS;
use crate::arch::{apic, exit, gdt, idt, irq, percpu, timer, tsc, tsc_sync};
use crate::println;

/// The function a CPU ends up in, with interrupts off; it gets the CPU's number.
pub type CpuMain = fn(cpu: usize) -> !;

/// How long a CPU that runs our code already may take for a step.
const STEP_NS: u64 = 60_000_000_000;
/// How far a CPU's clock may be off before it is worth a line.
const TOLERATED_NS: u64 = 1_000;

/// What a starting CPU says about itself.
const SILENT: u32 = 0;
const READY: u32 = 1;
const NO_MEMORY: u32 = 2;

/// How many CPUs are up.
static ONLINE: AtomicUsize = AtomicUsize::new(0);
/// The number of the CPU that is being started.
static STARTING: AtomicUsize = AtomicUsize::new(0);
/// What that CPU says.
static REPORT: AtomicU32 = AtomicU32::new(SILENT);
/// The [`CpuMain`] of the CPUs being started.
static MAIN: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// How many CPUs are up; their numbers are the ones below.
#[inline]
pub fn online() -> usize {
    ONLINE.load(Ordering::Acquire)
}

/// Sets the boot CPU up: it is number 0 from here on, and `println!`, panics and the clock work.
///
/// Interrupts stay off.
///
/// # Safety
/// - Called once, first thing, by the boot CPU.
pub unsafe fn start_boot_cpu(info: &'static BootInfo) {
    // SAFETY: this is the boot CPU, first thing (caller); the order is the one each step asks for.
    let (frequency, mode) = unsafe {
        exit::init(info);
        if let Err(error) = gdt::install(0) {
            boot::fail(format_args!("no fault stacks: {error}"));
        }
        percpu::install(0);
        idt::init();
        idt::load();
        ONLINE.store(1, Ordering::Release);
        if let Err(error) = apic::init(info.lapic_phys) {
            panic!("the local APIC's registers cannot be mapped: {error}");
        }
        apic::install(0);
        let frequency = start_clock();
        let mode = timer::calibrate().unwrap_or_else(|_| panic!("the local APIC's timer does not count"));
        timer::install();
        (frequency, mode)
    };
    println!("clock: TSC at {frequency}; timer: {mode}");
}

/// Starts the other CPUs, up to `limit` in all, and says how many are up.
///
/// Each ends up in `main` with interrupts off. Returns when all that can be are up.
pub fn start_others(info: &'static BootInfo, limit: usize, main: CpuMain) {
    MAIN.store(main as *mut (), Ordering::Release);
    let listed = info.cpus.len() + info.cpus_left_out;
    let limit = limit.max(1);
    let mut worst: Option<tsc_sync::Comparison> = None;
    for (index, cpu) in info.cpus.iter().enumerate().skip(1) {
        let number = online();
        if number >= limit.min(MAX_CPUS) {
            break;
        }
        match start(info, index, number) {
            Ok(comparison) => {
                let certain = |c: &tsc_sync::Comparison| (c.certain_ns.unsigned_abs(), c.uncertainty_ns);
                if worst.as_ref().is_none_or(|worst| certain(worst) < certain(&comparison)) {
                    worst = Some(comparison);
                }
            }
            Err(why) => println!("smp: cpu {index} (APIC {}) is left out: {why}", cpu.apic_id),
        }
    }
    if let Some(worst) = worst {
        println!(
            "clock: CPUs agree to within {} ns, and differ by {} ns for certain",
            worst.certain_ns.unsigned_abs() + worst.uncertainty_ns,
            worst.certain_ns.unsigned_abs()
        );
    }
    if limit < listed {
        println!("smp: {} of {listed} CPUs up (maxcpus={limit})", online());
    } else {
        println!("smp: {} of {listed} CPUs up", online());
    }
    if listed.min(limit) > MAX_CPUS {
        println!("smp: the kernel has room for {MAX_CPUS} CPUs, the others are left out");
    }
}

/// Why a CPU is left out.
enum Failure {
    Boot(boot::StartError),
    NoMemory,
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Boot(error) => error.fmt(f),
            Self::NoMemory => f.write_str("no memory for its fault stacks"),
        }
    }
}

/// Starts the CPU at `index` of the firmware's list as CPU `number`.
fn start(info: &'static BootInfo, index: usize, number: usize) -> Result<tsc_sync::Comparison, Failure> {
    STARTING.store(number, Ordering::Relaxed);
    REPORT.store(SILENT, Ordering::Relaxed);
    tsc_sync::prepare();
    boot::start_cpu(info, index, other_cpu).map_err(Failure::Boot)?;
    wait_until(number, || REPORT.load(Ordering::Acquire) != SILENT);
    if REPORT.load(Ordering::Acquire) == NO_MEMORY {
        return Err(Failure::NoMemory);
    }
    let Some(comparison) = tsc_sync::compare() else {
        panic!("cpu {number} started but does not answer");
    };
    wait_until(number, || online() > number);
    if comparison.certain_ns.unsigned_abs() > TOLERATED_NS {
        println!(
            "clock: cpu {number} is {} ns {}; corrected",
            comparison.certain_ns.unsigned_abs(),
            if comparison.certain_ns < 0 { "behind" } else { "ahead" }
        );
    }
    Ok(comparison)
}

/// Waits for a CPU that runs our code; one that stops half-way leaves its number half used, so that is a panic.
fn wait_until(number: usize, done: impl Fn() -> bool) {
    let start_ns = tsc::now_ns();
    while !done() {
        if tsc::now_ns() - start_ns > STEP_NS {
            panic!("cpu {number} started but does not get ready");
        }
        core::hint::spin_loop();
    }
}

/// The first of our code that another CPU runs.
fn other_cpu(_index: usize) -> ! {
    let cpu = STARTING.load(Ordering::Acquire);
    // SAFETY: the number is this CPU's alone (invariant 2), interrupts are off, and the order is the one each step asks
    // for; the boot CPU has called the `init` functions.
    unsafe {
        if gdt::install(cpu).is_err() {
            REPORT.store(NO_MEMORY, Ordering::Release);
            irq::halt_for_ever();
        }
        percpu::install(cpu);
        idt::load();
        apic::install(cpu);
    }
    timer::install();
    REPORT.store(READY, Ordering::Release);
    tsc_sync::answer();
    // SAFETY: `start_others` stored a `CpuMain` before it started anybody.
    let main = unsafe { core::mem::transmute::<*mut (), CpuMain>(MAIN.load(Ordering::Acquire)) };
    ONLINE.store(cpu + 1, Ordering::Release);
    main(cpu)
}

/// Finds the clock's frequency and starts it.
///
/// # Safety
/// - As for [`tsc::start`].
unsafe fn start_clock() -> Frequency {
    match calibrate::frequency() {
        Ok(frequency) => {
            // SAFETY: the boot CPU, before any other (caller).
            unsafe { tsc::start(frequency.hz) };
            frequency
        }
        Err(NoClock) => {
            panic!("no clock: the CPU states no time-stamp counter frequency, and the interval timer does not count")
        }
    }
}
