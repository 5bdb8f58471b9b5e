//! A small x86_64 kernel that runs `sched-core` under measured workloads.
#![cfg_attr(target_os = "none", no_std, no_main)]

use boot::serial::{Com1, EXIT_DONE, exit};
use boot::{BootInfo, cmdline};
use core::fmt::Write;
use core::sync::atomic::{AtomicUsize, Ordering};

boot::entry!(kernel_main);

/// CPUs that have reached Rust.
static RUNNING: AtomicUsize = AtomicUsize::new(1);

fn kernel_main(info: &'static BootInfo) -> ! {
    let mut out = Com1;
    let _ = writeln!(out, "\ncmdline: {}", cmdline::Text(info.cmdline));
    let _ = writeln!(
        out,
        "memory: {} MiB, {} MiB free",
        info.ram_bytes >> 20,
        boot::paging::free_bytes() >> 20
    );
    for index in 1..info.cpus.len() {
        if let Err(error) = boot::start_cpu(info, index, other_cpu) {
            let apic_id = info.cpus[index].apic_id;
            let _ = writeln!(out, "cpu{index} (APIC {apic_id}): {error}; it is left out");
        }
    }
    let _ = writeln!(out, "cpus: {} run", RUNNING.load(Ordering::Acquire));
    match boot::paging::check() {
        Ok(report) => {
            let _ = writeln!(out, "paging: {report}");
            exit(EXIT_DONE, info.power_off)
        }
        Err(violation) => boot::fail(format_args!("paging: {violation}")),
    }
}

fn other_cpu(_index: usize) -> ! {
    RUNNING.fetch_add(1, Ordering::AcqRel);
    loop {
        boot::x86_64::instructions::hlt();
    }
}

/// Prints what went wrong and ends the machine.
#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Com1, "{info}");
    exit(boot::serial::EXIT_PANIC, None)
}

/// The kernel runs on bare metal only; for a host it is type-checked and linted.
#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this program is a kernel: run it with `cargo qemu run`");
}
