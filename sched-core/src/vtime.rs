//! # What it is
//! Virtual time: real time divided by weight, as a point ([`VTime`]) and as a span ([`VSpan`]).
//!
//! # How it works
//! A point is a `u64` that wraps; two points are compared by the sign of their difference, never by value.
//! A span is that signed difference.
//! A fresh queue starts at [`VTime::START`], shortly before the wrap, so that a mistake shows within a millisecond of life.
//!
//! # Invariants
//! 1. Points that are compared lie less than 2^63 apart.
//!
//! # Cost
//! One subtraction per comparison.

use core::{
    cmp::Ordering,
    ops::{Add, AddAssign, Neg, Sub, SubAssign},
};

/// A point in the virtual time of one queue, in nanoseconds at nice 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VTime(u64);

/// The signed distance of two points in virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct VSpan(i64);

impl VTime {
    /// Where a fresh queue starts: 2^20 ns before the wrap.
    pub const START: Self = Self(0u64.wrapping_sub(1 << 20));

    /// A point by its raw number.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The raw number, as it is printed.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The earlier of two points.
    #[inline]
    pub fn earlier(self, other: Self) -> Self {
        if other < self { other } else { self }
    }

    /// The later of two points.
    #[inline]
    pub fn later(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
}

impl VSpan {
    /// No distance.
    pub const ZERO: Self = Self(0);

    /// A span of so many virtual nanoseconds.
    #[inline(always)]
    pub const fn new(nanos: i64) -> Self {
        Self(nanos)
    }

    /// The number of virtual nanoseconds.
    #[inline(always)]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// This span held within `-limit..=limit`.
    #[inline]
    pub fn clamp_to(self, limit: Self) -> Self {
        Self(self.0.clamp(-limit.0, limit.0))
    }

    /// `self * numerator / denominator`, in 128 bits, saturating. A zero denominator counts as 1.
    pub fn scaled(self, numerator: u64, denominator: u64) -> Self {
        let wide = i128::from(self.0) * i128::from(numerator);
        let quotient = match i64::try_from(wide) {
            // The common case needs no 128-bit division.
            Ok(narrow) if denominator <= i64::MAX as u64 => i128::from(narrow / (denominator.max(1) as i64)),
            _ => wide / i128::from(denominator.max(1)),
        };
        Self(quotient.clamp(i128::from(i64::MIN + 1), i128::from(i64::MAX)) as i64)
    }
}

/// Earlier is less, by the sign of the difference (I1).
impl PartialOrd for VTime {
    #[inline(always)]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for VTime {
    #[inline(always)]
    fn cmp(&self, other: &Self) -> Ordering {
        (*self - *other).0.cmp(&0)
    }
}

impl Sub for VTime {
    type Output = VSpan;
    #[inline(always)]
    fn sub(self, other: Self) -> VSpan {
        VSpan(self.0.wrapping_sub(other.0) as i64)
    }
}

impl Add<VSpan> for VTime {
    type Output = Self;
    #[inline(always)]
    fn add(self, span: VSpan) -> Self {
        Self(self.0.wrapping_add(span.0 as u64))
    }
}

impl Sub<VSpan> for VTime {
    type Output = Self;
    #[inline(always)]
    fn sub(self, span: VSpan) -> Self {
        Self(self.0.wrapping_sub(span.0 as u64))
    }
}

impl AddAssign<VSpan> for VTime {
    #[inline(always)]
    fn add_assign(&mut self, span: VSpan) {
        *self = *self + span;
    }
}

impl SubAssign<VSpan> for VTime {
    #[inline(always)]
    fn sub_assign(&mut self, span: VSpan) {
        *self = *self - span;
    }
}

impl Neg for VSpan {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self(self.0.wrapping_neg())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        let before = VTime::from_raw(u64::MAX - 10);
        let after = before + VSpan::new(20);
        assert_eq!(after.raw(), 9);
        assert!(before < after);
        assert_eq!(after - before, VSpan::new(20));
        assert_eq!(before.earlier(after), before);
        assert_eq!(after.earlier(before), before);
        assert_eq!(before.later(after), after);
        assert_eq!(after.later(before), after);
        assert!(VTime::START < VTime::from_raw(0));
    }

    #[test]
    fn scaling_keeps_sign_and_does_not_overflow() {
        assert_eq!(VSpan::new(-700).scaled(3, 2), VSpan::new(-1050));
        assert_eq!(VSpan::new(1 << 62).scaled(88761, 2), VSpan::new(i64::MAX));
        assert_eq!(VSpan::new(-(1 << 62)).scaled(88761, 2), VSpan::new(i64::MIN + 1));
        assert_eq!(VSpan::new(5).scaled(3, 0), VSpan::new(15));
    }
}
