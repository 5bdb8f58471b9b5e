//! # What it is
//! The three facts the scheduler needs from its machine: what time it is, which CPU this is, and how to kick another one.
//! Nothing else of the embedder is ever called.
//!
//! # How it works
//! The embedder implements [`Platform`] on a value of its own, which the scheduler holds.
//! There is no global: two schedulers in one process have two platforms.
//!
//! # Invariants
//! 1. `kick` is called with no lock of the core held.
//! 2. A request is visible in the queue of the kicked CPU before `kick` is called for it.
//!
//! # Cost
//! One `now` per lock section, one `this_cpu` per entry point, one `kick` per request that was not already pending.

/// A CPU, counted from 0 without gaps; the index of its queue in the slice the scheduler was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(pub u32);

impl CpuId {
    /// The index as the machine counts.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A point or a span of monotonic time, in nanoseconds.
pub type Nanos = u64;

/// What the machine tells the scheduler.
pub trait Platform {
    /// The clock of `cpu` in nanoseconds, as the calling CPU knows it.
    ///
    /// For the calling CPU the answer is exact and never falls.
    /// For another CPU it is an estimate:
    /// an error of *d* shows as an error of at most *d* in one wait or one run of that CPU,
    /// and never as time that runs backwards, because a queue drops negative steps.
    /// Machines whose clocks are synchronised return the same reading for every `cpu`.
    ///
    /// Called under the queue lock of `cpu`, with interrupts off: it must be short and must not call the scheduler.
    fn now(&self, cpu: CpuId) -> Nanos;

    /// The CPU that executes the call. Interrupts are off, so the answer stays true.
    fn this_cpu(&self) -> CpuId;

    /// Makes `cpu` look at its reschedule request soon: an interrupt, or a doorbell if it polls.
    ///
    /// Called with interrupts off and with no lock of the core held. It must not fail and must not wait for the
    /// other CPU. What the core wrote before the call must be visible to `cpu` when the kick arrives:
    /// where a doorbell can overtake stores, put a fence in front of it. It may be called for a CPU that is busy, idle, or on its way between the two.
    fn kick(&self, cpu: CpuId);
}
