//! The observers: what the scheduler lets others see. Each stands behind a gate of its own and decides nothing.

pub(crate) mod psi;
pub(crate) mod schedstat;
pub(crate) mod watch;

/// What becomes of the task that is switched away from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prev {
    /// It is still runnable on this CPU.
    Queued,
    /// It sleeps, is dead, or goes to another CPU.
    Gone,
}
