//! # What it is
//! Nice values and what they weigh.
//! A task of weight *w* among tasks of total weight *W* gets the share *w / W* of its CPU.
//!
//! # How it works
//! A step of one in nice changes the weight by about 1.25, which is about 10 % of a CPU between two tasks.
//! The table is the one every Linux has used since 2.6.23; beside each weight lies its inverse, 2^32 / weight rounded to a
//! whole number (down in four entries where up is nearer), so that [`Weight::virtual_time`] multiplies and shifts and never divides.
//!
//! # Invariants
//! 1. Weights fall strictly with nice; none is 0.
//! 2. At nice 0 virtual time is real time.
//!
//! # Cost
//! One 64 x 64 multiplication per scaling.

use crate::{platform::Nanos, vtime::VSpan};

/// A nice value, -20 (heaviest) to 19 (lightest). The default is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nice(i8);

/// A nice value outside -20..=19.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NiceOutOfRange(pub i32);

impl core::fmt::Display for NiceOutOfRange {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "nice {} is outside -20..=19", self.0)
    }
}

impl core::error::Error for NiceOutOfRange {}

impl Nice {
    /// The heaviest.
    pub const MIN: Self = Self(-20);
    /// The lightest.
    pub const MAX: Self = Self(19);
    /// The default, 0.
    pub const ZERO: Self = Self(0);

    /// Checks the range.
    ///
    /// # Errors
    /// [`NiceOutOfRange`] outside -20..=19.
    pub const fn new(nice: i32) -> Result<Self, NiceOutOfRange> {
        if nice < -20 || nice > 19 { Err(NiceOutOfRange(nice)) } else { Ok(Self(nice as i8)) }
    }

    /// The number.
    pub const fn get(self) -> i32 {
        self.0 as i32
    }

    pub(crate) const fn index(self) -> usize {
        (self.0 + 20) as usize
    }
}

/// What an entity weighs, with the inverse that scales its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    value: u32,
    inverse: u32,
}

/// 2^22 = 2^32 / 1024: the shift that turns a 32-bit inverse into a factor relative to nice 0.
const SHIFT: u32 = 22;

const fn weight(value: u32, inverse: u32) -> Weight {
    Weight { value, inverse }
}

const TABLE: [Weight; 40] = [
    weight(88761, 48388),
    weight(71755, 59856),
    weight(56483, 76040),
    weight(46273, 92818),
    weight(36291, 118348),
    weight(29154, 147320),
    weight(23254, 184698),
    weight(18705, 229616),
    weight(14949, 287308),
    weight(11916, 360437),
    weight(9548, 449829),
    weight(7620, 563644),
    weight(6100, 704093),
    weight(4904, 875809),
    weight(3906, 1099582),
    weight(3121, 1376151),
    weight(2501, 1717300),
    weight(1991, 2157191),
    weight(1586, 2708050),
    weight(1277, 3363326),
    weight(1024, 4194304),
    weight(820, 5237765),
    weight(655, 6557202),
    weight(526, 8165337),
    weight(423, 10153587),
    weight(335, 12820798),
    weight(272, 15790321),
    weight(215, 19976592),
    weight(172, 24970740),
    weight(137, 31350126),
    weight(110, 39045157),
    weight(87, 49367440),
    weight(70, 61356676),
    weight(56, 76695844),
    weight(45, 95443717),
    weight(36, 119304647),
    weight(29, 148102320),
    weight(23, 186737708),
    weight(18, 238609294),
    weight(15, 286331153),
];

impl Weight {
    /// The weight of nice 0, against which all time is scaled.
    pub const NICE_0: Self = Self::of(Nice::ZERO);
    /// The weight of every task of [`Policy::Idle`](crate::Policy::Idle), whatever its nice value.
    pub const IDLE: Self = weight(3, 1431655765);

    /// The weight of a nice value.
    pub const fn of(nice: Nice) -> Self {
        TABLE[nice.index()]
    }

    /// The weight as a number; nice 0 is 1024.
    #[inline(always)]
    pub const fn get(self) -> u32 {
        self.value
    }

    /// How much virtual time passes for this weight while `real` passes: `real * 1024 / weight`, rounded down.
    ///
    /// The product is taken in 128 bits, so no `real` overflows it;
    /// the result saturates at 2^63 - 1.
    #[inline(always)]
    pub fn virtual_time(self, real: Nanos) -> VSpan {
        let product = (u128::from(real) * u128::from(self.inverse)) >> SHIFT;
        VSpan::new(i64::try_from(product).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_millisecond_scales_as_published() {
        for (nice, expected) in [
            (-20, 11536),
            (-10, 107247),
            (-5, 328099),
            (-1, 801879),
            (0, 1000000),
            (1, 1248780),
            (5, 3056716),
            (10, 9309090),
            (19, 68266666),
        ] {
            let weight = Weight::of(Nice::new(nice).unwrap());
            assert_eq!(weight.virtual_time(1_000_000).get(), expected, "nice {nice}");
        }
        assert_eq!(Weight::IDLE.virtual_time(1_000_000).get(), 341333333);
    }

    #[test]
    fn inverses_are_off_by_less_than_one() {
        for weight in TABLE.into_iter().chain([Weight::IDLE]) {
            let (w, inverse) = (u64::from(weight.value), u64::from(weight.inverse));
            assert!((inverse * w).abs_diff(1 << 32) < w, "weight {w}");
            let nearest = ((1 << 32) + w / 2) / w;
            let published_lower = [56, 45, 29, 23].contains(&w);
            assert_eq!(inverse, nearest - u64::from(published_lower), "weight {w}");
        }
    }

    #[test]
    fn virtual_time_is_real_time_divided_by_weight() {
        for weight in TABLE.into_iter().chain([Weight::IDLE]) {
            for shift in 0..53 {
                let real: u64 = (1 << shift) | 0x5_5555_5555 & ((1 << shift) - 1);
                let exact = i128::from(real) * 1024 / i128::from(weight.value);
                let error = i128::from(weight.virtual_time(real).get()) - exact;
                // Half a unit in an inverse of at least 48388 is 1 part in 96776.
                assert!(error.abs() <= 1 + exact / 96_000, "weight {}, {real} ns", weight.value);
            }
        }
    }

    #[test]
    fn weights_fall_with_nice() {
        assert!(TABLE.windows(2).all(|pair| pair[0].value > pair[1].value));
        assert!(TABLE[39].value > Weight::IDLE.value);
    }

    #[test]
    fn nice_is_checked() {
        assert_eq!(Nice::new(20), Err(NiceOutOfRange(20)));
        assert_eq!(Nice::new(-21), Err(NiceOutOfRange(-21)));
        assert_eq!(Nice::new(-20), Ok(Nice::MIN));
        assert_eq!(Nice::default().get(), 0);
    }

    #[test]
    fn the_longest_time_saturates() {
        assert_eq!(Weight::of(Nice::MAX).virtual_time(u64::MAX).get(), i64::MAX);
        assert_eq!(Weight::of(Nice::ZERO).virtual_time(1 << 62).get(), 1 << 62);
    }
}
