//! The sleep protocol on a machine that keeps stores back, as every real one does.
//!
//! Each CPU has a buffer of its own stores; the others see them late, in order.
//! A fence or an atomic read-modify-write empties it (this is how x86 orders memory, and the least that others do).
//! Here nothing else does, so a fence that is missing is missed in every run, and not once in a million.

use std::{
    cell::{Cell, RefCell, UnsafeCell},
    collections::VecDeque,
    ptr::NonNull,
    sync::atomic::{
        AtomicU64,
        Ordering::{self, SeqCst},
    },
};

use sched_core::{
    Config, CpuId, CpuQueue, Decision, Family, Gates, IrqOff, Mask64, Nanos, Never, Platform, RawLock, Reason,
    SchedTask, Scheduler, Sleep, SleepKind, Spawn, TaskState, Tunables, Word, task_ptr,
};

const CPUS: usize = 2;

/// Stores on their way to memory, oldest first.
type Buffer = VecDeque<(NonNull<AtomicU64>, u64)>;

thread_local! {
    static HERE: Cell<usize> = const { Cell::new(0) };
    /// The stores that each CPU still keeps back. Words are leaked, so the pointers stay good.
    static BUFFERS: RefCell<[Buffer; CPUS]> = RefCell::default();
}

/// The stores of `cpu` reach memory.
fn drain(cpu: usize) {
    BUFFERS.with_borrow_mut(|buffers| {
        for (word, value) in buffers[cpu].drain(..) {
            // SAFETY: words are leaked.
            unsafe { word.as_ref() }.store(value, SeqCst);
        }
    });
}

struct Buffered;

impl Family for Buffered {
    type Word = LateWord;
    type RawLock = LateLock;
    type Cell<T> = UnsafeCell<T>;

    fn fence(order: Ordering) {
        if order == SeqCst {
            drain(HERE.get());
        }
    }
}

struct LateWord(AtomicU64);

impl Word for LateWord {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    fn load(&self, _: Ordering) -> u64 {
        let mine = |buffers: &[Buffer; CPUS]| {
            buffers[HERE.get()].iter().rfind(|(word, _)| *word == NonNull::from(&self.0)).map(|(_, value)| *value)
        };
        BUFFERS.with_borrow(mine).unwrap_or_else(|| self.0.load(SeqCst))
    }
    fn store(&self, value: u64, order: Ordering) {
        BUFFERS.with_borrow_mut(|buffers| buffers[HERE.get()].push_back((NonNull::from(&self.0), value)));
        if order == SeqCst {
            drain(HERE.get());
        }
    }
    fn swap(&self, value: u64, _: Ordering) -> u64 {
        drain(HERE.get());
        self.0.swap(value, SeqCst)
    }
    fn compare_exchange(&self, current: u64, new: u64, _: Ordering, _: Ordering) -> Result<u64, u64> {
        drain(HERE.get());
        self.0.compare_exchange(current, new, SeqCst, SeqCst)
    }
    fn fetch_add(&self, value: u64, _: Ordering) -> u64 {
        drain(HERE.get());
        self.0.fetch_add(value, SeqCst)
    }
}

/// Taking it is a read-modify-write, freeing it a store. Who finds it taken waits until all buffers are empty.
struct LateLock(LateWord);

impl RawLock for LateLock {
    fn new() -> Self {
        Self(LateWord::new(0))
    }
    fn lock(&self) {
        if !self.try_lock() {
            (0..CPUS).for_each(drain);
            assert!(self.try_lock(), "a lock is taken by its holder");
        }
    }
    fn try_lock(&self) -> bool {
        self.0.swap(1, SeqCst) == 0
    }
    unsafe fn unlock(&self) {
        self.0.store(0, Ordering::Release);
    }
}

struct Board;

impl Platform for Board {
    fn now(&self, _: CpuId) -> Nanos {
        1_000_000
    }
    fn this_cpu(&self) -> CpuId {
        CpuId(HERE.get() as u32)
    }
    fn kick(&self, _: CpuId) {}
}

struct Kernel;

impl Config for Kernel {
    type Platform = Board;
    type Sync = Buffered;
    type Mask = Mask64;
    type Task = &'static Task;
    type Schedstats = Never;
    type Psi = Never;
    type Watch = Never;
    type Features = sched_core::Fixed;
    const HZ: u32 = 250;
}

struct Task {
    sched: SchedTask<Kernel>,
}
task_ptr!(Kernel: &'static Task { sched });

fn task() -> &'static Task {
    Box::leak(Box::new(Task { sched: SchedTask::new() }))
}

/// What the sleeper on CPU 0 and the waker on CPU 1 do, each in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Prepare,
    Check,
    Block,
    Arrive,
    Store,
    Wake,
}

/// All ways to merge two sequences.
fn merges(a: &[Act], b: &[Act]) -> Vec<Vec<Act>> {
    match (a, b) {
        ([], rest) | (rest, []) => vec![rest.to_vec()],
        ([first_a, rest_a @ ..], [first_b, rest_b @ ..]) => {
            let then = |first: &Act, rest: Vec<Vec<Act>>| {
                rest.into_iter().map(|rest| [vec![*first], rest].concat()).collect::<Vec<_>>()
            };
            [then(first_a, merges(rest_a, b)), then(first_b, merges(a, rest_b))].concat()
        }
    }
}

/// Plays one order, and gives what became of the sleeper.
fn play(acts: &[Act]) -> TaskState {
    let on = |cpu: usize| {
        HERE.set(cpu);
        // SAFETY: one thread is both CPUs, one act after another.
        unsafe { IrqOff::assert() }
    };
    let queues: Vec<_> = (0..CPUS).map(|_| CpuQueue::new(&Tunables::for_cpus(2))).collect();
    let sched = Scheduler::<Kernel>::new(queues.leak(), Board, Gates::default()).expect("two CPUs");
    // Its lock words are leaked with the queues; its own have to stay as well.
    let sched = &*Box::leak(Box::new(sched));
    for cpu in 0..CPUS {
        sched.bring_online(&on(cpu), task()).expect("a new CPU");
    }
    let sleeper = task();
    let only = Spawn { affinity: Mask64::only(CpuId(0)), ..Spawn::default() };
    sched.spawn(&on(0), sleeper, only).expect("a new task");
    assert!(matches!(sched.schedule(&on(0), Reason::Preempt), Decision::Switch { .. }));
    assert!(sched.finish_switch(&on(0)).is_none());
    (0..CPUS).for_each(drain);

    let condition: &LateWord = Box::leak(Box::new(LateWord::new(0)));
    let mut sleep: Option<Sleep<Kernel>> = None;
    let (mut holds, mut left) = (false, false);
    for act in acts {
        match act {
            Act::Prepare if holds => {}
            Act::Prepare => sleep = Some(sched.prepare(&on(0), SleepKind::Interruptible)),
            Act::Check => {
                let _irq = on(0);
                holds = condition.load(Ordering::Relaxed) != 0;
                if holds {
                    sleep = None;
                }
            }
            Act::Block => {
                if let Some(sleep) = sleep.take() {
                    left = matches!(sched.schedule(&on(0), Reason::Block(sleep)), Decision::Switch { .. });
                }
            }
            Act::Arrive if left => assert!(sched.finish_switch(&on(0)).is_none()),
            Act::Arrive => {}
            Act::Store => {
                let _irq = on(1);
                condition.store(1, Ordering::Relaxed);
            }
            Act::Wake => _ = sched.wake(&on(1), sleeper),
        }
    }
    (0..CPUS).for_each(drain);
    // CPU 0 does what it was asked to, if it was: an idle CPU takes in who was woken for it.
    if sched.need_resched(&on(0)) && matches!(sched.schedule(&on(0), Reason::Preempt), Decision::Switch { .. }) {
        assert!(sched.finish_switch(&on(0)).is_none());
    }
    sleeper.sched.state()
}

#[test]
fn in_no_order_does_the_task_sleep_beside_a_condition_that_holds() {
    let orders = merges(&[Act::Prepare, Act::Check, Act::Block, Act::Arrive], &[Act::Store, Act::Wake]);
    assert_eq!(orders.len(), 15);
    for order in orders {
        assert_eq!(play(&order), TaskState::Runnable, "{order:?}");
    }
}

#[test]
fn the_machine_shows_what_it_is_for() {
    // A check before `prepare` loses the wake-up, here as on any machine.
    let wrong = merges(&[Act::Check, Act::Prepare, Act::Block, Act::Arrive], &[Act::Store, Act::Wake]);
    assert!(wrong.iter().any(|order| play(order) != TaskState::Runnable));
}
