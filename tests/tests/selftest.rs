//! The kernel's own tests of its machine and thread layers, one boot each.
//!
//! Who: somebody who changes the kernel.
//! What must hold: a panic is reported with CPU, task and names whatever the kernel was
//! doing, a storm of threads comes out even, and a deadlock is found.

use tests::boots::boot;

/// Boots the test called `name` on `cpus` CPUs.
fn selftest(name: &str, cpus: &str) -> tests::boots::Boot {
    boot(&["--smp", cpus, "--append", &format!("selftest={name}")])
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn a_panic_names_cpu_task_and_functions() {
    let boot = selftest("panic", "8");
    boot.ends_with(101);
    boot.says_once(&["panic: cpu 0 task ", "on purpose", "kernel/src/selftest.rs"]);
    // The backtrace goes through these two, the inner one first.
    let inner = boot.lines_with(&["panic: #", "kernel::selftest::inner+"]);
    let outer = boot.lines_with(&["panic: #", "kernel::selftest::outer+"]);
    assert!(!inner.is_empty() && !outer.is_empty() && inner[0] < outer[0], "{boot}");
    for cpu in 1..8 {
        boot.says_once(&[&format!("panic: cpu {cpu} "), "stopped"]);
    }
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn a_panic_in_a_thread_names_it_and_stops_the_idle_cpus() {
    let boot = selftest("crash", "8");
    boot.ends_with(101);
    boot.says_once(&["panic: cpu 7 task crasher: ", "in a thread of the scheduler"]);
    assert!(!boot.lines_with(&["panic: #", "kernel::selftest::threads::crash"]).is_empty(), "{boot}");
    for cpu in 0..7 {
        boot.says_once(&[&format!("panic: cpu {cpu} "), "stopped"]);
    }
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn every_kind_of_panic_ends_with_a_report() {
    for (name, part) in [
        ("remote", "in an interrupt handler"),
        ("deaf", "panic: cpu 7 task boot stopped at"),
        ("stubborn", "did not stop"),
        ("nested", "another panic during the report"),
        ("locked", "with the console in use"),
        ("stack", "stack overflow of"),
        ("ud", "invalid opcode"),
        ("null", "page fault"),
        ("text", "page fault"),
        ("data", "page fault"),
        ("oom", "memory allocation of"),
    ] {
        let boot = selftest(name, "8");
        boot.ends_with(101);
        assert!(boot.console.contains(part), "{name}{boot}");
    }
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn the_machine_layer_works() {
    for name in ["heap", "switch", "preempt", "timer", "ipi", "clock"] {
        let boot = selftest(name, "8");
        boot.ends_with(0).says_once(&["selftest", name, "ok"]);
    }
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn the_thread_layer_stands_storms() {
    for cpus in ["1", "8"] {
        for name in ["threads", "pipes", "join", "timeouts", "preemption", "affinity", "exitstorm", "wakestorm"] {
            let boot = selftest(name, cpus);
            boot.ends_with(0).says_once(&["selftest", name, "status=ok"]);
        }
    }
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn a_deadlock_is_found_and_each_wait_is_named() {
    let boot = selftest("deadlock", "8");
    boot.ends_with(1);
    assert_eq!(boot.end()["status"], "failed", "{boot}");
    assert!(!boot.lines_with(&["deadlock: tid ", " waits for "]).is_empty(), "{boot}");
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn a_test_that_is_not_there_fails() {
    selftest("juggling", "2").ends_with(1);
}
