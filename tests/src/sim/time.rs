//! Time as CPUs see it, and as people write it.
//!
//! # What it is
//! [`Clock`] turns true time into what the clock of one CPU shows. [`Span`] is a length of time in a script: fixed, or left to chance.
//!
//! # How it works
//! A clock starts at an offset and runs fast or slow by so many parts per million.
//!
//! # Invariants
//! 1. A clock never falls.
//!
//! # Cost
//! A multiplication a reading.

use std::{fmt, str::FromStr};

use super::{MS, Nanos, SECOND, US};

/// The clock of one CPU.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What it shows when true time begins.
    pub start: Nanos,
    /// How much faster it runs than true time, in parts per million.
    pub drift_ppm: i64,
}

impl Clock {
    /// What the clock shows at `now`.
    #[inline]
    pub fn at(self, now: Nanos) -> Nanos {
        // 10 s and 1000 ppm fit easily; a run of years would not.
        let drift = now as i128 * i128::from(self.drift_ppm) / 1_000_000;
        (i128::from(self.start) + i128::from(now) + drift) as Nanos
    }
}

/// A length of time: fixed, or anything from a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The least.
    pub from: Nanos,
    /// The most.
    pub to: Nanos,
}

impl Span {
    /// Always `nanos`.
    pub const fn fixed(nanos: Nanos) -> Self {
        Self { from: nanos, to: nanos }
    }

    /// One of the range, by chance.
    pub fn pick(self, chance: &mut fastrand::Rng) -> Nanos {
        if self.from == self.to { self.from } else { chance.u64(self.from..=self.to) }
    }
}

/// `100ns`, `20us`, `3ms` or `1s`.
pub fn parse_nanos(text: &str) -> Result<Nanos, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ns" => 1,
        "us" => US,
        "ms" => MS,
        "s" => SECOND,
        _ => return Err(format!("`{text}` is no time: a number and ns, us, ms or s, such as 20us")),
    };
    digits
        .parse::<Nanos>()
        .ok()
        .and_then(|count| count.checked_mul(unit))
        .filter(|nanos| *nanos <= 3600 * SECOND)
        .ok_or_else(|| format!("`{text}` is no time up to an hour"))
}

fn written(nanos: Nanos) -> String {
    [(SECOND, "s"), (MS, "ms"), (US, "us")]
        .into_iter()
        .find(|(unit, _)| nanos != 0 && nanos.is_multiple_of(*unit))
        .map_or_else(|| format!("{nanos}ns"), |(unit, name)| format!("{}{name}", nanos / unit))
}

impl FromStr for Span {
    type Err = String;

    /// A time, or two with `..` between.
    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once("..").unwrap_or((text, text));
        let span = Self { from: parse_nanos(from)?, to: parse_nanos(to)? };
        if span.from > span.to {
            return Err(format!("`{text}` ends before it begins"));
        }
        Ok(span)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&written(self.from))?;
        if self.to != self.from {
            write!(f, "..{}", written(self.to))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drifting_clock_gains_or_loses_and_never_falls() {
        let (fast, slow) = (Clock { start: 5, drift_ppm: 100 }, Clock { start: 0, drift_ppm: -100 });
        assert_eq!(fast.at(SECOND), 5 + SECOND + 100 * US);
        assert_eq!(slow.at(SECOND), SECOND - 100 * US);
        assert!((0..10_000).all(|now| slow.at(now) <= slow.at(now + 1)));
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        for text in ["1s", "20us", "1500ns", "2ms..7ms", "0ns"] {
            assert_eq!(text.parse::<Span>().map(|span| span.to_string()), Ok(text.into()));
        }
        for wrong in ["", "5", "ms", "-1ms", "1.5ms", "3ms..2ms", "99999999999999999999s", "2h", "1ms.."] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
    }
}
