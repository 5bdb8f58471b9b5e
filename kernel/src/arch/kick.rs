//! Reschedule interrupts that wait for the end of a section.
//!
//! # What it is
//! The CPUs that this CPU is about to interrupt: [`later`] adds one, [`send`] interrupts them.
//!
//! # How it works
//! The scheduler asks for an interrupt while the caller still holds the lock of a pipe or a wait queue,
//! which is the first thing that the woken thread takes. Sent at once, the interrupt makes the other CPU spin for that
//! lock; under QEMU without KVM a spinning CPU keeps the one lock of all devices so busy that the sender's
//! access to its interrupt controller takes milliseconds. So it is only noted, and sent when the section of interrupts off
//! that asked for it ends, or before it switches to another thread, with the lock given up.
//!
//! # Invariants
//! 1. A CPU's note is touched by that CPU only, with interrupts off.
//! 2. Interrupts are turned on, the CPU halts or goes to another thread only after [`send`].
//!
//! # Cost
//! Four instructions at the end of every section and before every switch.

use core::sync::atomic::{AtomicU64, Ordering};

use super::apic;
use super::percpu::{CpuLocal, MAX_CPUS};
use crate::cpu_local;

const _: () = assert!(MAX_CPUS <= 64, "a note has a bit for each CPU");

/// Each CPU's note: a bit for each CPU to interrupt.
static NOTES: CpuLocal<AtomicU64> = cpu_local!(AtomicU64::new(0));

/// Interrupts CPU `cpu` at the end of the section, so that it looks at its run queue.
#[inline]
pub fn later(cpu: usize) {
    let note = NOTES.here();
    note.store(note.load(Ordering::Relaxed) | 1 << cpu, Ordering::Relaxed);
}

/// Interrupts the CPUs on this CPU's note; at the end of every section.
#[inline(always)]
pub fn send() {
    if NOTES.here().load(Ordering::Relaxed) != 0 {
        send_noted();
    }
}

#[cold]
fn send_noted() {
    let note = NOTES.here();
    let mut cpus = note.load(Ordering::Relaxed);
    note.store(0, Ordering::Relaxed);
    while cpus != 0 {
        apic::send_reschedule(cpus.trailing_zeros() as usize);
        cpus &= cpus - 1;
    }
}
