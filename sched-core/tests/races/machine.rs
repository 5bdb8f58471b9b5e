//! A machine whose CPUs are threads of `loom`.
//!
//! A task has a stack that only who runs it may touch: the CPU that leaves a task writes it last before it says that it has left,
//! and the one that continues it writes it first. So an order that is missing between the two is a race that `loom` reports.
//! An idle CPU halts until it is kicked: a kick that comes before its request, or not at all, leaves it halted, which `loom` reports, too.

use std::{
    ptr::NonNull,
    sync::{Arc, atomic::AtomicU64 as Plain},
};

use loom::{
    cell::UnsafeCell,
    sync::{
        Mutex, MutexGuard, Notify,
        atomic::{AtomicU64, Ordering, fence},
    },
};
use sched_core::{
    Cell, Config, CpuId, CpuQueue, Decision, Family, Gates, IrqOff, Mask64, Nanos, Never, Platform, RawLock, Reason,
    SchedTask, Scheduler, SleepKind, Spawn, TaskState, Tunables, Woken, Word, task_ptr,
};

/// Words, locks and cells that `loom` watches.
pub struct Watched;

impl Family for Watched {
    type Word = WatchedWord;
    type RawLock = WatchedLock;
    type Cell<T> = WatchedCell<T>;
    fn fence(order: Ordering) {
        fence(order);
    }
}

pub struct WatchedWord(AtomicU64);

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
pub struct WatchedLock {
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
        assert_eq!(held(1), 0, "a lock is waited for under another");
        self.keep(self.mutex.lock().expect("no thread panics"));
    }
    fn try_lock(&self) -> bool {
        let taken = self.mutex.try_lock().map(|guard| self.keep(guard)).is_ok();
        held(i64::from(taken));
        taken
    }
    unsafe fn unlock(&self) {
        held(-1);
        // SAFETY: the caller holds the lock.
        let guard = unsafe { (*self.guard.get()).take() };
        drop(guard);
    }
}

pub struct WatchedCell<T>(UnsafeCell<T>);

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
    static HELD: std::cell::Cell<i64> = std::cell::Cell::new(0);
}

/// How many locks this thread held before `change`.
fn held(change: i64) -> i64 {
    HELD.with(|held| held.replace(held.get() + change))
}

/// The clock is the test's own, and orders nothing. A kick is a bell that wakes who halts.
pub struct Board {
    now: Plain,
    bells: [Notify; 2],
}

impl Platform for Board {
    fn now(&self, _: CpuId) -> Nanos {
        self.now.load(Ordering::Relaxed)
    }
    fn this_cpu(&self) -> CpuId {
        CpuId(HERE.with(|here| here.load(Ordering::Relaxed)) as u32)
    }
    fn kick(&self, cpu: CpuId) {
        assert_eq!(held(0), 0, "a kick under a lock");
        assert_ne!(cpu, self.this_cpu(), "a CPU kicks itself");
        self.bells[cpu.index()].notify();
    }
}

pub struct Kernel;

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

pub struct Task {
    pub sched: SchedTask<Kernel>,
    stack: UnsafeCell<u32>,
}
task_ptr!(Kernel: Arc<Task> { sched });

// SAFETY: `loom` watches over the stack.
unsafe impl Sync for Task {}
// SAFETY: as above.
unsafe impl Send for Task {}

impl Task {
    fn new() -> Arc<Self> {
        Arc::new(Self { sched: SchedTask::new(), stack: UnsafeCell::new(0) })
    }

    /// What who runs the task does with its stack.
    fn touch(&self, cpu: u32) {
        // SAFETY: `loom` reports a second access that nothing orders.
        self.stack.with_mut(|stack| unsafe { *stack = cpu });
    }

    pub fn state(&self) -> TaskState {
        self.sched.state()
    }
}

/// Two CPUs, both idle. Leaked: a schedule is short.
#[derive(Clone, Copy)]
pub struct Machine {
    pub sched: &'static Scheduler<'static, Kernel>,
}

impl Machine {
    pub fn new() -> Self {
        let queues: Vec<_> = (0..2).map(|_| CpuQueue::new(&Tunables::for_cpus(2))).collect();
        let board = Board { now: Plain::new(1_000_000), bells: [Notify::new(), Notify::new()] };
        let sched = Scheduler::new(queues.leak(), board, Gates::default()).expect("few CPUs");
        let machine = Self { sched: Box::leak(Box::new(sched)) };
        for cpu in [0, 1] {
            machine.sched.bring_online(&machine.cpu(cpu).irq(), Task::new()).expect("a new CPU");
        }
        machine
    }

    /// The calling thread acts as this CPU.
    pub fn cpu(self, id: u32) -> Cpu {
        Cpu { sched: self.sched, id }
    }

    /// Lets time pass.
    pub fn pass(self, nanos: u64) {
        self.sched.platform().now.fetch_add(nanos, Ordering::Relaxed);
    }

    /// A new task that runs on CPU 0; `mask` holds from then on.
    pub fn running(self, mask: &[u32]) -> Arc<Task> {
        let task = self.cpu(0).spawn(&[0]);
        self.cpu(0).leave_interrupt();
        assert!(self.cpu(0).runs(&task));
        self.cpu(0).set_affinity(&task, mask);
        task
    }

    /// A new task that waits on CPU 0 behind the one that runs there; `mask` holds from then on.
    pub fn waiting(self, mask: &[u32]) -> Arc<Task> {
        let task = self.cpu(0).spawn(&[0]);
        assert!(!self.cpu(0).runs(&task));
        self.cpu(0).set_affinity(&task, mask);
        task
    }

    /// A task that has fallen asleep on CPU 0 in debt and may run anywhere, and one that runs there.
    pub fn delayed(self) -> [Arc<Task>; 2] {
        let debtor = self.running(&[0]);
        let other = self.waiting(&[0]);
        self.pass(2_000_000);
        assert!(self.cpu(0).block() && self.cpu(0).runs(&other));
        self.cpu(0).set_affinity(&debtor, &[0, 1]);
        assert!(self.cpu(0).is_queued(&debtor), "it owes nothing: the scenario is wrong");
        [debtor, other]
    }

    /// Every CPU does what it was asked to.
    pub fn settle(self) {
        for cpu in [0, 1] {
            self.cpu(cpu).leave_interrupt();
        }
    }

    /// After all threads have ended: every CPU does what it was asked to, and the tasks that want to run are on queues, one each.
    pub fn nobody_is_lost(self, tasks: &[&Arc<Task>]) {
        self.settle();
        let wanting = tasks.iter().filter(|task| task.state() == TaskState::Runnable).count() as u64;
        assert_eq!(self.sched.nr_running(CpuId(0)) + self.sched.nr_running(CpuId(1)), wanting);
    }
}

#[derive(Clone, Copy)]
pub struct Cpu {
    sched: &'static Scheduler<'static, Kernel>,
    id: u32,
}

impl Cpu {
    pub fn irq(self) -> IrqOff {
        HERE.with(|here| here.store(u64::from(self.id), Ordering::Relaxed));
        // SAFETY: each scenario lets one thread at a time be a CPU.
        unsafe { IrqOff::assert() }
    }

    pub fn spawn(self, cpus: &[u32]) -> Arc<Task> {
        let task = Task::new();
        let spawn = Spawn { affinity: only(cpus), ..Spawn::default() };
        self.sched.spawn(&self.irq(), task.clone(), spawn).expect("a new task");
        task
    }

    pub fn runs(self, task: &Arc<Task>) -> bool {
        self.sched.current(&self.irq()) == Some(NonNull::from(&**task))
    }

    pub fn is_queued(self, task: &Arc<Task>) -> bool {
        self.sched.task_load(&self.irq(), task).is_some()
    }

    pub fn wake(self, task: &Task) -> Woken {
        self.sched.wake(&self.irq(), task)
    }

    pub fn set_affinity(self, task: &Task, cpus: &[u32]) {
        self.sched.set_affinity(&self.irq(), task, only(cpus)).expect("online");
    }

    pub fn tick(self) {
        self.sched.tick(&self.irq());
    }

    /// True if the CPU went to another task.
    pub fn switch(self, reason: Reason<Kernel>) -> bool {
        match self.sched.schedule(&self.irq(), reason) {
            Decision::Stay => false,
            Decision::Switch { prev, next } => {
                // SAFETY: the scenario holds its tasks, and idle tasks stay for ever.
                let (prev, next) = unsafe { (prev.as_ref(), next.as_ref()) };
                prev.touch(self.id);
                next.touch(self.id);
                // A task that comes back is freed here, unless somebody still holds it.
                drop(self.sched.finish_switch(&self.irq()));
                true
            }
        }
    }

    pub fn block(self) -> bool {
        let sleep = self.sched.prepare(&self.irq(), SleepKind::Interruptible);
        self.switch(Reason::Block(sleep))
    }

    pub fn leave_interrupt(self) {
        while self.sched.need_resched(&self.irq()) {
            self.switch(Reason::Preempt);
        }
    }

    /// The idle loop of a CPU that polls once before it halts, until it runs one of `tasks`.
    pub fn poll_until_runs(self, tasks: &[&Arc<Task>]) {
        while !tasks.iter().any(|task| self.runs(task)) {
            if self.sched.begin_poll(&self.irq()) && self.sched.end_poll(&self.irq()) {
                self.sched.platform().bells[self.id as usize].wait();
            }
            self.leave_interrupt();
        }
    }

    /// The idle loop, until the CPU runs one of `tasks`: look for a request, and if there is none, halt until kicked.
    pub fn idle_until_runs(self, tasks: &[&Arc<Task>]) {
        while !tasks.iter().any(|task| self.runs(task)) {
            if self.sched.need_resched(&self.irq()) {
                self.switch(Reason::Preempt);
            } else {
                self.sched.platform().bells[self.id as usize].wait();
            }
        }
    }
}

pub fn only(cpus: &[u32]) -> Mask64 {
    cpus.iter().copied().map(CpuId).collect()
}
