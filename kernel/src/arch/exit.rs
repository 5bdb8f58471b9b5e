//! The end of the run.
//!
//! # What it is
//! How the machine is switched off with a verdict.
//!
//! # How it works
//! The console is written out; then `boot` ends the machine: through QEMU's debug-exit device if there is one (QEMU ends
//! with the status `value * 2 + 1`), else through ACPI (the verdict is then what the console says), else this CPU
//! halts for good.
//!
//! # Invariants
//! 1. The console has been written out before the machine ends.
//!
//! # Cost
//! None while the kernel runs.

use core::sync::atomic::{AtomicPtr, Ordering};

use boot::serial::{EXIT_DONE, EXIT_FAILED, EXIT_PANIC};
use boot::{BootInfo, PowerOff};

use super::irq;
use crate::console;

/// How the run went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Verdict {
    /// Done, all well.
    Done = EXIT_DONE,
    /// The kernel or a workload reports a failure.
    Failed = EXIT_FAILED,
    /// The kernel panicked.
    Panicked = EXIT_PANIC,
}

static POWER_OFF: AtomicPtr<PowerOff> = AtomicPtr::new(core::ptr::null_mut());

/// Remembers how ACPI powers this machine off.
pub fn init(info: &'static BootInfo) {
    if let Some(power_off) = &info.power_off {
        POWER_OFF.store(core::ptr::from_ref(power_off).cast_mut(), Ordering::Release);
    }
}

/// Ends the run.
pub fn exit(verdict: Verdict) -> ! {
    irq::disable();
    console::flush();
    let power_off = POWER_OFF.load(Ordering::Acquire);
    // SAFETY: null, or from a `&'static PowerOff` in `init`.
    let power_off = unsafe { power_off.as_ref() }.copied();
    boot::serial::exit(verdict as u32, power_off)
}
