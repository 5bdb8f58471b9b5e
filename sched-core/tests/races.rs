//! The front door under `loom`, which knows what each ordering promises, and reports every access to a guarded field
//! that nothing orders after the last one. (`interleavings.rs` plays more, but as if memory were sequentially consistent.)

use std::{
    ptr::NonNull,
    sync::{Arc, atomic::AtomicU64 as Plain},
};

use loom::{
    cell::UnsafeCell,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering, fence},
    },
    thread,
};
use sched_core::{
    Cell, Config, CpuId, CpuQueue, Decision, Family, Gates, IrqOff, Mask64, Nanos, Never, Platform, RawLock, Reason,
    SchedTask, Scheduler, SleepKind, Spawn, TaskState, Tunables, Woken, Word, task_ptr,
};

/// Words, locks and cells that `loom` watches.
struct Watched;

impl Family for Watched {
    type Word = WatchedWord;
    type RawLock = WatchedLock;
    type Cell<T> = WatchedCell<T>;
    fn fence(order: Ordering) {
        fence(order);
    }
}

struct WatchedWord(AtomicU64);

impl Word for WatchedWord {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, success, failure)
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }
}

/// A lock that blocks: a spinning one has endless schedules. Who holds it has put its guard beside it.
struct WatchedLock {
    mutex: Mutex<()>,
    guard: std::cell::UnsafeCell<Option<MutexGuard<'static, ()>>>,
}

// SAFETY: the guard's place is touched only by who holds the mutex.
unsafe impl Sync for WatchedLock {}
// SAFETY: as above; `loom` runs all of its threads on one.
unsafe impl Send for WatchedLock {}

impl WatchedLock {
    fn keep(&self, guard: MutexGuard<'_, ()>) {
        // SAFETY: the guard is dropped in `unlock`, before the mutex it borrows, and only its holder is here.
        unsafe {
            let guard = std::mem::transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(guard);
            *self.guard.get() = Some(guard);
        }
    }
}

impl RawLock for WatchedLock {
    fn new() -> Self {
        Self { mutex: Mutex::new(()), guard: std::cell::UnsafeCell::new(None) }
    }
    fn lock(&self) {
        self.keep(self.mutex.lock().expect("no thread panics"));
    }
    fn try_lock(&self) -> bool {
        self.mutex.try_lock().map(|guard| self.keep(guard)).is_ok()
    }
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock.
        let guard = unsafe { (*self.guard.get()).take() };
        drop(guard);
    }
}

struct WatchedCell<T>(UnsafeCell<T>);

impl<T> Cell<T> for WatchedCell<T> {
    fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }
    fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        self.0.with(read)
    }
    fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        self.0.with_mut(write)
    }
}

loom::thread_local! {
    static HERE: Plain = Plain::new(0);
}

/// The clock and the kicks are the test's own, and order nothing.
struct Board(Plain);

impl Platform for Board {
    fn now(&self, _: CpuId) -> Nanos {
        self.0.load(Ordering::Relaxed)
    }
    fn this_cpu(&self) -> CpuId {
        CpuId(HERE.with(|here| here.load(Ordering::Relaxed)) as u32)
    }
    fn kick(&self, _: CpuId) {}
}

struct Kernel;

impl Config for Kernel {
    type Platform = Board;
    type Sync = Watched;
    type Mask = Mask64;
    type Task = Arc<Task>;
    type Schedstats = Never;
    type Psi = Never;
    type Watch = Never;
    type Features = sched_core::Fixed;
    const HZ: u32 = 250;
}

struct Task {
    sched: SchedTask<Kernel>,
}
task_ptr!(Kernel: Arc<Task> { sched });

type Sched = &'static Scheduler<'static, Kernel>;

fn task() -> Arc<Task> {
    Arc::new(Task { sched: SchedTask::new() })
}

/// From here on the calling thread is this CPU.
fn irq(cpu: u64) -> IrqOff {
    HERE.with(|here| here.store(cpu, Ordering::Relaxed));
    // SAFETY: each scenario lets one thread at a time be a CPU.
    unsafe { IrqOff::assert() }
}

fn only(cpus: &[u32]) -> Mask64 {
    cpus.iter().copied().map(CpuId).collect()
}

fn spawn(sched: Sched, affinity: Mask64) -> Arc<Task> {
    let task = task();
    sched.spawn(&irq(0), task.clone(), Spawn { affinity, ..Spawn::default() }).expect("a new task");
    task
}

fn switch(sched: Sched, cpu: u64, reason: Reason<Kernel>) -> bool {
    let irq = irq(cpu);
    let switches = matches!(sched.schedule(&irq, reason), Decision::Switch { .. });
    if switches {
        drop(sched.finish_switch(&irq));
    }
    switches
}

fn runs(sched: Sched, cpu: u64, task: &Arc<Task>) -> bool {
    sched.current(&irq(cpu)) == Some(NonNull::from(&**task))
}

/// Two CPUs; on CPU 0 a task has fallen asleep in debt, and another one runs.
fn delayed() -> (Sched, [Arc<Task>; 2]) {
    let queues: Vec<_> = (0..2).map(|_| CpuQueue::new(&Tunables::for_cpus(2))).collect();
    let sched = Scheduler::new(queues.leak(), Board(Plain::new(1_000_000)), Gates::default()).expect("few CPUs");
    let sched: Sched = Box::leak(Box::new(sched));
    for cpu in [0, 1] {
        sched.bring_online(&irq(cpu), task()).expect("a new CPU");
    }
    let debtor = spawn(sched, only(&[0]));
    switch(sched, 0, Reason::Preempt);
    let other = spawn(sched, only(&[0]));
    pass(sched, 2_000_000);
    let sleep = sched.prepare(&irq(0), SleepKind::Interruptible);
    assert!(switch(sched, 0, Reason::Block(sleep)) && runs(sched, 0, &other));
    sched.set_affinity(&irq(0), &debtor, only(&[0, 1])).expect("online");
    assert!(sched.task_load(&irq(0), &debtor).is_some(), "it owes nothing: the scenario is wrong");
    (sched, [debtor, other])
}

fn pass(sched: Sched, nanos: u64) {
    sched.platform().0.fetch_add(nanos, Ordering::Relaxed);
}

/// Plays `scenario` under every schedule with at most so many preemptions.
fn check(scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 1_000_000;
    builder.preemption_bound = Some(2);
    builder.check(scenario);
}

#[test]
fn a_waker_sees_what_the_queue_of_a_delayed_sleeper_left() {
    check(|| {
        let (sched, [debtor, other]) = delayed();
        pass(sched, 20_000_000);
        let waker = {
            let debtor = debtor.clone();
            thread::spawn(move || assert_eq!(sched.wake(&irq(1), &debtor), Woken::Yes))
        };
        // Its turn comes on CPU 0, while CPU 1, which is idle, takes it.
        switch(sched, 0, Reason::Preempt);
        waker.join().expect("no failure");
        assert_eq!(debtor.sched.state(), TaskState::Runnable);
        drop(other);
    });
}

#[test]
fn a_waker_sees_what_a_new_mask_left_of_a_delayed_sleeper() {
    check(|| {
        let (sched, [debtor, other]) = delayed();
        let waker = {
            let debtor = debtor.clone();
            thread::spawn(move || assert_eq!(sched.wake(&irq(1), &debtor), Woken::Yes))
        };
        sched.set_affinity(&irq(0), &debtor, only(&[1])).expect("online");
        waker.join().expect("no failure");
        assert_eq!(debtor.sched.state(), TaskState::Runnable);
        drop(other);
    });
}
