//! The end of everything.
//!
//! # What it is
//! What the kernel does when it cannot go on: stop every CPU, say what happened where, end the machine.
//!
//! # How it works
//! 1. The first CPU to panic claims the panic; a CPU that panics after it stops.
//! 2. It tells the others to stop, by an interrupt, and those that have interrupts off by an NMI.
//!    A CPU that has not stopped [`STOP_NS`] after that is named.
//! 3. It takes the console from whoever had it and prints the report, every line of it beginning with `panic: `:
//!    what, where, registers if an exception started it, the backtrace with function names, and what the other
//!    CPUs were doing.
//! 4. The machine ends with the code for a panic.
//!
//! A panic during the report prints one line and ends the machine.
//!
//! # Invariants
//! 1. `CLAIMED` changes once, from free to the panicking CPU.
//! 2. Nothing here allocates, and no lock is waited for once the others have been told to stop.
//!
//! # Cost
//! None while the kernel is well.

use core::fmt;
use core::panic::PanicInfo;
use core::slice;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::arch::backtrace::{self, Frames};
use crate::arch::exit::{Verdict, exit};
use crate::arch::idt::ExceptionFrame;
use crate::arch::percpu::{MAX_CPUS, cpu_index};
use crate::arch::vectors::{exception as vector_of, exception_name};
use crate::arch::{apic, irq, tsc};
use crate::symbols::Symbols;
use crate::{console, heap, println, smp};

/// How long a CPU is given to stop, once by interrupt and once by NMI.
const STOP_NS: u64 = 2_000_000_000;
/// Nobody has claimed the panic.
const FREE: usize = usize::MAX;
/// Bits of a page fault's error code.
const PAGE_FAULT_PRESENT: u64 = 1;
const PAGE_FAULT_WRITE: u64 = 1 << 1;
const PAGE_FAULT_FETCH: u64 = 1 << 4;

/// Returns the name of the thread that runs on CPU `cpu`.
///
/// Called in a panic only; the name must stay readable, and the function must not lock.
pub type TaskName = fn(cpu: usize) -> &'static str;

/// The CPU whose panic it is, or [`FREE`].
static CLAIMED: AtomicUsize = AtomicUsize::new(FREE);
/// How often the claiming CPU has entered.
static DEPTH: AtomicU32 = AtomicU32::new(0);
/// Where each stopped CPU was interrupted; 0: it has not stopped.
static STOPPED_AT: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
/// The [`TaskName`] hook; null: none.
static TASK_NAME: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

unsafe extern "C" {
    static __ksyms_start: u8;
    static __ksyms_end: u8;
    static __text_start: u8;
    static __rodata_start: u8;
}

/// Registers how a panic learns the name of the thread that runs on a CPU.
pub fn set_task_name(hook: TaskName) {
    TASK_NAME.store(hook as *mut (), Ordering::Release);
}

/// Says whether some CPU is panicking.
pub fn in_progress() -> bool {
    CLAIMED.load(Ordering::Acquire) != FREE
}

/// Stops this CPU for good because another one panics.
pub fn stop_this_cpu(interrupted_rip: u64) -> ! {
    irq::disable();
    STOPPED_AT[cpu_index()].store(interrupted_rip.max(1), Ordering::Release);
    irq::halt_for_ever()
}

/// Panics because of an exception.
pub fn exception(frame: &ExceptionFrame) -> ! {
    report(&format_args!("{}", Exception::new(frame)), None, Some(frame))
}

/// Panics because Rust does.
#[cfg_attr(target_os = "none", panic_handler)]
#[cfg_attr(not(target_os = "none"), allow(dead_code))]
fn panic(info: &PanicInfo<'_>) -> ! {
    let message = info.message();
    match info.location() {
        Some(at) => report(&message, Some(&format_args!("{}:{}", at.file(), at.line())), None),
        None => report(&message, None, None),
    }
}

fn report(message: &dyn fmt::Display, place: Option<&dyn fmt::Display>, frame: Option<&ExceptionFrame>) -> ! {
    irq::disable();
    let cpu = cpu_index();
    match CLAIMED.compare_exchange(FREE, cpu, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {}
        Err(claimer) if claimer == cpu => panic_again(cpu, message, place),
        Err(_) => stop_this_cpu(frame.map_or(report as *const () as u64, |frame| frame.rip)),
    }
    DEPTH.store(1, Ordering::Relaxed);
    stop_others(cpu);
    // SAFETY: the other CPUs have stopped, and this one never returns to what it was printing; a CPU that would not stop
    // may garble the report, which is better than none.
    unsafe { console::break_lock() };
    console::fresh_line();
    // SAFETY: the linker script places the table between these two symbols, in read-only memory.
    let table = unsafe {
        let (start, end) = (&raw const __ksyms_start, &raw const __ksyms_end);
        slice::from_raw_parts(start, end as usize - start as usize)
    };
    let symbols = Symbols::parse(table);
    let symbols = symbols.as_ref();

    println!("panic: cpu {cpu} task {}: {message}{}", task_name(cpu), At(place));
    if let Some(shortage) = heap::shortage() {
        println!(
            "panic: heap: the last request that failed was for {} bytes; the heap had {} KiB, {} KiB of them free in pieces, and the machine {} KiB more",
            shortage.wanted_bytes,
            shortage.heap_bytes / 1024,
            shortage.heap_free_bytes / 1024,
            shortage.machine_free_bytes / 1024,
        );
    }
    if let Some(frame) = frame {
        print_registers(frame);
        println!("panic: backtrace:");
        print_address(symbols, 0, frame.rip, Site::Instruction);
        print_frames(symbols, 1, Frames::from_frame(frame.rbp));
    } else {
        println!("panic: backtrace:");
        print_frames(symbols, 0, Frames::here());
    }
    print_others(symbols, cpu);
    exit(Verdict::Panicked)
}

/// A panic while reporting the first.
fn panic_again(cpu: usize, message: &dyn fmt::Display, place: Option<&dyn fmt::Display>) -> ! {
    if DEPTH.fetch_add(1, Ordering::Relaxed) == 1 {
        // SAFETY: this CPU held the lock, if anybody did, and does not return to what it was printing.
        unsafe { console::break_lock() };
        console::fresh_line();
        println!("panic: cpu {cpu}: another panic during the report: {message}{}", At(place));
    }
    exit(Verdict::Panicked)
}

/// Stops the other CPUs, as far as they obey.
fn stop_others(me: usize) {
    for send in [apic::send_stop as fn(usize), apic::send_stop_nmi] {
        for cpu in running_besides(me) {
            send(cpu);
        }
        let start_ns = tsc::now_ns();
        while running_besides(me).next().is_some() && tsc::now_ns().saturating_sub(start_ns) < STOP_NS {
            core::hint::spin_loop();
        }
    }
}

/// The CPUs that are up and have not stopped.
fn running_besides(me: usize) -> impl Iterator<Item = usize> {
    (0..smp::online()).filter(move |&cpu| cpu != me && STOPPED_AT[cpu].load(Ordering::Acquire) == 0)
}

fn task_name(cpu: usize) -> &'static str {
    let hook = TASK_NAME.load(Ordering::Acquire);
    if hook.is_null() {
        return "boot";
    }
    // SAFETY: a pointer that is not null came from a `TaskName` in `set_task_name`.
    let hook = unsafe { core::mem::transmute::<*mut (), TaskName>(hook) };
    hook(cpu)
}

fn print_registers(frame: &ExceptionFrame) {
    let f = frame;
    println!("panic: rip {:016x} rsp {:016x} rflags {:08x} error {:x}", f.rip, f.rsp, f.rflags, f.error);
    println!("panic: rax {:016x} rbx {:016x} rcx {:016x} rdx {:016x}", f.rax, f.rbx, f.rcx, f.rdx);
    println!("panic: rsi {:016x} rdi {:016x} rbp {:016x} cr2 {:016x}", f.rsi, f.rdi, f.rbp, fault_address());
    println!("panic: r8  {:016x} r9  {:016x} r10 {:016x} r11 {:016x}", f.r8, f.r9, f.r10, f.r11);
    println!("panic: r12 {:016x} r13 {:016x} r14 {:016x} r15 {:016x}", f.r12, f.r13, f.r14, f.r15);
}

fn print_others(symbols: Option<&Symbols<'_>>, me: usize) {
    for cpu in (0..smp::online()).filter(|&cpu| cpu != me) {
        match STOPPED_AT[cpu].load(Ordering::Acquire) {
            0 => println!(
                "panic: cpu {cpu} task {} did not stop within {} s and may still be running",
                task_name(cpu),
                2 * STOP_NS / tsc::NANOS_PER_SECOND
            ),
            rip => println!("panic: cpu {cpu} task {} stopped at {}", task_name(cpu), Place(symbols, rip)),
        }
    }
}

/// What kind of address a line of the backtrace shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Site {
    /// The instruction itself.
    Instruction,
    /// The instruction after a call.
    Return,
}

/// Prints the frames; a run of the same address, as endless recursion leaves it, takes two lines.
fn print_frames(symbols: Option<&Symbols<'_>>, first: usize, frames: Frames) {
    let mut last = 0;
    let mut repeats = 0;
    for (index, address) in (first..).zip(frames) {
        if address == last {
            repeats += 1;
            continue;
        }
        print_repeats(repeats);
        print_address(symbols, index, address, Site::Return);
        (last, repeats) = (address, 0);
    }
    print_repeats(repeats);
}

fn print_repeats(repeats: usize) {
    if repeats != 0 {
        println!("panic:     and the same {repeats} more times");
    }
}

fn print_address(symbols: Option<&Symbols<'_>>, index: usize, address: u64, site: Site) {
    // A call that does not return may be the last instruction of its function: look the call up, not what follows.
    let back = u64::from(site == Site::Return);
    println!("panic: #{index:<2} {}", Place(symbols, address - back));
}

/// An address with the name of its function.
struct Place<'a>(Option<&'a Symbols<'a>>, u64);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(symbols, address) = *self;
        write!(f, "{address:#018x}")?;
        if !(&raw const __text_start as u64..&raw const __rodata_start as u64).contains(&address) {
            return f.write_str(" (not in the kernel's text)");
        }
        match symbols.and_then(|symbols| symbols.find(address)) {
            Some(symbol) => write!(f, " {}+{:#x}", symbol.name, symbol.offset),
            None => Ok(()),
        }
    }
}

/// ` at PLACE`, or nothing.
struct At<'a>(Option<&'a dyn fmt::Display>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |place| write!(f, " at {place}"))
    }
}

/// What an exception means, in words.
struct Exception<'a> {
    frame: &'a ExceptionFrame,
    cr2: u64,
    task: &'static str,
}

impl<'a> Exception<'a> {
    fn new(frame: &'a ExceptionFrame) -> Self {
        Self { frame, cr2: fault_address(), task: task_name(cpu_index()) }
    }

    /// Whether the running stack ran out: the fault is in the stacks' area, where only the space below a stack is not
    /// mapped.
    fn is_stack_overflow(&self) -> bool {
        let vector = self.frame.vector as u8;
        let absent = vector == vector_of::PAGE_FAULT && self.frame.error & PAGE_FAULT_PRESENT == 0;
        (absent || vector == vector_of::DOUBLE_FAULT) && backtrace::is_on_stack(self.cr2)
    }
}

impl fmt::Display for Exception<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frame, cr2, task } = *self;
        let vector = frame.vector as u8;
        if self.is_stack_overflow() {
            return write!(f, "stack overflow of {task}: access to {cr2:#018x}, below the stack");
        }
        if vector == vector_of::PAGE_FAULT {
            let access = match frame.error {
                error if error & PAGE_FAULT_FETCH != 0 => "execute",
                error if error & PAGE_FAULT_WRITE != 0 => "write",
                _ => "read",
            };
            let why = if frame.error & PAGE_FAULT_PRESENT == 0 { "not mapped" } else { "not allowed there" };
            return write!(f, "page fault (#PF): {access} at {cr2:#018x}, {why}");
        }
        write!(f, "{} (vector {vector})", exception_name(vector))
    }
}

/// The address of the last page fault.
fn fault_address() -> u64 {
    x86_64::registers::control::Cr2::read_raw()
}
