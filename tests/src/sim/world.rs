//! The embedder: what the scheduler needs of the simulated machine.
//!
//! # What it is
//! [`World`], a configuration with every observer compiled in; [`Bench`], its platform; [`SimTask`], its task.
//!
//! # How it works
//! One host thread is all CPUs. The platform shows the time the engine has set and collects the kicks.
//! Words count how often they are read ([`words_read`]): a deterministic measure of what a call looks at.
//! Locks know whether they are held: taking a second one is an error, and so is a kick under one.
//!
//! # Invariants
//! 1. At most one lock is held, and none when the scheduler kicks.
//! 2. A CPU never kicks itself.
//!
//! # Cost
//! That of plain memory, and a count.

use std::{
    cell::{Cell, RefCell, UnsafeCell},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
    },
};

use sched_core::{
    Config, CpuId, Family, Mask1024, Nanos, Platform, RawLock, SchedTask, Switch, Switchable, Word, task_ptr,
};

use super::time::Clock;

thread_local! {
    static HELD: Cell<u32> = const { Cell::new(0) };
    static READ: Cell<u64> = const { Cell::new(0) };
}

/// Counts how often this thread has read a word of a scheduler.
pub fn words_read() -> u64 {
    READ.get()
}

/// A machine begins on this thread: no lock is held, whatever became of the one before.
pub(super) fn begin() {
    HELD.set(0);
}

/// The configuration of the simulated machine.
pub struct World;

impl Config for World {
    type Platform = Bench;
    type Sync = Counted;
    type Mask = Mask1024;
    type Task = Arc<SimTask>;
    type Schedstats = Switch;
    type Psi = Switch;
    type Watch = Switch;
    type Features = Switchable;
    const HZ: u32 = 250;
}

/// A task of the simulated machine. The engine keeps everything else about it.
pub struct SimTask {
    /// The scheduler's part.
    pub sched: SchedTask<World>,
    /// Its number; idle tasks are numbered from the end.
    pub id: usize,
}
task_ptr!(World: Arc<SimTask> { sched });

/// The platform.
pub struct Bench {
    /// The clock of each CPU.
    pub clocks: Vec<Clock>,
    /// True time.
    pub now: Cell<Nanos>,
    /// The CPU that acts.
    pub here: Cell<CpuId>,
    /// Who was kicked since the engine looked last.
    pub kicks: RefCell<Vec<CpuId>>,
    /// Nanoseconds by which a CPU's clock lies about its own time: for the oracle that watches over time.
    pub lie: Cell<Option<(CpuId, Nanos)>>,
}

impl Platform for Bench {
    fn now(&self, cpu: CpuId) -> Nanos {
        let lie = self.lie.get().filter(|(liar, _)| *liar == cpu).map_or(0, |(_, nanos)| nanos);
        self.clocks[cpu.index()].at(self.now.get()) + lie
    }

    fn this_cpu(&self) -> CpuId {
        self.here.get()
    }

    fn kick(&self, cpu: CpuId) {
        assert_eq!(HELD.get(), 0, "a kick under a lock");
        assert_ne!(cpu, self.here.get(), "{cpu:?} kicks itself");
        self.kicks.borrow_mut().push(cpu);
    }
}

/// Words, locks and cells of one thread.
pub struct Counted;

impl Family for Counted {
    type Word = CountedWord;
    type RawLock = OnlyLock;
    type Cell<T> = UnsafeCell<T>;

    fn fence(order: Ordering) {
        fence(order);
    }
}

/// A word that counts its readings.
pub struct CountedWord(AtomicU64);

impl Word for CountedWord {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        READ.set(READ.get() + 1);
        self.0.load(order)
    }
    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    #[inline]
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }
    #[inline]
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, success, failure)
    }
    #[inline]
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }
}

/// A lock that must be free when it is taken, and must be the only one.
pub struct OnlyLock(AtomicBool);

impl RawLock for OnlyLock {
    fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    #[inline]
    fn lock(&self) {
        assert!(self.try_lock(), "a lock is taken by its holder");
        assert_eq!(HELD.get(), 1, "a lock is taken under another");
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let taken = !self.0.swap(true, Ordering::Acquire);
        HELD.set(HELD.get() + u32::from(taken));
        taken
    }

    #[inline]
    unsafe fn unlock(&self) {
        assert!(self.0.swap(false, Ordering::Release), "a free lock is freed");
        HELD.set(HELD.get() - 1);
    }
}
