//! How the CPUs are to be shared, as the command line says it.
//!
//! # What it is
//! [`Asked`], the list of `sched_features=`, and [`Shown`], the line that names the algorithm at boot.
//!
//! # How it works
//! A list is read from left to right, so of two items for one feature the later wins.
//! An item that names no feature is passed over and costs a line; the same one again costs none.
//!
//! # Invariants
//! 1. Any bytes at all can be read; an item that cannot is left out, and the others are not touched by it.
//! 2. What is said of an item fits on a line, whatever is in it.
//!
//! # Cost
//! A look through the table of features for each item, at boot.

use alloc::vec::Vec;
use core::fmt;

use sched_core::{Algorithm, Feature, FeatureError, Nanos, Tunables};

use crate::figures::Decimal;
use crate::param::Cut;

const NANOS_PER_MS: u128 = 1_000_000;

/// The features that the command line turns on or off, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked(Vec<(Feature, bool)>);

/// The algorithm and what it is tuned by, for people.
#[derive(Clone, Copy, Debug)]
pub struct Shown(pub Tunables);

/// Why an item was passed over.
struct PassedOver<'a>(&'a [u8], FeatureError);

impl Asked {
    /// Reads a list; `say` gets one line for each item that is passed over.
    pub fn read(list: Option<&[u8]>, say: &mut dyn FnMut(fmt::Arguments<'_>)) -> Self {
        let mut asked = Self::default();
        let mut passed_over: Vec<&[u8]> = Vec::new();
        for item in list.into_iter().flat_map(|list| list.split(|&byte| byte == b',')) {
            match Feature::parse(item) {
                Ok(change) => asked.0.push(change),
                Err(_) if passed_over.contains(&item) => {}
                Err(error) => {
                    passed_over.push(item);
                    say(format_args!("{}", PassedOver(item, error)));
                }
            }
        }
        asked
    }

    /// The changes, in order.
    pub fn changes(&self) -> impl Iterator<Item = (Feature, bool)> + '_ {
        self.0.iter().copied()
    }

    /// Whether nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for PassedOver<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(item, error) = *self;
        write!(
            f,
            "param: sched_features: '{}' is ignored: {error}; accepted: NAME or NO_NAME, where NAME is",
            Cut(item)
        )?;
        let (last, others) = Feature::ALL.split_last().ok_or(fmt::Error)?;
        for feature in others {
            write!(f, " {},", feature.name())?;
        }
        write!(f, " or {}", last.name())
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |nanos: u32| Decimal::quotient(Nanos::from(nanos).into(), NANOS_PER_MS, 3);
        match self.0.algorithm {
            Algorithm::Eevdf => write!(f, "eevdf, base slice {} ms", ms(self.0.base_slice.nanos())),
            Algorithm::Cfs => {
                let cfs = self.0.cfs;
                let (latency, granularity) = (ms(cfs.latency), ms(cfs.min_granularity));
                let wakeup = ms(cfs.wakeup_granularity);
                write!(f, "cfs, latency {latency} ms, granularity {granularity} ms, wake-up {wakeup} ms")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(list: &str) -> (Vec<(Feature, bool)>, Vec<String>) {
        let mut lines = Vec::new();
        let asked = Asked::read(Some(list.as_bytes()), &mut |line| lines.push(line.to_string()));
        (asked.changes().collect(), lines)
    }

    #[test]
    fn items_are_taken_in_order() {
        let (changes, lines) = read("NEXT_BUDDY,NO_RUN_TO_PARITY, NEXT_BUDDY ,NO_NEXT_BUDDY");
        assert_eq!(lines, [""; 0]);
        let (buddy, parity) = (Feature::NextBuddy, Feature::RunToParity);
        assert_eq!(changes, [(buddy, true), (parity, false), (buddy, true), (buddy, false)]);
        assert!(Asked::read(None, &mut |line| panic!("{line}")).is_empty());
    }

    #[test]
    fn each_bad_item_is_said_once_and_the_others_are_taken() {
        let long = "X".repeat(64);
        let list = format!("NO_NO_NEXT_BUDDY,,NEXT_BUDDY,next_buddy,NEXT-BUDDY,NO_,{long},,NO_PLACE_LAG,NO_");
        let (changes, lines) = read(&list);
        assert_eq!(changes, [(Feature::NextBuddy, true), (Feature::PlaceLag, false)]);
        let accepted = "accepted: NAME or NO_NAME, where NAME is PLACE_LAG, PLACE_DEADLINE_INITIAL, PLACE_REL_DEADLINE, \
                        RUN_TO_PARITY, PREEMPT_SHORT, NEXT_BUDDY, PICK_BUDDY, DELAY_DEQUEUE, DELAY_ZERO, \
                        WAKEUP_PREEMPTION, GENTLE_FAIR_SLEEPERS, START_DEBIT, LAST_BUDDY, BASE_SLICE, or UTIL_EST";
        let cut = "X".repeat(48);
        let expected = [
            ("NO_NO_NEXT_BUDDY", "no such feature"),
            ("", "no feature is named"),
            ("next_buddy", "no such feature"),
            ("NEXT-BUDDY", "no such feature"),
            ("NO_", "no such feature"),
            (&format!("{cut}..."), "more than 63 bytes"),
        ];
        let expected =
            expected.map(|(item, why)| format!("param: sched_features: '{item}' is ignored: {why}; {accepted}"));
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_algorithm_is_shown_with_what_it_is_tuned_by() {
        let (eight, one) = (Tunables::for_cpus(8), Tunables::for_cpus(1).with(Algorithm::Cfs));
        assert_eq!(Shown(eight).to_string(), "eevdf, base slice 2.800 ms");
        let cfs = Shown(eight.with(Algorithm::Cfs)).to_string();
        assert_eq!(cfs, "cfs, latency 24.000 ms, granularity 3.000 ms, wake-up 4.000 ms");
        assert_eq!(Shown(one).to_string(), "cfs, latency 6.000 ms, granularity 0.750 ms, wake-up 1.000 ms");
    }

    proptest! {
        #[test]
        fn no_list_panics_or_floods(list in proptest::collection::vec(any::<u8>(), 0..2048)) {
            Asked::read(Some(&list), &mut |line| {
                let line = line.to_string();
                assert!(!line.contains('\n') && line.len() < 1024, "{line}");
            });
        }
    }
}
