//! Kernel threads.
//!
//! # What it is
//! [`Thread`], how one begins ([`spawn`]), ends ([`exit`]) and is waited for ([`JoinHandle::join`]), and what can be set
//! and read of it.
//!
//! # How it works
//! A thread is one `Arc`. One count goes into the scheduler at spawn and comes back to [`reap`] once the thread is dead and
//! its CPU has left its stack; others are held by join handles.
//! The body travels in a box whose address is the new context's argument.
//! At its end a thread notes in its exit record that it is done, wakes who joined it, and leaves for good.
//! The stack goes back to the pool when the thread is reaped, whoever still holds the rest.
//!
//! The links by which a thread hangs in a wait list, among a CPU's sleepers and in the list of all threads lie in the
//! thread itself, so waiting allocates nothing.
//!
//! # Invariants
//! 1. Every `Thread` lives in an `Arc`, and does not move.
//! 2. A thread hangs in at most one wait list and among the sleepers of at most one CPU, only while it is in the call that
//!    waits. That call cannot end, nor can the thread, before it is out of both.
//! 3. A thread is in the list of all threads from its spawn until it is reaped.
//! 4. `stack` is taken out by [`reap`] only.
//!
//! # Cost
//! Spawn: two boxes and a stack from the pool. Exit: two locks. `current` is one instruction.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::panic::Location;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use boot::paging::MapError;
use intrusive_collections::{LinkedList, LinkedListAtomicLink, RBTreeAtomicLink, UnsafeRef, intrusive_adapter};
use sched_core::{Error, IrqOff, Mask256, Nice, SchedTask, SleepKind, Spawn, TaskParams, TaskStats};

use crate::arch::switch::Context;
use crate::arch::{irq, percpu};
use crate::config::KernelConfig;
use crate::lock::{IrqLock, irq_off};
use crate::sched::{self, scheduler};
use crate::stack::Stack;
use crate::wait::{Place, WaitList, WaitRecord, sleep_on};

/// How many bytes of a name are kept.
pub const NAME_BYTES: usize = 15;

/// A kernel thread.
pub struct Thread {
    sched: SchedTask<KernelConfig>,
    context: Context,
    /// What it waits for.
    pub wait: WaitRecord,
    /// In a wait list; changed under that list's lock.
    wait_link: LinkedListAtomicLink,
    /// Among a CPU's sleepers; changed under their lock.
    sleep_link: RBTreeAtomicLink,
    /// When it is to be woken, while it is among the sleepers.
    wake_at_ns: AtomicU64,
    end: IrqLock<End>,
    stack: IrqLock<Option<Stack>>,
    /// In the list of all threads; changed under its lock.
    all_link: LinkedListAtomicLink,
    tid: u32,
    daemon: Daemon,
    name: Name,
}

sched_core::task_ptr!(KernelConfig: Arc<Thread> { sched });
intrusive_adapter!(pub WaitAdapter = UnsafeRef<Thread>: Thread { wait_link => LinkedListAtomicLink });
intrusive_adapter!(pub SleepAdapter = UnsafeRef<Thread>: Thread { sleep_link => RBTreeAtomicLink });
intrusive_adapter!(AllAdapter = UnsafeRef<Thread>: Thread { all_link => LinkedListAtomicLink });

/// Whether the machine may end while the thread still waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Daemon {
    /// The thread has something to finish.
    #[default]
    No,
    /// The thread serves others, and may wait for ever.
    Yes,
}

/// What a new thread starts with.
#[derive(Clone, Copy, Debug)]
pub struct SpawnOptions<'a> {
    /// Its name; the first [`NAME_BYTES`] bytes are kept.
    pub name: &'a str,
    /// Nice value, policy, slice.
    pub params: TaskParams,
    /// Where it may run.
    pub affinity: Mask256,
    /// Whether it may wait for ever.
    pub daemon: Daemon,
}

/// Why a thread could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpawnError {
    /// There is no memory for its stack.
    Stack(MapError),
    /// The scheduler does not take it.
    Rejected(Error),
}

/// The right to wait for a thread's end. Dropping it lets the thread go its way.
#[derive(Debug)]
pub struct JoinHandle {
    thread: Arc<Thread>,
}

/// The running thread. It cannot be given to another.
#[derive(Clone, Copy)]
pub struct CurrentThread {
    thread: NonNull<Thread>,
    _not_send: PhantomData<*mut ()>,
}

/// A thread's name.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name {
    bytes: [u8; NAME_BYTES],
    len: u8,
}

/// How a thread's end is known.
struct End {
    done: bool,
    joiners: WaitList,
}

/// What a thread runs.
type Body = Box<dyn FnOnce() + Send>;

/// All threads but the idle ones.
static ALL: IrqLock<LinkedList<AllAdapter>> = IrqLock::new(LinkedList::new(AllAdapter::NEW));
/// The next thread's number.
static NEXT_TID: AtomicU32 = AtomicU32::new(1);
/// How many threads have something to finish.
static UNFINISHED: AtomicUsize = AtomicUsize::new(0);

/// Makes a thread that runs `f`.
///
/// # Errors
/// When there is no memory for its stack, or no CPU it may run on is online.
pub fn spawn(options: SpawnOptions<'_>, f: impl FnOnce() + Send + 'static) -> Result<JoinHandle, SpawnError> {
    let stack = Stack::take().map_err(SpawnError::Stack)?;
    let body: *mut Body = Box::into_raw(Box::new(Box::new(f)));
    // SAFETY: the stack is ours, mapped, and its top is aligned to a page; it goes back to the pool only when the thread
    // is reaped, or below, where the thread never ran.
    let context = unsafe { Context::new(stack.top(), first_steps, body.cast()) };
    let tid = NEXT_TID.fetch_add(1, Ordering::Relaxed);
    let thread = Arc::new(Thread::new(options.name, tid, options.daemon, context, Some(stack)));
    let handle = JoinHandle { thread: thread.clone() };
    if options.daemon == Daemon::No {
        UNFINISHED.fetch_add(1, Ordering::Relaxed);
    }
    let spawn = Spawn { params: options.params, affinity: options.affinity };
    let rejected = irq_off(|irq| {
        // SAFETY: the thread stays alive and in place while it is in the list: `reap` takes it out before it drops the
        // scheduler's count (I3).
        ALL.lock(irq).push_back(unsafe { UnsafeRef::from_raw(Arc::as_ptr(&thread)) });
        scheduler().spawn(irq, thread, spawn).err()
    });
    if let Some(rejected) = rejected {
        if options.daemon == Daemon::No {
            UNFINISHED.fetch_sub(1, Ordering::Relaxed);
        }
        irq_off(|irq| reap(irq, rejected.task));
        // SAFETY: the thread never ran, so the box is still ours.
        drop(unsafe { Box::from_raw(body) });
        return Err(SpawnError::Rejected(rejected.error));
    }
    sched::preempt_check();
    Ok(handle)
}

/// The running thread.
///
/// # Panics
/// Before the calling CPU takes part in the scheduler.
#[inline(always)]
pub fn current() -> CurrentThread {
    let Some(thread) = NonNull::new(percpu::current().cast_mut()) else { no_thread() };
    CurrentThread { thread: thread.cast(), _not_send: PhantomData }
}

/// Lets other threads of this CPU go first.
pub fn yield_now() {
    sched::yield_now();
}

/// Ends the running thread. What lies on its stack is forgotten, not dropped.
///
/// # Panics
/// Inside the condition of a wait.
pub fn exit() -> ! {
    sched::may_switch();
    let me = current();
    assert!(!me.wait.is_waiting(), "a wait's condition must not end the thread");
    irq_off(|irq| {
        let mut end = me.end.lock(irq);
        end.done = true;
        end.joiners.wake_all(irq);
        drop(end);
        if me.daemon == Daemon::No {
            UNFINISHED.fetch_sub(1, Ordering::Relaxed);
        }
        sched::leave_for_good(irq)
    })
}

/// Sets the nice value of `thread`; policy and slice stay.
pub fn set_nice(thread: &Thread, nice: Nice) -> Result<(), Error> {
    set_params(thread, TaskParams { nice, ..thread.params() })
}

/// Sets nice value, policy and slice of `thread`.
pub fn set_params(thread: &Thread, params: TaskParams) -> Result<(), Error> {
    let result = irq_off(|irq| scheduler().set_params(irq, thread, params));
    sched::preempt_check();
    result
}

/// Sets where `thread` may run. If it runs elsewhere it moves soon; the running thread has moved on return.
pub fn set_affinity(thread: &Thread, affinity: Mask256) -> Result<(), Error> {
    let result = irq_off(|irq| scheduler().set_affinity(irq, thread, affinity));
    sched::preempt_check();
    result
}

/// The counters of `thread`, with its run time up to now.
pub fn stats(thread: &Thread) -> TaskStats {
    irq_off(|irq| scheduler().task_stats(irq, thread))
}

/// How many threads that are no daemons have not ended.
pub fn unfinished() -> usize {
    UNFINISHED.load(Ordering::Relaxed)
}

/// Calls `f` for every thread but the idle ones, in the order of their spawn.
///
/// `f` runs with interrupts off and the list locked: it must be short, and must neither spawn nor print much.
pub fn for_each(mut f: impl FnMut(&Thread)) {
    ALL.with(|all| all.iter().for_each(&mut f));
}

/// Like [`for_each`], but gives up at once when somebody holds the list; for reports from the last breath.
pub fn try_for_each(irq: &IrqOff, mut f: impl FnMut(&Thread)) -> bool {
    match ALL.try_lock(irq) {
        Some(all) => {
            all.iter().for_each(&mut f);
            true
        }
        None => false,
    }
}

/// The name of the thread that runs on CPU `cpu`; for the panic report.
pub fn name_on(cpu: usize) -> &'static str {
    let thread = percpu::current_of(cpu).cast::<Thread>();
    // SAFETY: null, or the thread that CPU runs: in a panic that CPU has stopped in it, so it stays alive for good.
    match unsafe { thread.as_ref() } {
        Some(thread) => thread.name(),
        None => "boot",
    }
}

/// Takes back what a dead thread used. It has been left, or never ran.
pub fn reap(irq: &IrqOff, thread: Arc<Thread>) {
    let mut all = ALL.lock(irq);
    // SAFETY: the thread is in this list (I3).
    let _ = unsafe { all.cursor_mut_from_ptr(Arc::as_ptr(&thread)) }.remove();
    drop(all);
    let stack = thread.stack.lock(irq).take();
    if let Some(stack) = stack {
        stack.give_back(irq);
    }
    // No lock is held here: if this is the last count, memory is freed.
    drop(thread);
}

/// Where a new thread begins, with interrupts off.
extern "C" fn first_steps(body: *mut ()) -> ! {
    sched::begin();
    irq::enable();
    // SAFETY: `spawn` made the box for this thread, which takes it once.
    let body = unsafe { Box::from_raw(body.cast::<Body>()) };
    body();
    exit()
}

impl Thread {
    fn new(name: &str, tid: u32, daemon: Daemon, context: Context, stack: Option<Stack>) -> Self {
        Self {
            sched: SchedTask::new(),
            context,
            wait: WaitRecord::new(),
            wait_link: LinkedListAtomicLink::new(),
            sleep_link: RBTreeAtomicLink::new(),
            wake_at_ns: AtomicU64::new(0),
            end: IrqLock::new(End { done: false, joiners: WaitList::new() }),
            stack: IrqLock::new(stack),
            all_link: LinkedListAtomicLink::new(),
            tid,
            daemon,
            name: Name::new(name),
        }
    }

    /// The thread that the calling CPU's boot context becomes.
    pub fn idle(name: &str) -> Arc<Self> {
        Arc::new(Self::new(name, 0, Daemon::Yes, Context::empty(), None))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Its number, counted from 1; 0 for idle threads.
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// Whether it may wait for ever.
    pub fn daemon(&self) -> Daemon {
        self.daemon
    }

    /// The scheduler's part.
    pub fn sched(&self) -> &SchedTask<KernelConfig> {
        &self.sched
    }

    /// The CPU it runs on, waits for, or last ran on.
    pub fn cpu(&self) -> usize {
        self.sched.cpu().index()
    }

    /// Nice value, policy and slice.
    pub fn params(&self) -> TaskParams {
        self.sched.params()
    }

    /// Where its registers are while it does not run.
    #[inline(always)]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Whether it hangs in a wait list.
    #[inline(always)]
    pub fn is_listed(&self) -> bool {
        self.wait_link.is_linked()
    }

    /// Whether it is among a CPU's sleepers.
    #[inline(always)]
    pub fn is_sleeper(&self) -> bool {
        self.sleep_link.is_linked()
    }

    /// When it is to be woken, while it is among the sleepers.
    #[inline(always)]
    pub fn wake_at_ns(&self) -> u64 {
        self.wake_at_ns.load(Ordering::Relaxed)
    }

    /// Before it goes among the sleepers.
    #[inline(always)]
    pub fn set_wake_at_ns(&self, at_ns: u64) {
        self.wake_at_ns.store(at_ns, Ordering::Relaxed);
    }
}

impl JoinHandle {
    /// The thread.
    pub fn thread(&self) -> &Arc<Thread> {
        &self.thread
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.end.with(|end| end.done)
    }

    /// Waits until the thread has ended; what it did before is seen afterwards.
    #[track_caller]
    pub fn join(self) {
        sched::may_switch();
        let place = Place { what: "a thread to end", at: Location::caller() };
        irq_off(|irq| {
            loop {
                let end = self.thread.end.lock(irq);
                if end.done {
                    return;
                }
                sleep_on(irq, end, |end| &mut end.joiners, place, SleepKind::Uninterruptible);
            }
        });
    }
}

impl CurrentThread {
    /// What the lists hold.
    #[inline(always)]
    pub fn unsafe_ref(self) -> NonNull<Thread> {
        self.thread
    }
}

impl Deref for CurrentThread {
    type Target = Thread;

    #[inline(always)]
    fn deref(&self) -> &Thread {
        // SAFETY: the running thread is alive, and only it has this value.
        unsafe { self.thread.as_ref() }
    }
}

impl Default for SpawnOptions<'_> {
    fn default() -> Self {
        Self { name: "thread", params: TaskParams::default(), affinity: Mask256::ALL, daemon: Daemon::No }
    }
}

impl Name {
    fn new(name: &str) -> Self {
        let mut len = name.len().min(NAME_BYTES);
        while !name.is_char_boundary(len) {
            len -= 1;
        }
        let mut bytes = [0; NAME_BYTES];
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        Self { bytes, len: len as u8 }
    }

    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or("?")
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.tid, self.name())
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stack(error) => write!(f, "no stack for the thread: {error}"),
            Self::Rejected(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for SpawnError {}

#[cold]
fn no_thread() -> ! {
    panic!("this CPU runs no thread yet");
}
