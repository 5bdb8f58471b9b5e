//! The kernel's files.
//!
//! # What it is
//! What each file of [`kernel::dump`] says now, and the dump at the end of a run.
//!
//! # How it works
//! The texts are those of [`sched_core::text`], over what the scheduler has counted and how it decides.
//!
//! # Invariants
//! 1. A file whose hook is off is neither made nor printed.
//!
//! # Cost
//! Reading a CPU's counters takes no lock, each feature a queue's; pressure is brought up to date first.

use alloc::string::String;

use kernel::dump::{File, Framed, chosen};
use kernel::param::{Built, Settings};
use kernel::rules::Asked;
use sched_core::Config;
use sched_core::text::{features, jiffies, pressure, schedstat};

use crate::arch::tsc;
use crate::config::KernelConfig;
use crate::lock::irq_off;
use crate::sched::scheduler;
use crate::{print, println};

/// Prints the files that the command line asks for; `asked` is what it did to the features.
pub fn dump(settings: &Settings<'_>, asked: &Asked) {
    let state = |hook| settings.hook(hook, Built::here());
    for file in chosen(settings.dump, state, asked, &mut |line| println!("{line}")) {
        if let Some(text) = read(file) {
            print!("{}", Framed { file, text: &text });
        }
    }
}

/// What `file` says now; none if its hook is off.
fn read(file: File) -> Option<String> {
    let mut text = String::new();
    let written = match file {
        File::Schedstat => {
            let cpus = scheduler().online().filter_map(|cpu| scheduler().cpu_stats(cpu).map(|stats| (cpu, stats)));
            let now = jiffies(tsc::now_ns(), KernelConfig::HZ);
            schedstat::write(&mut text, schedstat::Version::V17, now, cpus)
        }
        File::Features => irq_off(|irq| features::write(&mut text, |feature| scheduler().feature(irq, feature))),
        File::PressureCpu => pressure::write_cpu(&mut text, &irq_off(|irq| scheduler().cpu_pressure(irq))?),
    };
    // A `String` takes whatever is written to it.
    written.ok().map(|()| text)
}
