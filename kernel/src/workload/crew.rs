//! The threads of a workload.
//!
//! # What it is
//! A [`Crew`]: threads that start together, and whose end is waited for. [`Faults`]: what they found wrong.
//!
//! # How it works
//! A member counts itself in and sleeps at the start line. When all are there the clock is read and the line opened.
//! If a member cannot be made the crew is dropped, which sends the others home without having worked.
//!
//! # Invariants
//! 1. Nobody works before all are at the start line.
//! 2. No member is left when the crew is gone.
//!
//! # Cost
//! Nothing between start and end.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use boot::layout::PAGE;
use sched_core::SleepKind;

use super::Failure;
use crate::arch::tsc;
use crate::lock::IrqLock;
use crate::thread::{self, JoinHandle, SpawnError, SpawnOptions};
use crate::wait::WaitQueue;
use crate::{heap, stack};

/// The start line is closed.
const WAIT: u32 = 0;
/// It is open.
const GO: u32 = 1;
/// The work is called off.
const GO_HOME: u32 = 2;

/// What a thread takes beside its stack, roughly, with what the allocator adds.
const THREAD_BYTES: u64 = 2048;

/// Threads that start together.
pub struct Crew {
    start: Arc<Start>,
    threads: Vec<JoinHandle>,
}

struct Start {
    state: AtomicU32,
    /// How many members there will be.
    expected: usize,
    /// How many are at the start line.
    arrived: AtomicUsize,
    members: WaitQueue,
    leader: WaitQueue,
}

/// What the members found wrong; the first thing is kept.
#[derive(Clone)]
pub struct Faults(Arc<IrqLock<Option<String>>>);

/// Says whether there is memory for so many threads, and so many bytes beside them.
pub fn check_memory(threads: usize, bytes: u64) -> Result<(), Failure> {
    let new_stacks = threads.saturating_sub(stack::count().free) as u64;
    // The guard page is not backed, but the page tables are.
    let stacks = new_stacks * (stack::STACK_PAGES + 1) * PAGE;
    let needed = stacks + threads as u64 * THREAD_BYTES + bytes;
    let free = boot::paging::free_bytes() + heap::usage().map_or(0, |usage| usage.free_bytes as u64);
    if needed > free { Err(Failure::Memory { needed, free }) } else { Ok(()) }
}

impl Crew {
    /// A crew that will have so many members.
    pub fn new(expected: usize) -> Self {
        let start = Start {
            state: AtomicU32::new(WAIT),
            expected,
            arrived: AtomicUsize::new(0),
            members: WaitQueue::new(),
            leader: WaitQueue::new(),
        };
        Self { start: Arc::new(start), threads: Vec::with_capacity(expected) }
    }

    /// A member that does `work` once the line is open.
    pub fn add(&mut self, options: SpawnOptions<'_>, work: impl FnOnce() + Send + 'static) -> Result<(), SpawnError> {
        let start = self.start.clone();
        let thread = thread::spawn(options, move || {
            if start.arrive() == GO {
                work();
            }
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// The members, in the order in which they were added.
    pub fn threads(&self) -> &[JoinHandle] {
        &self.threads
    }

    /// Waits until all are at the start line.
    pub fn wait_ready(&self) {
        let Start { expected, arrived, leader, .. } = &*self.start;
        leader.wait_until("a workload's threads to be ready", SleepKind::Interruptible, || {
            (arrived.load(Ordering::Acquire) == *expected).then_some(())
        });
    }

    /// Opens the line.
    pub fn open(&self) {
        self.start.state.store(GO, Ordering::Release);
        self.start.members.wake_all();
    }

    /// Waits until all have ended.
    pub fn join(mut self) {
        self.threads.drain(..).for_each(JoinHandle::join);
    }

    /// Waits until all are ready, opens the line, waits until all have ended, and says how many nanoseconds that took.
    pub fn time(self) -> u64 {
        self.wait_ready();
        let start_ns = tsc::now_ns();
        self.open();
        self.join();
        tsc::now_ns() - start_ns
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.start.state.store(GO_HOME, Ordering::Release);
            self.start.members.wake_all();
            self.threads.drain(..).for_each(JoinHandle::join);
        }
    }
}

impl Start {
    /// Waits at the line, and says how it went.
    fn arrive(&self) -> u32 {
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.expected {
            self.leader.wake_one();
        }
        self.members.wait_until("a workload to start", SleepKind::Interruptible, || {
            Some(self.state.load(Ordering::Acquire)).filter(|&state| state != WAIT)
        })
    }
}

impl Faults {
    /// Nothing is wrong yet.
    pub fn new() -> Self {
        Self(Arc::new(IrqLock::new(None)))
    }

    /// Something is.
    pub fn add(&self, what: String) {
        self.0.with(|first| {
            if first.is_none() {
                *first = Some(what);
            }
        });
    }

    /// The first thing that was wrong.
    pub fn first(&self) -> Option<String> {
        self.0.with(Option::take)
    }
}
