//! Ratios of frequencies, without division where it counts.
//!
//! # What it is
//! A ratio as a whole number with fractional bits, and the multiplication by it.
//!
//! # How it works
//! `mult` divides once, at boot; `scale` multiplies in 128 bits and shifts.
//!
//! # Invariants
//! 1. A ratio of one is exact: `scale` then returns its argument.
//! 2. `scale` never decreases when its argument grows.
//!
//! # Cost
//! `scale` is a multiplication and a double shift.

/// `to / from` with `shift` fractional bits, rounded to the nearest.
pub fn mult(to: u64, from: u64, shift: u32) -> u64 {
    (((u128::from(to) << shift) + u128::from(from / 2)) / u128::from(from)) as u64
}

/// `value * mult`, less the `shift` fractional bits.
#[inline]
pub fn scale(value: u64, mult: u64, shift: u32) -> u64 {
    ((u128::from(value) * u128::from(mult)) >> shift) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const GHZ: u64 = 1_000_000_000;

    #[test]
    fn a_ratio_of_one_changes_nothing() {
        for shift in [32, 48] {
            let one = mult(GHZ, GHZ, shift);
            for value in [0, 1, 2, 999_999_999, 1 << 40, u64::MAX] {
                assert_eq!(scale(value, one, shift), value);
            }
        }
    }

    #[test]
    fn a_day_of_ticks_is_off_by_less_than_a_microsecond() {
        for hz in [100_000_000, 1_193_182_000, 2_596_115_366, 3_579_545_000, 5_999_999_999] {
            let day_ns = scale(hz * 86_400, mult(GHZ, hz, 48), 48);
            assert!(day_ns.abs_diff(86_400 * GHZ) < 1_000, "{hz}: {day_ns}");
        }
    }

    #[test]
    fn scaling_never_decreases() {
        let ratio = mult(GHZ, 2_596_115_366, 48);
        let mut last = 0;
        for value in (0..100_000).map(|step| step * 3 + (step << 30)) {
            let scaled = scale(value, ratio, 48);
            assert!(scaled >= last, "{value}");
            last = scaled;
        }
    }

    #[test]
    fn a_timer_rounded_up_is_not_early() {
        // What the timer does: nanoseconds to ticks and one more; back again it must not be less.
        for hz in [24_000_000, 62_500_000, 999_990_804, 1_000_000_000, 1_000_024_095] {
            let (to_ticks, to_ns) = (mult(hz, GHZ, 32), mult(GHZ, hz, 48));
            for ns in [0, 1, 7, 999, 4_000_000, 123_456_789, 3_999_999_999] {
                let ticks = scale(ns, to_ticks, 32) + 1;
                let came_ns = scale(ticks, to_ns, 48);
                assert!(came_ns + 1 >= ns, "{hz} Hz: {ns} ns came after {came_ns} ns");
            }
        }
    }
}
