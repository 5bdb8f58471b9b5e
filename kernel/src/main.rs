//! A small x86_64 kernel that runs `sched-core` under measured workloads.
//!
//! # What it is
//! The order in which the kernel comes up.
//!
//! # How it works
//! `boot` calls [`kernel_main`] on the boot CPU.
//! The machine layer ([`arch`], [`smp`]) is set up first, so that a panic can report; then the other CPUs are started.
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
mod console;
mod heap;
mod panic;
mod ratio;
mod selftest;
mod smp;
mod spin;
mod symbols;

use boot::BootInfo;
use boot::cmdline::{Text, params, parse_unsigned};

use crate::arch::exit::{Verdict, exit};

boot::entry!(kernel_main);

fn kernel_main(info: &'static BootInfo) -> ! {
    console::init();
    println!("cmdline: {}", Text(info.cmdline));
    println!("memory: {} MiB, {} MiB free", info.ram_bytes >> 20, boot::paging::free_bytes() >> 20);
    // SAFETY: this is the boot CPU, and nothing has run before it but the console, which needs nothing.
    unsafe { smp::start_boot_cpu(info) };

    let mut cpu_limit = usize::MAX;
    let mut selftest = None;
    for param in params(info.cmdline) {
        let value = param.value.unwrap_or_default();
        if param.key.is("maxcpus") {
            match parse_unsigned(value, 1..=u64::MAX) {
                Ok(count) => cpu_limit = count as usize,
                Err(error) => println!("maxcpus={}: {error}; all CPUs are started", Text(value)),
            }
        } else if param.key.is("selftest") {
            selftest = core::str::from_utf8(value).ok();
        }
    }
    smp::start_others(info, cpu_limit, selftest::other_cpu);
    match boot::paging::check() {
        Ok(report) => println!("paging: {report}"),
        Err(violation) => panic!("paging: {violation}"),
    }
    if let Some(name) = selftest {
        selftest::run(name)
    }
    exit(Verdict::Done)
}

/// The kernel runs on bare metal only; for a host it is type-checked and linted.
#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this program is a kernel: run it with `cargo qemu run`");
}
