//! # What it is
//! The text of `/proc/pressure/cpu`.
//!
//! # How it works
//! One line for *some*, one for *full*.
//! The CPU of a whole system is never *fully* stalled, because whoever holds the CPU is the system's own task:
//! that line is there for programs that expect it, and all zeros.
//!
//! # Invariants
//! 1. Totals are whole microseconds, cut off, not rounded.
//!
//! # Cost
//! That of formatting.

use core::fmt::{self, Write};

use crate::stats::psi::Pressure;

/// Nanoseconds in the unit of a total.
const NANOS_PER_MICRO: u64 = 1_000;

/// Writes the two lines of `/proc/pressure/cpu`.
///
/// ```
/// use sched_core::{Pressure, PressureAverage, text::pressure};
///
/// let mut text = String::new();
/// let some = Pressure { avg10: PressureAverage::from_raw(2 * 2048 + 1024), total: 1_234_567, ..Pressure::default() };
/// pressure::write_cpu(&mut text, &some)?;
/// assert_eq!(text, "\
/// some avg10=2.50 avg60=0.00 avg300=0.00 total=1234
/// full avg10=0.00 avg60=0.00 avg300=0.00 total=0
/// ");
/// # Ok::<(), core::fmt::Error>(())
/// ```
///
/// # Errors
/// Those of the writer.
pub fn write_cpu(w: &mut (impl Write + ?Sized), some: &Pressure) -> fmt::Result {
    line(w, "some", some)?;
    line(w, "full", &Pressure::default())
}

fn line(w: &mut (impl Write + ?Sized), kind: &str, pressure: &Pressure) -> fmt::Result {
    let Pressure { avg10, avg60, avg300, total } = pressure;
    let micros = total / NANOS_PER_MICRO;
    writeln!(w, "{kind} avg10={avg10} avg60={avg60} avg300={avg300} total={micros}")
}
