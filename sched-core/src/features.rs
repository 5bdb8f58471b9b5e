//! # What it is
//! The rules of the fair policies that can be taken out one by one, to see what each of them does: one table ([`Feature`]),
//! and the two ways to hold it ([`FeatureSet`]).
//!
//! # How it works
//! [`Fixed`] answers with the constants of the table, so a rule that is off leaves no code.
//! [`Switchable`] holds one bit a rule. Each queue has its set under its lock,
//! and [`Scheduler::set_feature`](crate::Scheduler::set_feature) changes all of them:
//! a decision sees every rule on or off as a whole, and there is no second copy that could be reported instead.
//!
//! # Invariants
//! 1. Both ways list the same names with the same defaults.
//! 2. A change that is refused changes nothing.
//!
//! # Cost
//! `Fixed`: nothing. `Switchable`: a bit test a rule.

use core::fmt;

macro_rules! features {
    ($($(#[doc = $what:literal])+ $feature:ident $name:literal $default:literal,)+) => {
        /// A rule of a fair policy that can be on or off. In the order in which they are listed.
        ///
        /// Names and defaults are Linux's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Feature {
            $($(#[doc = $what])+ $feature,)+
        }

        impl Feature {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$feature,)+];

            /// The name, as it is read and written.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$feature => $name,)+ }
            }

            /// Whether the rule holds unless it is taken out.
            pub const fn default_on(self) -> bool {
                match self { $(Self::$feature => $default,)+ }
            }

            /// What the rule does, in a sentence.
            pub const fn what(self) -> &'static str {
                match self { $(Self::$feature => concat!($($what),+).trim_ascii(),)+ }
            }
        }
    };
}

features! {
    /// EEVDF: an entity that joins a queue has the lag again with which it left.
    PlaceLag "PLACE_LAG" true,
    /// EEVDF: the first request of a new task is half a slice long.
    PlaceDeadlineInitial "PLACE_DEADLINE_INITIAL" true,
    /// EEVDF: an entity that moves to another queue goes on with its request there.
    PlaceRelDeadline "PLACE_REL_DEADLINE" true,
    /// EEVDF: who was picked runs for the shortest slice of the queue before an equal may preempt it.
    RunToParity "RUN_TO_PARITY" true,
    /// EEVDF: a wakee with a shorter slice may preempt a protected entity.
    PreemptShort "PREEMPT_SHORT" true,
    /// Prefers the last wakee in the next pick, if that is not unfair.
    NextBuddy "NEXT_BUDDY" false,
    /// EEVDF: a pick looks at the buddy that NEXT_BUDDY set.
    PickBuddy "PICK_BUDDY" true,
    /// EEVDF: an entity that sleeps with negative lag stays in the queue until it has paid.
    DelayDequeue "DELAY_DEQUEUE" true,
    /// EEVDF: staying in the queue asleep pays a debt and never earns credit.
    DelayZero "DELAY_ZERO" true,
    /// A wakee may preempt who runs.
    WakeupPreemption "WAKEUP_PREEMPTION" true,
    /// CFS: a wakee is placed half a latency before the others, not a whole one.
    GentleFairSleepers "GENTLE_FAIR_SLEEPERS" true,
    /// CFS: a new task is placed a slice after the others.
    StartDebit "START_DEBIT" true,
    /// CFS: who was preempted by a wakee is preferred when that one is done.
    LastBuddy "LAST_BUDDY" true,
    /// CFS: no slice is shorter than the minimum granularity.
    BaseSlice "BASE_SLICE" true,
    /// The utilisation of a task is remembered over its sleep.
    UtilEst "UTIL_EST" true,
}

const fn mask(feature: Feature) -> u32 {
    1 << feature as u32
}

const DEFAULTS: u32 = {
    let (mut defaults, mut at) = (0, 0);
    while at < Feature::ALL.len() {
        if Feature::ALL[at].default_on() {
            defaults |= mask(Feature::ALL[at]);
        }
        at += 1;
    }
    defaults
};

static_assertions::const_assert!(Feature::ALL.len() <= u32::BITS as usize);

/// A way to hold the features of one queue.
pub trait FeatureSet: Copy + Default + fmt::Debug + Send + Sync + 'static {
    /// Whether features can be changed.
    const SWITCHABLE: bool;

    /// Whether `feature` is on.
    fn on(self, feature: Feature) -> bool;

    /// Turns `feature` on or off; nothing where features are constants.
    fn set(&mut self, feature: Feature, on: bool);
}

/// The defaults of the table, as constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed;

impl FeatureSet for Fixed {
    const SWITCHABLE: bool = false;

    #[inline(always)]
    fn on(self, feature: Feature) -> bool {
        DEFAULTS & mask(feature) != 0
    }

    fn set(&mut self, _: Feature, _: bool) {}
}

/// Features that can be changed at run time. Starts with the defaults of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switchable(u32);

impl Default for Switchable {
    fn default() -> Self {
        Self(DEFAULTS)
    }
}

impl FeatureSet for Switchable {
    const SWITCHABLE: bool = true;

    #[inline(always)]
    fn on(self, feature: Feature) -> bool {
        self.0 & mask(feature) != 0
    }

    fn set(&mut self, feature: Feature, on: bool) {
        if on {
            self.0 |= mask(feature);
        } else {
            self.0 &= !mask(feature);
        }
    }
}

/// Why a written feature changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureError {
    /// Nothing, or only white space.
    Empty,
    /// More than [`Feature::LONGEST_WRITE`] bytes.
    TooLong,
    /// No feature has this name, with or without `NO_` in front.
    Unknown,
    /// Features are constants in this build.
    Fixed,
}

impl fmt::Display for FeatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "no feature is named"),
            Self::TooLong => write!(f, "more than {} bytes", Feature::LONGEST_WRITE),
            Self::Unknown => write!(f, "no such feature"),
            Self::Fixed => write!(f, "features are constants in this build"),
        }
    }
}

impl core::error::Error for FeatureError {}

impl Feature {
    /// The most bytes that one write may have.
    pub const LONGEST_WRITE: usize = 63;

    /// Reads one write: `NAME` turns a feature on, `NO_NAME` off. White space around it does not count, case does.
    ///
    /// # Errors
    /// [`FeatureError::Empty`], [`FeatureError::TooLong`], [`FeatureError::Unknown`].
    pub fn parse(written: &[u8]) -> Result<(Self, bool), FeatureError> {
        if written.len() > Self::LONGEST_WRITE {
            return Err(FeatureError::TooLong);
        }
        let word = written.trim_ascii();
        if word.is_empty() {
            return Err(FeatureError::Empty);
        }
        let (name, on) = word.strip_prefix(b"NO_").map_or((word, true), |name| (name, false));
        let named = Self::ALL.iter().find(|feature| feature.name().as_bytes() == name);
        named.map(|feature| (*feature, on)).ok_or(FeatureError::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_and_switches_start_alike() {
        for &feature in Feature::ALL {
            assert_eq!(Fixed.on(feature), feature.default_on(), "{feature:?}");
            assert_eq!(Switchable::default().on(feature), feature.default_on(), "{feature:?}");
        }
    }

    #[test]
    fn a_switch_changes_its_own_feature_only() {
        for &changed in Feature::ALL {
            let mut set = Switchable::default();
            set.set(changed, !changed.default_on());
            for &feature in Feature::ALL {
                assert_eq!(set.on(feature), feature.default_on() != (feature == changed));
            }
            set.set(changed, changed.default_on());
            assert_eq!(set, Switchable::default());
        }
    }

    #[test]
    fn constants_do_not_change() {
        let mut set = Fixed;
        set.set(Feature::NextBuddy, true);
        assert!(!set.on(Feature::NextBuddy));
    }

    #[test]
    fn every_name_is_read_back_on_and_off() {
        for &feature in Feature::ALL {
            let name = feature.name();
            assert_eq!(Feature::parse(name.as_bytes()), Ok((feature, true)));
            assert_eq!(Feature::parse(std::format!("  NO_{name} \n").as_bytes()), Ok((feature, false)));
            assert!(name.len() + 3 <= Feature::LONGEST_WRITE && !name.starts_with("NO_"));
            assert!(feature.what().ends_with('.') && !feature.what().starts_with(' '));
        }
    }

    #[test]
    fn what_is_no_feature_is_refused() {
        for unknown in
            ["NO_NO_PLACE_LAG", "place_lag", "PLACE_LAG NEXT_BUDDY", "PLACE_LA", "NO_", "NO_ PLACE_LAG", "\u{fc}"]
        {
            assert_eq!(Feature::parse(unknown.as_bytes()), Err(FeatureError::Unknown), "{unknown:?}");
        }
        for empty in ["", " ", "\n", " \t\r\n"] {
            assert_eq!(Feature::parse(empty.as_bytes()), Err(FeatureError::Empty), "{empty:?}");
        }
        let padded = std::format!("{:63}", "PLACE_LAG");
        assert_eq!(Feature::parse(padded.as_bytes()), Ok((Feature::PlaceLag, true)));
        let padded = std::format!("{:64}", "PLACE_LAG");
        assert_eq!(Feature::parse(padded.as_bytes()), Err(FeatureError::TooLong));
    }
}
