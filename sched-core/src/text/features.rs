//! # What it is
//! The text of `/sys/kernel/debug/sched/features`: the rules of the fair policies, and which of them hold.
//!
//! # How it works
//! Every feature in the order of the table, each followed by a blank; one that is off has `NO_` in front.
//! What a write to the file does is [`Scheduler::write_features`](crate::Scheduler::write_features).
//!
//! # Invariants
//! 1. Each word of the line is accepted as a write, and changes nothing.
//!
//! # Cost
//! That of formatting.

use core::fmt::{self, Write};

use crate::features::Feature;

/// Writes the line.
///
/// ```
/// use sched_core::{Feature, text::features};
///
/// let mut text = String::new();
/// features::write(&mut text, Feature::default_on)?;
/// assert!(text.starts_with("PLACE_LAG PLACE_DEADLINE_INITIAL ") && text.contains(" NO_NEXT_BUDDY "));
/// assert!(text.ends_with(" \n"));
/// # Ok::<(), core::fmt::Error>(())
/// ```
///
/// # Errors
/// Those of the writer.
pub fn write(w: &mut (impl Write + ?Sized), is_on: impl Fn(Feature) -> bool) -> fmt::Result {
    for &feature in Feature::ALL {
        write!(w, "{}{} ", if is_on(feature) { "" } else { "NO_" }, feature.name())?;
    }
    writeln!(w)
}
