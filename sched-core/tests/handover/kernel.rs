//! The kernel that the threads of [`world`](super::world) run: its configuration, its machine, its tasks.

use std::{
    cell::{Cell, UnsafeCell},
    marker::PhantomData,
    mem::offset_of,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use sched_core::{Config, CpuId, Family, Mask256, Nanos, Platform, SchedTask, Sleep, Switch, TaskPtr};

use super::jitter::perhaps;

const NANOS_PER_LOOK: Nanos = 30_000;

pub struct Kernel<F>(PhantomData<F>);

impl<F: Family> Config for Kernel<F> {
    type Platform = Cpus;
    type Sync = F;
    type Mask = Mask256;
    type Task = Handle<F>;
    type Schedstats = Switch;
    type Psi = Switch;
    type Watch = Switch;
    type Features = sched_core::Fixed;
    const HZ: u32 = 250;
}

thread_local! {
    /// The CPU that this thread is.
    pub static HERE: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// The machine: a clock that every look moves, and doorbells.
pub struct Cpus {
    now: AtomicU64,
    pub bells: Vec<AtomicBool>,
}

impl Cpus {
    pub fn new(cpus: u32) -> Self {
        Self { now: AtomicU64::new(1_000_000), bells: (0..cpus).map(|_| AtomicBool::new(false)).collect() }
    }
}

impl Platform for Cpus {
    fn now(&self, _: CpuId) -> Nanos {
        self.now.fetch_add(NANOS_PER_LOOK, Relaxed)
    }
    fn this_cpu(&self) -> CpuId {
        CpuId(HERE.get())
    }
    fn kick(&self, cpu: CpuId) {
        assert_ne!(cpu.0, HERE.get(), "a CPU kicks itself");
        perhaps();
        self.bells[cpu.index()].store(true, SeqCst);
    }
}

/// The mailbox of a task that is not there.
pub const CLOSED: u64 = 1 << 63;

pub struct Task<F: Family> {
    pub sched: SchedTask<Kernel<F>>,
    pub kind: Kind,
    /// Tokens to be taken, or CLOSED.
    pub mailbox: AtomicU64,
    /// 0, or 1 + the CPU that is on it.
    pub on: AtomicU64,
    /// One changer of the mask at a time.
    pub changing: AtomicBool,
    /// The last confirmed mask and when that was.
    pub confirmed: AtomicU64,
    /// The task's own stack.
    pub local: UnsafeCell<Local<F>>,
    pub given_back: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Idle,
    Stop,
    Fair,
}

pub struct Local<F: Family> {
    pub token: bool,
    pub sleep: Option<Sleep<Kernel<F>>>,
    pub steps: u64,
}

// SAFETY: `local` is touched only by the one CPU that is on the task (I1), everything else is atomic.
// A `Sleep` moves between threads only with its task, as on a kernel's stack.
unsafe impl<F: Family> Sync for Task<F> {}
// SAFETY: as above.
unsafe impl<F: Family> Send for Task<F> {}

impl<F: Family> Task<F> {
    pub fn new(kind: Kind) -> Arc<Self> {
        Arc::new(Self {
            sched: SchedTask::new(),
            kind,
            mailbox: AtomicU64::new(if kind == Kind::Fair { CLOSED } else { 0 }),
            on: AtomicU64::new(0),
            changing: AtomicBool::new(true),
            confirmed: AtomicU64::new(u64::MAX),
            local: UnsafeCell::new(Local { token: false, sleep: None, steps: 0 }),
            given_back: AtomicU64::new(0),
        })
    }

    /// Puts a token into the mailbox. False if the task is not there.
    pub fn send(&self) -> bool {
        self.mailbox.fetch_update(Relaxed, Relaxed, |had| (had & CLOSED == 0).then_some(had + 1)).is_ok()
    }

    pub fn receive(&self) -> bool {
        self.mailbox.fetch_update(Relaxed, Relaxed, |had| (had & !CLOSED != 0).then(|| had - 1)).is_ok()
    }
}

pub struct Handle<F: Family>(pub Arc<Task<F>>);

// SAFETY: the count that `Arc::into_raw` leaves behind keeps the task in place, and `offset_of!` leads to the field and back.
unsafe impl<F: Family> TaskPtr<Kernel<F>> for Handle<F> {
    type Target = Task<F>;
    fn into_raw(self) -> NonNull<SchedTask<Kernel<F>>> {
        let task = Arc::into_raw(self.0).cast_mut();
        // SAFETY: `Arc::into_raw` is never null, and the field lies inside the task.
        unsafe { NonNull::new_unchecked(task).byte_add(offset_of!(Task<F>, sched)).cast() }
    }
    unsafe fn from_raw(raw: NonNull<SchedTask<Kernel<F>>>) -> Self {
        // SAFETY: `raw` came from `into_raw`, once.
        Self(unsafe { Arc::from_raw(Self::target(raw).as_ptr()) })
    }
    fn target(raw: NonNull<SchedTask<Kernel<F>>>) -> NonNull<Task<F>> {
        // SAFETY: `raw` points to the field of a whole task.
        unsafe { raw.byte_sub(offset_of!(Task<F>, sched)).cast() }
    }
    fn field(task: &Task<F>) -> NonNull<SchedTask<Kernel<F>>> {
        // SAFETY: the field lies inside the task; the pointer keeps the whole task's provenance.
        unsafe { NonNull::from(task).byte_add(offset_of!(Task<F>, sched)).cast() }
    }
}
