//! The machine: everything that knows it runs on an x86_64 CPU.
//!
//! # What it is
//! The floor between the bare CPU and the thread layer.
//! It knows interrupts, clocks and stacks; it knows no scheduler, and calls the layer above only through [`hooks`].
//!
//! # How it works
//! `boot` hands over on the final page tables with interrupts off.
//! Each CPU then installs, in this order: its GDT and TSS ([`gdt`]), its per-CPU block ([`percpu`]), the shared IDT
//! ([`idt`]), its local APIC ([`apic`]) and timer ([`timer`]).
//! The boot CPU calibrates the clock ([`calibrate`]) before it starts the others, and compares each with its own
//! ([`tsc_sync`]).
//!
//! # Invariants
//! 1. The kernel runs in ring 0 only, so GS always holds the running CPU's block and no entry path swaps it.
//! 2. Device interrupts run on the interrupted stack and have been acknowledged before any hook runs,
//!    so a hook may switch stacks.
//! 3. No floating-point register is used by kernel code (the target is soft-float), so none is saved.
//!
//! # Cost
//! `cpu_index`, `current` and the preemption count are one instruction each; the clock is eight.

pub mod apic;
pub mod backtrace;
pub mod calibrate;
pub mod exit;
pub mod gdt;
pub mod hooks;
pub mod idt;
pub mod irq;
pub mod kick;
pub mod percpu;
pub mod switch;
pub mod timer;
pub mod tsc;
pub mod tsc_sync;
pub mod vectors;
