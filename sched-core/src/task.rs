//! # What it is
//! [`SchedTask`]: the scheduler's part of a task, a field of the embedder's own task type.
//! [`TaskPtr`]: how the scheduler gets from one to the other.
//!
//! # How it works
//! The embedder owns the memory. One owning pointer moves into the scheduler at spawn and comes back when the task is dead
//! and its CPU has left it. In between the scheduler follows plain pointers to the field; no reference count moves.
//!
//! ```text
//!            spawn                 schedule            finish_switch
//!   New ------------> Runnable <----------> (running) ---------------> given back
//!                      ^    ^                |     | Exit: Dead
//!                      |    | wake (CAS)     | prepare
//!                placed|    +----------- Prepared
//!                      |                     | schedule(Block) (CAS)
//!                   Waking <------------- Blocked
//!                            wake (CAS)
//! ```
//!
//! # Invariants
//! 1. `state` leaves Prepared and Blocked by compare-and-swap only, so of the task's own CPU and all wakers exactly one wins.
//! 2. Who moved the state to Waking owns the placement of the task until it is queued.
//! 3. `queued_on` changes to or from a CPU only under the lock of that CPU's queue.
//!    It names a queue also while the task is blocked and delayed there.
//! 4. `on_cpu` is Off before the task is in reach of any other CPU.
//! 5. `cpu` is changed only by the owner of a placement, under the lock of the new CPU's queue.
//!
//! # Cost
//! Four cache lines for the entity, one for these words, one for the mask; the counters are there only if compiled in.

use core::{
    fmt,
    ops::Deref,
    ptr::NonNull,
    sync::atomic::Ordering::{Acquire, Relaxed},
};

use crate::{
    config::Config,
    entity::{EntityRef, SchedEntity},
    gate::Gate,
    mask::{CpuMask, SharedMask},
    params::TaskParams,
    platform::CpuId,
    stats::{psi::PsiTask, schedstat::TaskCounters, watch::WatchTask},
    sync::{Family, Lock, Word},
};

/// What a task is doing, as the scheduler sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Not spawned yet.
    New,
    /// Runs or wants to run.
    Runnable,
    /// Runs, and has said that it is about to sleep.
    Prepared,
    /// Asleep.
    Blocked(SleepKind),
    /// Woken, and on its way to a queue.
    Waking,
    /// Has exited.
    Dead,
}

/// What kind of sleep a task sleeps. Statistics tell them apart; the scheduler does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepKind {
    /// Waits for something that may take for ever.
    Interruptible,
    /// Waits for something that will come soon.
    Uninterruptible,
}

pub(crate) mod state {
    //! The values of `SchedTask::state`. Blocked is Prepared plus 2.
    pub(crate) const NEW: u64 = 0;
    pub(crate) const RUNNABLE: u64 = 1;
    pub(crate) const PREPARED_INTERRUPTIBLE: u64 = 2;
    pub(crate) const PREPARED_UNINTERRUPTIBLE: u64 = 3;
    pub(crate) const BLOCKED_INTERRUPTIBLE: u64 = 4;
    pub(crate) const BLOCKED_UNINTERRUPTIBLE: u64 = 5;
    pub(crate) const WAKING: u64 = 6;
    pub(crate) const DEAD: u64 = 7;
    pub(crate) const PREPARED_TO_BLOCKED: u64 = 2;
}

pub(crate) mod on_cpu {
    //! The values of `SchedTask::on_cpu`.
    //! The last two ask the CPU that is leaving the task to place it once it has left.
    pub(crate) const OFF: u64 = 0;
    pub(crate) const ON: u64 = 1;
    pub(crate) const THEN_WAKE: u64 = 2;
    pub(crate) const THEN_MOVE: u64 = 3;
}

/// What decides about a task before fairness does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Shares its CPU by weight.
    Fair,
    /// Goes before all others, one a CPU.
    Stop,
    /// Runs when nobody else does, one a CPU.
    Idle,
}

/// The bits of `Words::owner` that hold the class.
const CLASS_BITS: u64 = 3;

/// The scheduler's part of a task.
#[repr(C, align(64))]
pub struct SchedTask<C: Config> {
    // First, so that a pointer to it is a pointer to the task.
    pub(crate) entity: SchedEntity<C::Sync>,
    pub(crate) words: Words<C::Sync>,
    pub(crate) mask: <C::Mask as CpuMask>::Shared<C::Sync>,
    /// Held while the mask is changed, so that two changes do not mix. Taken before any queue's lock.
    pub(crate) mask_writer: Lock<C::Sync, ()>,
    pub(crate) counters: <C::Schedstats as Gate>::Store<TaskCounters<C::Sync>>,
    pub(crate) psi: <C::Psi as Gate>::Store<PsiTask<C::Sync>>,
    pub(crate) watch: <C::Watch as Gate>::Store<WatchTask<C::Sync>>,
}

/// What other CPUs read and write of a task without its queue's lock.
#[repr(C, align(64))]
pub(crate) struct Words<F: Family> {
    pub(crate) state: F::Word,
    pub(crate) on_cpu: F::Word,
    pub(crate) cpu: F::Word,
    /// 0, or 1 + the CPU whose queue the task is on (waiting or running).
    pub(crate) queued_on: F::Word,
    pub(crate) params: F::Word,
    /// Which scheduler took the task, by the address of its queues, whose low bits are the task's class; 0 before its spawn.
    owner: F::Word,
    /// The next task of the wake list it is in. Written by who pushes it.
    pub(crate) next_wakee: F::Word,
    /// Since when the task has been on its queue, or was woken for it. Written by the owner of its placement.
    pub(crate) here_since: F::Word,
}

const _: () = {
    use core::mem::{offset_of, size_of};
    type W = Words<crate::sync::Spin>;
    static_assertions::const_assert!(size_of::<W>() == 64);
    static_assertions::const_assert!(offset_of!(W, here_since) + 8 <= 64);
};

impl<C: Config> Default for SchedTask<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Config> SchedTask<C> {
    /// The scheduler's part of a task that is not spawned yet.
    pub fn new() -> Self {
        Self {
            entity: SchedEntity::new(),
            words: Words {
                state: Word::new(state::NEW),
                on_cpu: Word::new(on_cpu::OFF),
                cpu: Word::new(0),
                queued_on: Word::new(0),
                params: Word::new(TaskParams::default().pack()),
                owner: Word::new(0),
                next_wakee: Word::new(0),
                here_since: Word::new(0),
            },
            mask: SharedMask::new(C::Mask::ALL),
            mask_writer: Lock::new(()),
            counters: Default::default(),
            psi: Default::default(),
            watch: Default::default(),
        }
    }

    /// What the task is doing. True at some moment during the call.
    pub fn state(&self) -> TaskState {
        match self.words.state.load(Acquire) {
            state::NEW => TaskState::New,
            state::RUNNABLE => TaskState::Runnable,
            state::PREPARED_INTERRUPTIBLE | state::PREPARED_UNINTERRUPTIBLE => TaskState::Prepared,
            state::BLOCKED_INTERRUPTIBLE => TaskState::Blocked(SleepKind::Interruptible),
            state::BLOCKED_UNINTERRUPTIBLE => TaskState::Blocked(SleepKind::Uninterruptible),
            state::WAKING => TaskState::Waking,
            _ => TaskState::Dead,
        }
    }

    /// The CPU the task runs on, waits for, or last ran on. A task that was woken for an idle CPU is there when that has taken it in.
    pub fn cpu(&self) -> CpuId {
        CpuId(self.words.cpu.load(Relaxed) as u32)
    }

    /// The parameters last asked for.
    pub fn params(&self) -> TaskParams {
        TaskParams::unpack(self.words.params.load(Relaxed))
    }

    /// The CPUs the task may run on.
    pub fn affinity(&self) -> C::Mask {
        self.mask.load()
    }

    /// Whether the task is of `class`: one comparison, where [`class`](Self::class) takes several.
    #[inline(always)]
    pub(crate) fn is(&self, class: Class) -> bool {
        self.words.owner.load(Relaxed) & CLASS_BITS == class as u64
    }

    #[inline(always)]
    pub(crate) fn class(&self) -> Class {
        match self.words.owner.load(Relaxed) & CLASS_BITS {
            0 => Class::Fair,
            1 => Class::Stop,
            _ => Class::Idle,
        }
    }

    /// The task belongs to the scheduler `identity`. Before it is in anybody's reach.
    pub(crate) fn set_owner(&self, identity: u64, class: Class) {
        self.words.owner.store(identity | class as u64, Relaxed);
    }

    /// Whether the task belongs to the scheduler `identity`.
    #[inline(always)]
    pub(crate) fn is_owned_by(&self, identity: u64) -> bool {
        self.words.owner.load(Relaxed) & !CLASS_BITS == identity
    }
}

impl<C: Config> fmt::Debug for SchedTask<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedTask").field("state", &self.state()).field("cpu", &self.cpu()).finish_non_exhaustive()
    }
}

/// An owning pointer to the embedder's task, such as `Arc<Task>` or `&'static Task`.
///
/// Use [`task_ptr!`](crate::task_ptr) to implement it.
///
/// # Safety
/// - `into_raw` returns a pointer to the [`SchedTask`] inside the task, which stays valid and in place until `from_raw` is called on it.
/// - `from_raw` of a pointer from `into_raw` returns what went in; `target` of it points to the whole task, and `field` is its inverse.
/// - The task may be shared between CPUs.
pub unsafe trait TaskPtr<C: Config>: Sized + Send {
    /// The embedder's task type.
    type Target: Sync;

    /// Gives up the pointer.
    fn into_raw(self) -> NonNull<SchedTask<C>>;

    /// Takes the pointer back.
    ///
    /// # Safety
    /// `raw` comes from `into_raw`, and this is called once for it.
    unsafe fn from_raw(raw: NonNull<SchedTask<C>>) -> Self;

    /// The task around the field.
    fn target(raw: NonNull<SchedTask<C>>) -> NonNull<Self::Target>;

    /// The field inside the task.
    fn field(task: &Self::Target) -> NonNull<SchedTask<C>>;
}

/// Implements [`TaskPtr`] for a pointer type.
///
/// ```
/// # use sched_core::*;
/// use std::sync::Arc;
///
/// struct Task {
///     sched: SchedTask<MyKernel>,
/// }
/// task_ptr!(MyKernel: Arc<Task> { sched });
/// # struct MyKernel;
/// # struct Machine;
/// # impl Platform for Machine {
/// #     fn now(&self, _: CpuId) -> Nanos { 0 }
/// #     fn this_cpu(&self) -> CpuId { CpuId(0) }
/// #     fn kick(&self, _: CpuId) {}
/// # }
/// # impl Config for MyKernel {
/// #     type Platform = Machine;
/// #     type Sync = Spin;
/// #     type Mask = Mask64;
/// #     type Task = Arc<Task>;
/// #     type Schedstats = Never;
/// #     type Psi = Never;
/// #     type Watch = Never;
/// #     type Features = Fixed;
/// #     const HZ: u32 = 250;
/// # }
/// ```
/// The pointer is any type with `into_raw` and `from_raw`, by its name in scope, or `&'static`;
/// the task is a type without parameters; the last word names its field of type [`SchedTask`].
#[macro_export]
macro_rules! task_ptr {
    ($config:ty: &'static $task:ident { $field:ident }) => {
        // SAFETY: a static reference is valid for ever, and offset_of! finds the field and back.
        unsafe impl $crate::TaskPtr<$config> for &'static $task {
            $crate::task_ptr!(@target $config, $task, $field);
            fn into_raw(self) -> ::core::ptr::NonNull<$crate::SchedTask<$config>> {
                // SAFETY: the field lies inside the task; the pointer keeps the whole task's provenance.
                unsafe { ::core::ptr::NonNull::from(self).byte_add(::core::mem::offset_of!($task, $field)).cast() }
            }
            unsafe fn from_raw(raw: ::core::ptr::NonNull<$crate::SchedTask<$config>>) -> Self {
                // SAFETY: `raw` came from a static reference.
                unsafe { <Self as $crate::TaskPtr<$config>>::target(raw).as_ref() }
            }
        }
    };
    ($config:ty: $pointer:ident<$task:ident> { $field:ident }) => {
        // SAFETY: the pointer's own into_raw and from_raw keep the task alive, and offset_of! finds the field and back.
        unsafe impl $crate::TaskPtr<$config> for $pointer<$task> {
            $crate::task_ptr!(@target $config, $task, $field);
            fn into_raw(self) -> ::core::ptr::NonNull<$crate::SchedTask<$config>> {
                let task = $pointer::into_raw(self).cast_mut();
                // SAFETY: into_raw is never null, and the field lies inside the task.
                unsafe {
                    ::core::ptr::NonNull::new_unchecked(task).byte_add(::core::mem::offset_of!($task, $field)).cast()
                }
            }
            unsafe fn from_raw(raw: ::core::ptr::NonNull<$crate::SchedTask<$config>>) -> Self {
                // SAFETY: `raw` came from `into_raw` above, once.
                unsafe { $pointer::from_raw(<Self as $crate::TaskPtr<$config>>::target(raw).as_ptr()) }
            }
        }
    };
    (@target $config:ty, $task:ident, $field:ident) => {
        type Target = $task;
        fn target(raw: ::core::ptr::NonNull<$crate::SchedTask<$config>>) -> ::core::ptr::NonNull<$task> {
            // SAFETY: `raw` points to the field of a whole task.
            unsafe { raw.byte_sub(::core::mem::offset_of!($task, $field)).cast() }
        }
        fn field(task: &$task) -> ::core::ptr::NonNull<$crate::SchedTask<$config>> {
            // SAFETY: the field lies inside the task; the pointer keeps the whole task's provenance.
            unsafe { ::core::ptr::NonNull::from(task).byte_add(::core::mem::offset_of!($task, $field)).cast() }
        }
    };
}

/// A pointer to a task that the scheduler owns for now; the counterpart of [`EntityRef`], with the same invariant.
pub(crate) struct TaskRef<C: Config>(NonNull<SchedTask<C>>);

impl<C: Config> TaskRef<C> {
    /// # Safety
    /// The task is alive and does not move for as long as the result or a copy of it is used.
    #[inline(always)]
    pub(crate) const unsafe fn new(task: NonNull<SchedTask<C>>) -> Self {
        Self(task)
    }

    #[inline(always)]
    pub(crate) const fn as_ptr(self) -> NonNull<SchedTask<C>> {
        self.0
    }

    /// As a word that [`from_word`](Self::from_word) reads.
    #[inline(always)]
    pub(crate) fn to_word(self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    /// The task of a word; none if it is 0.
    ///
    /// # Safety
    /// The word is 0 or comes from [`to_word`](Self::to_word), and the task is still alive for as long as the result is used.
    #[inline(always)]
    pub(crate) unsafe fn from_word(word: u64) -> Option<Self> {
        NonNull::new(core::ptr::with_exposed_provenance_mut(word as usize)).map(Self)
    }

    #[inline(always)]
    pub(crate) fn entity_ref(self) -> EntityRef<C::Sync> {
        // SAFETY: the entity is the first field of the task (repr(C)), alive as long as the task is.
        unsafe { EntityRef::new(self.0.cast()) }
    }

    /// The task around an entity of a queue.
    ///
    /// # Safety
    /// `entity` was made by [`entity_ref`](Self::entity_ref) of a task of this configuration.
    #[inline(always)]
    pub(crate) unsafe fn of(entity: EntityRef<C::Sync>) -> Self {
        Self(entity.as_ptr().cast())
    }
}

impl<C: Config> Deref for TaskRef<C> {
    type Target = SchedTask<C>;
    #[inline(always)]
    fn deref(&self) -> &SchedTask<C> {
        // SAFETY: the invariant of the type; only shared references are ever made.
        unsafe { self.0.as_ref() }
    }
}

impl<C: Config> Clone for TaskRef<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C: Config> Copy for TaskRef<C> {}
impl<C: Config> PartialEq for TaskRef<C> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<C: Config> Eq for TaskRef<C> {}

// SAFETY: a `TaskRef` gives only `&SchedTask`, whose fields are atomic words or guarded by locks.
unsafe impl<C: Config> Send for TaskRef<C> {}
// SAFETY: as above.
unsafe impl<C: Config> Sync for TaskRef<C> {}
