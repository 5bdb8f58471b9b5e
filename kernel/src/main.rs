//! A small x86_64 kernel that runs `sched-core` under measured workloads.
#![cfg_attr(target_os = "none", no_std, no_main)]

use boot::BootInfo;
use boot::serial::{Com1, EXIT_DONE, exit};
use core::fmt::Write;

boot::entry!(kernel_main);

fn kernel_main(info: &'static BootInfo) -> ! {
    let _ = writeln!(Com1, "cmdline: {}", info.cmdline.escape_ascii());
    let _ = writeln!(
        Com1,
        "memory: {} MiB RAM, {} MiB free",
        info.ram_bytes >> 20,
        boot::paging::free_bytes() >> 20
    );
    let _ = writeln!(Com1, "cpus: {} listed", info.cpus.len());
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
