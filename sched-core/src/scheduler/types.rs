//! # What it is
//! The words of the front door: what is asked, what is answered, what can be refused.
//!
//! # How it works
//! Plain enums and structs. Only [`Sleep`] has a life of its own: it is the mark "about to sleep" on the current task,
//! which a wake-up takes away, which `schedule` turns into sleep, and which dropping takes back.
//!
//! # Invariants
//! 1. A [`Sleep`] belongs to the current task and does not leave its thread.
//!
//! # Cost
//! One compare-and-swap to fall asleep.

use core::{
    fmt,
    marker::PhantomData,
    ptr::NonNull,
    sync::atomic::Ordering::{AcqRel, Acquire, Relaxed},
};

use crate::{
    config::Config,
    mask::CpuMask,
    params::TaskParams,
    platform::CpuId,
    sync::Word,
    task::{SchedTask, TaskPtr, TaskRef, state},
};

/// The embedder's task type of a configuration.
pub type Target<C> = <<C as Config>::Task as TaskPtr<C>>::Target;

/// The gates of the observers, as they start.
pub struct Gates<C: Config> {
    /// The counters.
    pub schedstats: C::Schedstats,
    /// Pressure stall information.
    pub psi: C::Psi,
    /// The work-conservation watch.
    pub watch: C::Watch,
}

// By hand: derived implementations would ask the same of the configuration itself.
impl<C: Config<Schedstats: Default, Psi: Default, Watch: Default>> Default for Gates<C> {
    fn default() -> Self {
        Self { schedstats: Default::default(), psi: Default::default(), watch: Default::default() }
    }
}

impl<C: Config<Schedstats: fmt::Debug, Psi: fmt::Debug, Watch: fmt::Debug>> fmt::Debug for Gates<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gates")
            .field("schedstats", &self.schedstats)
            .field("psi", &self.psi)
            .field("watch", &self.watch)
            .finish()
    }
}

/// A mistake of the embedder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No CPU, or more than the mask can name.
    CpuCount {
        /// How many queues were given.
        queues: usize,
        /// How many CPUs the mask can name.
        mask: usize,
    },
    /// A queue belongs to another scheduler, or belonged to one.
    QueueTaken(CpuId),
    /// No CPU of the mask is online.
    NoOnlineCpu,
    /// The CPU number is not below the number of queues.
    NoSuchCpu(CpuId),
    /// The CPU is online already.
    AlreadyOnline(CpuId),
    /// The CPU is not online.
    NotOnline(CpuId),
    /// The CPU runs a task of the fair class.
    NotIdle(CpuId),
    /// No other CPU is online.
    LastCpu(CpuId),
    /// The task was spawned before.
    AlreadySpawned,
    /// The CPU has a stop task already.
    StopTaskTaken(CpuId),
    /// The idle task and the stop task of a CPU keep their CPU and parameters.
    NotFair,
    /// The task was spawned in another scheduler, or in none.
    NotOurs,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CpuCount { queues, mask } => write!(f, "{queues} CPU queues given, 1 to {mask} accepted"),
            Self::QueueTaken(cpu) => write!(f, "the queue of CPU {} belongs to another scheduler", cpu.0),
            Self::NoOnlineCpu => write!(f, "the affinity mask holds no CPU that is online"),
            Self::NoSuchCpu(cpu) => write!(f, "CPU {} has no queue", cpu.0),
            Self::AlreadyOnline(cpu) => write!(f, "CPU {} is online already", cpu.0),
            Self::NotOnline(cpu) => write!(f, "CPU {} is not online", cpu.0),
            Self::NotIdle(cpu) => {
                write!(f, "CPU {} runs a task: only its idle or stop task can take it offline", cpu.0)
            }
            Self::LastCpu(cpu) => write!(f, "CPU {} is the last one online", cpu.0),
            Self::AlreadySpawned => write!(f, "the task was spawned before"),
            Self::StopTaskTaken(cpu) => write!(f, "CPU {} has a stop task already", cpu.0),
            Self::NotFair => write!(f, "the idle task and the stop task keep their CPU and parameters"),
            Self::NotOurs => write!(f, "the task was not spawned in this scheduler"),
        }
    }
}

impl core::error::Error for Error {}

/// A task pointer that could not be taken, with the reason.
pub struct Rejected<C: Config> {
    /// The pointer, given back.
    pub task: C::Task,
    /// Why.
    pub error: Error,
}

impl<C: Config> fmt::Debug for Rejected<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("error", &self.error).finish_non_exhaustive()
    }
}

/// What a new task starts with.
pub struct Spawn<C: Config> {
    /// Nice value, policy, slice.
    pub params: TaskParams,
    /// Where it may run.
    pub affinity: C::Mask,
}

impl<C: Config> Clone for Spawn<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C: Config> Copy for Spawn<C> {}

impl<C: Config> fmt::Debug for Spawn<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawn").field("params", &self.params).field("affinity", &self.affinity).finish()
    }
}

impl<C: Config> Default for Spawn<C> {
    fn default() -> Self {
        Self { params: TaskParams::default(), affinity: C::Mask::ALL }
    }
}

/// Why the current task calls [`Scheduler::schedule`](crate::Scheduler::schedule).
pub enum Reason<C: Config> {
    /// A request is pending. The task stays runnable, also between `prepare` and `schedule`.
    Preempt,
    /// The task lets others go first.
    Yield,
    /// The task sleeps, unless it was woken since [`Scheduler::prepare`](crate::Scheduler::prepare).
    Block(Sleep<C>),
    /// The task ends. It is given back by [`Scheduler::finish_switch`](crate::Scheduler::finish_switch).
    Exit,
}

impl<C: Config> fmt::Debug for Reason<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preempt => "Preempt",
            Self::Yield => "Yield",
            Self::Block(_) => "Block",
            Self::Exit => "Exit",
        })
    }
}

/// What the CPU has to do now.
#[must_use = "a decision that is not carried out leaves the scheduler wrong about who runs"]
pub enum Decision<C: Config> {
    /// Go on with the current task.
    Stay,
    /// Save `prev`, continue `next`, and call [`Scheduler::finish_switch`](crate::Scheduler::finish_switch) there.
    Switch {
        /// The task to leave. Valid until `finish_switch`.
        prev: NonNull<Target<C>>,
        /// The task to continue. Valid while it is current.
        next: NonNull<Target<C>>,
    },
}

/// The current task is about to sleep. Dropping it takes that back.
#[must_use = "dropping a Sleep cancels it"]
pub struct Sleep<C: Config> {
    task: NonNull<SchedTask<C>>,
    _not_send: PhantomData<*mut ()>,
}

impl<C: Config> Sleep<C> {
    /// The task goes on.
    pub fn cancel(self) {}

    pub(super) fn of(current: TaskRef<C>) -> Self {
        Self { task: current.as_ptr(), _not_send: PhantomData }
    }

    pub(super) fn belongs_to(&self, task: TaskRef<C>) -> bool {
        self.task == task.as_ptr()
    }

    /// Goes to sleep. False if a wake-up came first.
    pub(super) fn commit(self) -> bool {
        // SAFETY: the current task is alive while it runs, and only it holds its `Sleep`.
        let task = unsafe { TaskRef::new(self.task) };
        core::mem::forget(self);
        // Acquire: a task that goes on because it was woken sees what its waker wrote.
        let prepared = task.words.state.load(Acquire);
        matches!(prepared, state::PREPARED_INTERRUPTIBLE | state::PREPARED_UNINTERRUPTIBLE)
            && task
                .words
                .state
                .compare_exchange(prepared, prepared + state::PREPARED_TO_BLOCKED, AcqRel, Acquire)
                .is_ok()
    }
}

impl<C: Config> fmt::Debug for Sleep<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sleep").field(&self.task).finish()
    }
}

impl<C: Config> Drop for Sleep<C> {
    fn drop(&mut self) {
        // SAFETY: as in `commit`.
        let task = unsafe { TaskRef::new(self.task) };
        // A waker that came first wrote the same.
        task.words.state.store(state::RUNNABLE, Relaxed);
    }
}

/// What a wake-up did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The task was asleep, or about to sleep, and is not any more.
    Yes,
    /// It was not asleep: nothing was done.
    No,
}

/// Mistakes that were noticed and survived. All zero, or there is a bug.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Counts picks that found nobody eligible in a queue that was not empty.
    pub picks_without_eligible: u64,
    /// Counts decisions that came before [`finish_switch`](crate::Scheduler::finish_switch) of the switch before:
    /// a mistake of the embedder. The task that was left then is lost.
    pub unfinished_switches: u64,
    /// Counts pressure events that did not fit the task's flags or the CPU's counts.
    pub pressure_inconsistencies: u64,
}
