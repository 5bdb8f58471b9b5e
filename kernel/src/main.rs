//! A small x86_64 kernel that runs `sched-core` under measured workloads.
#![cfg_attr(target_os = "none", no_std, no_main)]

use boot::BootInfo;
use boot::serial::{Com1, EXIT_DONE, exit};
use core::fmt::Write;
use core::sync::atomic::{AtomicUsize, Ordering};

boot::entry!(kernel_main);

static RUNNING: AtomicUsize = AtomicUsize::new(1);

fn other_cpu(_index: usize) -> ! {
    RUNNING.fetch_add(1, Ordering::AcqRel);
    loop {
        boot::x86_64::instructions::hlt();
    }
}

fn kernel_main(info: &'static BootInfo) -> ! {
    let _ = writeln!(Com1, "cmdline: {}", info.cmdline.escape_ascii());
    let _ = writeln!(
        Com1,
        "memory: {} MiB RAM, {} MiB free",
        info.ram_bytes >> 20,
        boot::paging::free_bytes() >> 20
    );
    for index in 1..info.cpus.len() {
        if let Err(error) = boot::start_cpu(info, index, other_cpu) {
            let _ = writeln!(Com1, "cpu{index}: {error}; left out");
        }
    }
    while RUNNING.load(Ordering::Acquire) < info.cpus.len() {
        core::hint::spin_loop();
    }
    let _ = writeln!(Com1, "cpus: {} run: {:?}", RUNNING.load(Ordering::Acquire), info.cpus);
    let _ = writeln!(Com1, "{:x?}", info.power_off);
    exit(EXIT_DONE, info.power_off)
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
