//! A small x86_64 kernel that runs `sched-core` under measured workloads.
//!
//! # What it is
//! The order in which the kernel comes up.
//!
//! # How it works
//! `boot` calls [`kernel_main`] on the boot CPU.
//! The machine layer ([`arch`], [`smp`]) is set up first, so that a panic can report; then the other CPUs are started, and
//! the scheduler takes all of them ([`sched`]). Its first thread does the rest.
//!
//! # Floors
//! A module imports from modules further down: `workload`, `files`, `selftest::threads`; `pipe`, `socketpair`; `thread`,
//! `wait`, `timer`, `sched`, `report`, `config`, which know each other; `stack`, `lock`; the machine: `smp`, `panic`,
//! `console`, `heap`, `spin`, `arch`.
//!
//! # Invariants
//! 1. Every CPU has its tables, its APIC and the common clock before interrupts are turned on anywhere.
//!
//! # Cost
//! None after boot.

#![cfg_attr(target_os = "none", no_std, no_main)]
// For a host the kernel is only type-checked and linted, and nothing calls it.
#![cfg_attr(not(target_os = "none"), allow(dead_code))]

extern crate alloc;

mod arch;
mod config;
mod console;
mod files;
mod heap;
mod lock;
mod panic;
mod pipe;
mod ratio;
mod report;
mod sched;
mod selftest;
mod smp;
mod socketpair;
mod spin;
mod stack;
mod symbols;
mod thread;
mod timer;
mod wait;
mod workload;

use boot::BootInfo;
use boot::cmdline::Text;
use kernel::param::{Built, read};
use kernel::rules::Asked;
use sched_core::State;

boot::entry!(kernel_main);

fn kernel_main(info: &'static BootInfo) -> ! {
    console::init();
    println!("cmdline: {}", Text(info.cmdline));
    println!("memory: {} MiB, {} MiB free", info.ram_bytes >> 20, boot::paging::free_bytes() >> 20);
    // SAFETY: this is the boot CPU, and nothing has run before it but the console, which needs nothing.
    unsafe { smp::start_boot_cpu(info) };

    let settings = read(info.cmdline, Built::here(), &mut |line| println!("{line}"));
    let asked = Asked::read(settings.features, &mut |line| println!("{line}"));
    let selftest = settings.selftest.map(|name| core::str::from_utf8(name).unwrap_or("?"));
    let thread_test = selftest.and_then(selftest::threads::find);
    let machine_test = selftest.filter(|_| thread_test.is_none());
    let other_cpu = if machine_test.is_some() { selftest::other_cpu } else { sched::other_cpu };
    smp::start_others(info, settings.max_cpus, other_cpu);
    match boot::paging::check() {
        Ok(report) => println!("paging: {report}"),
        Err(violation) => panic!("paging: {violation}"),
    }
    if let Some(name) = machine_test {
        selftest::run(name)
    }
    let watch = if settings.watch.is_some() { State::On } else { State::Off };
    let gates = config::gates(settings.schedstats, settings.psi, watch);
    sched::start(settings.algorithm, gates, asked.clone(), settings.idle_poll_us, move || match thread_test {
        Some(test) => selftest::threads::run(selftest.unwrap_or_default(), test),
        None => workload::main(&settings, &asked, info.cmdline),
    })
}

/// The kernel runs on bare metal only; for a host it is type-checked and linted.
#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this program is a kernel: run it with `cargo qemu run`");
}
