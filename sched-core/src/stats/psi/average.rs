//! # What it is
//! Decaying averages in fixed point, with the very numbers Linux prints: the same samples give the same digits.
//!
//! # How it works
//! An [`Average`] is a percentage with 11 fraction bits.
//! Once a period it moves towards the sample of that period by a share that belongs to its horizon:
//! with a decay factor *e* out of 2048, the new value is `old * e + sample * (2048 - e)`, over 2048.
//! A rising average is rounded up and a falling one down, so that a steady sample is reached, and not only approached.
//!
//! # Invariants
//! 1. Samples of 0 to 100 keep an average between 0.00 and 100.00.
//! 2. A steady 100 ends at exactly 100.00.
//!
//! # Cost
//! Two multiplications a step; a decay over many periods takes two per bit of their number.

use core::fmt;

/// Bits behind the point.
const FRACTION_BITS: u32 = 11;

/// The number one.
const ONE: u64 = 1 << FRACTION_BITS;

/// A percentage of time that decays, from 0.00 to 100.00.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Average(u32);

impl Average {
    /// The average whose fixed-point value is `raw`: percent times 2048.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// Percent times 2048.
    #[must_use]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The average one period later, after a sample of `percent`.
    #[must_use]
    pub(crate) const fn after(self, percent: u64, decay: Decay) -> Self {
        Self::step(self.0 as u64, percent * ONE, decay.0)
    }

    /// The average `periods` later, if nothing was sampled in them.
    #[must_use]
    pub(crate) const fn after_silence(self, periods: u64, decay: Decay) -> Self {
        Self::step(self.0 as u64, 0, decay.over(periods))
    }

    const fn step(old: u64, sample: u64, decay: u64) -> Self {
        let round = if sample >= old { ONE - 1 } else { 0 };
        Self(((old * decay + sample * (ONE - decay) + round) / ONE) as u32)
    }
}

impl fmt::Display for Average {
    /// Writes `N.NN`. What lies behind the second digit is cut off.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = u64::from(self.0);
        let hundredths = ((raw & (ONE - 1)) * 100) >> FRACTION_BITS;
        write!(f, "{}.{hundredths:02}", raw >> FRACTION_BITS)
    }
}

/// The share of an average that is left after one period, in 2048ths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decay(u64);

impl Decay {
    /// For a horizon of 10 s, at one period in 2 s.
    pub(crate) const TEN_SECONDS: Self = Self(1677);
    /// For a horizon of 60 s.
    pub(crate) const ONE_MINUTE: Self = Self(1981);
    /// For a horizon of 300 s.
    pub(crate) const FIVE_MINUTES: Self = Self(2034);

    /// What is left after `periods`, by repeated squaring; each product is rounded to the nearest 2048th.
    const fn over(self, mut periods: u64) -> u64 {
        let mut left = ONE;
        let mut power = self.0;
        while periods > 0 {
            if periods & 1 == 1 {
                left = Self::product(left, power);
            }
            power = Self::product(power, power);
            periods >>= 1;
        }
        left
    }

    const fn product(a: u64, b: u64) -> u64 {
        (a * b + ONE / 2) >> FRACTION_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{format, string::ToString};

    const HORIZONS: [Decay; 3] = [Decay::TEN_SECONDS, Decay::ONE_MINUTE, Decay::FIVE_MINUTES];

    fn steps(start: [Average; 3], percent: u64, times: usize) -> [Average; 3] {
        (0..times).fold(start, |averages, _| core::array::from_fn(|i| averages[i].after(percent, HORIZONS[i])))
    }

    fn raw(averages: [Average; 3]) -> [u32; 3] {
        averages.map(Average::raw)
    }

    fn text(averages: [Average; 3]) -> std::string::String {
        let [a, b, c] = averages;
        format!("{a} {b} {c}")
    }

    #[test]
    fn full_pressure_climbs_as_in_the_reference() {
        for (times, expected, printed) in [
            (1, [37100, 6700, 1400], "18.11 3.27 0.68"),
            (2, [67480, 13181, 2791], "32.94 6.43 1.36"),
            (3, [92356, 19450, 4172], "45.09 9.49 2.03"),
            (4, [112726, 25514, 5544], "55.04 12.45 2.70"),
            (5, [129406, 31380, 6907], "63.18 15.32 3.37"),
        ] {
            let averages = steps([Average::default(); 3], 100, times);
            assert_eq!(raw(averages), expected, "after {times} periods");
            assert_eq!(text(averages), printed, "after {times} periods");
        }
    }

    #[test]
    fn silence_decays_as_in_the_reference() {
        let top = steps([Average::default(); 3], 100, 5);
        assert_eq!(raw(steps(top, 0, 1)), [105963, 30353, 6859]);
        assert_eq!(text(steps(top, 0, 1)), "51.73 14.82 3.34");
        assert_eq!(text(steps(top, 0, 2)), "42.36 14.33 3.32");
        assert_eq!(text(steps(top, 0, 3)), "34.69 13.86 3.30");
    }

    #[test]
    fn missed_periods_decay_at_once() {
        let top = steps([Average::default(); 3], 100, 5);
        let missed: [Average; 3] = core::array::from_fn(|i| top[i].after_silence(9, HORIZONS[i]));
        let averages = steps(missed, 0, 1);
        assert_eq!(raw(averages), [17488, 22512, 6447]);
        assert_eq!(text(averages), "8.53 10.99 3.14");
    }

    #[test]
    fn one_percent_shows() {
        let averages = steps([Average::default(); 3], 1, 1);
        assert_eq!(raw(averages), [371, 67, 14]);
        assert_eq!(text(averages), "0.18 0.03 0.00");
    }

    #[test]
    fn ten_periods_leave_what_the_reference_leaves() {
        assert_eq!(HORIZONS.map(|decay| decay.over(10)), [277, 1469, 1912]);
        assert_eq!(HORIZONS.map(|decay| decay.over(0)), [2048; 3]);
        assert_eq!(HORIZONS.map(|decay| decay.over(1)), [1677, 1981, 2034]);
        assert_eq!(HORIZONS.map(|decay| decay.over(u64::MAX)), [0; 3]);
    }

    #[test]
    fn a_steady_sample_is_reached() {
        let full = steps([Average::default(); 3], 100, 3000);
        assert_eq!(raw(full), [204_800; 3]);
        assert_eq!(text(full), "100.00 100.00 100.00");
        let half = steps([Average::default(); 3], 50, 1000);
        assert_eq!(text(half), "50.00 50.00 49.98");
        assert_eq!(raw(steps(full, 0, 5000)), [0; 3]);
    }

    #[test]
    fn the_second_digit_is_cut_and_padded() {
        assert_eq!(Average::from_raw(0).to_string(), "0.00");
        assert_eq!(Average::from_raw(2047).to_string(), "0.99");
        assert_eq!(Average::from_raw(2048 + 41).to_string(), "1.02");
        assert_eq!(Average::from_raw(2048 + 40).to_string(), "1.01");
        assert_eq!(Average::from_raw(7 * 2048 + 103).to_string(), "7.05");
    }

    proptest! {
        #[test]
        fn samples_keep_an_average_in_range(samples in prop::collection::vec((0u64..=100, 0u64..40), 1..200)) {
            let mut averages = [Average::default(); 3];
            for (percent, missed) in samples {
                for (average, decay) in averages.iter_mut().zip(HORIZONS) {
                    *average = average.after_silence(missed, decay).after(percent, decay);
                    prop_assert!(average.raw() <= 204_800);
                }
            }
        }
    }
}
