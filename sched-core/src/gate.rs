//! # What it is
//! The switch in front of every observer (statistics, pressure): a type that says whether the observer is compiled in,
//! and a value that says whether it is on.
//!
//! # How it works
//! A [`Gate`] is chosen per observer in [`Config`](crate::Config).
//! [`Never`] folds away: its `on()` is the constant `false` and its [`Gate::Store`] has no size,
//! so an observer that is compiled out leaves neither an instruction nor a byte.
//! [`Switch`] is one relaxed load; it is a field of the scheduler, so two schedulers do not share it.
//!
//! # Invariants
//! 1. Behind a gate that is off nothing is written.
//! 2. No decision of the scheduler depends on a gate.
//!
//! # Cost
//! `Never`: nothing. `Switch`: one load and one branch a site.

use core::sync::atomic::{AtomicBool, Ordering};

/// A switch known by type.
pub trait Gate: Send + Sync + 'static {
    /// Storage that exists only where the observer is compiled in.
    type Store<T: Default + Send + Sync>: Store<T> + Default + Send + Sync;

    /// True where the observer's code and storage exist at all.
    const BUILT: bool;

    /// Whether the observer listens.
    fn on(&self) -> bool;
}

/// Access to storage that may not exist.
pub trait Store<T> {
    /// The stored value, or `None` where the observer is compiled out. Folds to a constant.
    fn get(&self) -> Option<&T>;
}

/// Compiled out. No code, no storage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Never;

/// The storage of an observer that is compiled out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl<T> Store<T> for Nothing {
    #[inline(always)]
    fn get(&self) -> Option<&T> {
        None
    }
}

impl Gate for Never {
    type Store<T: Default + Send + Sync> = Nothing;
    const BUILT: bool = false;

    #[inline(always)]
    fn on(&self) -> bool {
        false
    }
}

/// The storage of an observer that is compiled in.
#[derive(Debug, Default)]
pub struct Present<T>(T);

impl<T> Store<T> for Present<T> {
    #[inline(always)]
    fn get(&self) -> Option<&T> {
        Some(&self.0)
    }
}

/// Compiled in, on or off as it was made.
///
/// It is set when the scheduler is made and stays as it is:
/// an observer that counts from the start never has to guess what it missed.
#[derive(Debug, Default)]
pub struct Switch(AtomicBool);

impl Switch {
    /// A gate that is on or off from the start.
    pub const fn new(state: State) -> Self {
        Self(AtomicBool::new(matches!(state, State::On)))
    }
}

/// How a [`Switch`] starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The observer listens.
    On,
    /// The observer is silent.
    Off,
}

impl Gate for Switch {
    type Store<T: Default + Send + Sync> = Present<T>;
    const BUILT: bool = true;

    #[inline(always)]
    fn on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

static_assertions::assert_eq_size!(<Never as Gate>::Store<[u64; 4]>, ());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiled_out_gate_is_off_and_has_no_storage() {
        assert!(!Never.on());
        let store = <Never as Gate>::Store::<u64>::default();
        assert!(Store::<u64>::get(&store).is_none());
    }

    #[test]
    fn a_switch_keeps_the_state_it_was_made_with() {
        assert!(Switch::new(State::On).on());
        assert!(!Switch::new(State::Off).on());
        let store = <Switch as Gate>::Store::<u64>::default();
        assert_eq!(store.get(), Some(&0));
    }
}
