//! What the kernel does without a machine.
//!
//! # What it is
//! The parts of the kernel that only read and write text: the command line, the list of workloads, the figures, the frames
//! around dumped files. The kernel itself (`main.rs`) uses them; here they are tested on the host.
//!
//! # How it works
//! | module | from | to |
//! |---|---|---|
//! | [`param`] | the command line | [`param::Settings`] and lines about what was wrong |
//! | [`plan`] | `run=` | workloads with checked options, or why not |
//! | [`rules`] | `sched_features=` and the algorithm | the features to change, and a line that names the algorithm |
//! | [`figures`] | nanoseconds and counts | the tools' output and the `bench` line |
//! | [`dump`] | `dump=` | the files to print, and their frames |
//!
//! # Invariants
//! 1. No input at all makes anything here panic.
//! 2. No floating point.
//!
//! # Cost
//! Used before and after what is measured, never during it.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod dump;
pub mod figures;
pub mod param;
pub mod plan;
pub mod rules;
pub mod topology;

// Of the machine layer, but as pure as the rest: its tests run here.
#[cfg(test)]
mod ratio;
#[cfg(test)]
mod symbols;
