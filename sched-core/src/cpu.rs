//! # What it is
//! [`CpuQueue`]: everything the scheduler keeps for one CPU. The embedder owns the storage.
//!
//! # How it works
//! Fields lie apart by who touches them:
//! what other CPUs read to find a place for a task, what the queue's lock guards, what only the CPU itself touches, and the counters.
//!
//! # Invariants
//! 1. What is published is as of the last section under the lock: the number of runnable tasks, waiting or running,
//!    the time of the queue's signals, and where CFS measures from.
//! 2. `request` is set before the kick that goes with it, after what it is about, and cleared by its CPU before the decision it asks for.
//!    Who is in the wake list has a request that follows, or is being taken in.
//! 3. `current` (the owner's copy) and `Inner::current` name the same task whenever interrupts are on.
//!
//! # Cost
//! One lock, held for one decision; never two at a time.
//!
//! Legend: (q) queue lock, (o) owner CPU only with interrupts off, (a) atomic, (c) constant once online.

use core::{
    ops::{Deref, DerefMut},
    sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use crate::{
    config::Config,
    gate::Gate,
    params::Tunables,
    pelt::{PeltTime, Removed},
    platform::{CpuId, Nanos},
    queue::FairQueue,
    stats::{psi::PsiCpu, schedstat::CpuCounters, watch::WatchCpu},
    sync::{Family, Lock, LockGuard, OwnerCell, Word},
    task::TaskRef,
    topology::{Domains, Place},
    vtime::VTime,
};

/// One CPU's queue, current task and counters.
#[repr(C, align(64))]
pub struct CpuQueue<C: Config> {
    published: Published<C::Sync>,
    departed: Departed<C::Sync>,
    pub(crate) domains: Domains<C::Mask>, // (c)
    guarded: GuardedLine<C>,
    owner: OwnerLine<C>,
    pub(crate) counters: <C::Schedstats as Gate>::Store<CpuCounters<C::Sync>>,
    pub(crate) psi: <C::Psi as Gate>::Store<PsiCpu<C::Sync>>,
    pub(crate) watch: <C::Watch as Gate>::Store<WatchCpu<C::Sync>>,
}

/// The bit of `Published::load` that says that all tasks are of the idle policy; below it lies their number.
const ONLY_IDLE_POLICY: u32 = 32;

/// Read by CPUs that look for a place.
#[repr(C, align(64))]
struct Published<F: Family> {
    load: F::Word,         // (a), written under (q)
    min_vruntime: F::Word, // (a), written under (q)
    load_time: F::Word,    // (a), written under (q)
    load_avg: F::Word,     // (a), written under (q)
    clock: F::Word,        // (a), written under (q)
    owned: F::Word,        // (a)
}

/// What other CPUs leave here without the lock: tasks that they woke for this CPU, which it takes in itself,
/// and the load of tasks that slept here and wake elsewhere, which the next section takes out.
#[repr(C, align(64))]
struct Departed<F: Family> {
    wakees: F::Word,       // (a), the last one pushed
    some: F::Word,         // (a), set after the others were added to
    load_avg: F::Word,     // (a)
    runnable_avg: F::Word, // (a)
    util_avg: F::Word,     // (a)
}

/// The lock and what it guards; remote wake-ups come here.
#[repr(C, align(64))]
struct GuardedLine<C: Config> {
    request: <C::Sync as Family>::Word, // (a)
    inner: Lock<C::Sync, Inner<C>>,
}

/// A section under a queue's lock.
///
/// It begins with the load of what has departed taken out, and ends with what other CPUs read published (I1):
/// nobody can forget either.
pub(crate) struct Section<'q, C: Config> {
    queue: &'q CpuQueue<C>,
    inner: LockGuard<'q, C::Sync, Inner<C>>,
}

impl<C: Config> Deref for Section<'_, C> {
    type Target = Inner<C>;
    #[inline(always)]
    fn deref(&self) -> &Inner<C> {
        &self.inner
    }
}

impl<C: Config> DerefMut for Section<'_, C> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Inner<C> {
        &mut self.inner
    }
}

impl<C: Config> Drop for Section<'_, C> {
    #[inline(always)]
    fn drop(&mut self) {
        let (published, inner) = (&self.queue.published, &*self.inner);
        let runnable = u64::from(inner.fair.nr_runnable()) + u64::from(inner.stop_ready);
        let only_idle_policy = inner.fair.only_idle_policy() && !inner.stop_ready;
        published.load.store(runnable | u64::from(only_idle_policy) << ONLY_IDLE_POLICY, Relaxed);
        published.load_time.store(inner.fair.load_time().nanos(), Relaxed);
        published.clock.store(inner.clock, Relaxed);
        published.min_vruntime.store(inner.fair.min_vruntime().raw(), Relaxed);
    }
}

mod request {
    //! The bits of the request word.
    /// The CPU was asked to reschedule.
    pub(super) const ASKED: u64 = 1;
    /// The CPU is idle and looks at this word: it need not be kicked.
    pub(super) const POLLS: u64 = 2;
}

/// Touched by the CPU itself.
#[repr(C, align(64))]
struct OwnerLine<C: Config> {
    current: OwnerCell<C::Sync, Option<TaskRef<C>>>,   // (o)
    handover: OwnerCell<C::Sync, Option<Handover<C>>>, // (o)
    search: OwnerCell<C::Sync, Search>,                // (o)
}

/// How this CPU looks for an idle one when it wakes a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    /// At how many it looks.
    pub(crate) most: u32,
    /// Where it goes on if it cannot look at all.
    pub(crate) from: CpuId,
}

/// What the queue's lock guards.
pub(crate) struct Inner<C: Config> {
    pub(crate) fair: FairQueue<C::Sync, C::Features>,
    /// Who runs; none before the CPU is online.
    pub(crate) current: Option<TaskRef<C>>,
    pub(crate) idle: Option<TaskRef<C>>,
    pub(crate) stop: Option<TaskRef<C>>,
    /// The stop task wants to run, or does.
    pub(crate) stop_ready: bool,
    pub(crate) clock: Nanos,
    /// Ticks since the CPU has had more than one runnable task, or since it last gave one away to even things out.
    pub(crate) crowded_ticks: u32,
    pub(crate) switches: u64,
    /// Switches that were not finished before the next decision.
    pub(crate) unfinished: u64,
}

/// The task a CPU is switching away from, and what is due once it has left it.
pub(crate) struct Handover<C: Config> {
    pub(crate) prev: TaskRef<C>,
    pub(crate) then: Then,
}

impl<C: Config> Clone for Handover<C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C: Config> Copy for Handover<C> {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The task stays here or sleeps.
    Nothing,
    /// It may no longer run here: find it another CPU.
    Move,
    /// It is dead: give it back.
    Return,
}

static_assertions::assert_eq_align!(Published<crate::sync::Spin>, OwnerAlign);
#[repr(align(64))]
struct OwnerAlign;

impl<C: Config> CpuQueue<C> {
    /// An empty queue of a CPU that is not online, in a machine where all CPUs are equally near.
    pub fn new(tunables: &Tunables) -> Self {
        Self::with(tunables, Domains::UNKNOWN)
    }

    /// An empty queue of CPU `cpu` of `cpus` CPUs, which is not online. `place` says of each of them what it shares with others.
    pub fn placed(tunables: &Tunables, cpu: CpuId, cpus: u32, place: impl Fn(CpuId) -> Place) -> Self {
        Self::with(tunables, Domains::new(cpu, cpus, place))
    }

    fn with(tunables: &Tunables, domains: Domains<C::Mask>) -> Self {
        Self {
            published: Published {
                load: Word::new(0),
                min_vruntime: Word::new(VTime::START.raw()),
                load_time: Word::new(0),
                load_avg: Word::new(0),
                clock: Word::new(0),
                owned: Word::new(0),
            },
            departed: Departed {
                wakees: Word::new(0),
                some: Word::new(0),
                load_avg: Word::new(0),
                runnable_avg: Word::new(0),
                util_avg: Word::new(0),
            },
            domains,
            guarded: GuardedLine {
                request: Word::new(0),
                inner: Lock::new(Inner {
                    fair: FairQueue::new(tunables, C::TICK_NANOS),
                    current: None,
                    idle: None,
                    stop: None,
                    stop_ready: false,
                    clock: 0,
                    crowded_ticks: 0,
                    switches: 0,
                    unfinished: 0,
                }),
            },
            owner: OwnerLine {
                current: OwnerCell::new(None),
                handover: OwnerCell::new(None),
                search: OwnerCell::new(Search { most: 64, from: CpuId(0) }),
            },
            counters: Default::default(),
            psi: Default::default(),
            watch: Default::default(),
        }
    }

    /// Opens a section under the queue's lock.
    #[inline(always)]
    pub(crate) fn lock(&self) -> Section<'_, C> {
        let mut inner = self.guarded.inner.lock();
        self.forget_departed(&mut inner);
        Section { queue: self, inner }
    }

    /// Runnable tasks, waiting or running, and one more if some were woken for this CPU that it has not taken in.
    /// A hint: it may change at once.
    #[inline(always)]
    pub(crate) fn load(&self) -> u64 {
        (self.published.load.load(Relaxed) & u64::from(u32::MAX)) + u64::from(self.has_wakees())
    }

    /// Whether whoever is runnable here gives way to a normal task. As much of a hint.
    #[inline(always)]
    pub(crate) fn gives_way(&self) -> bool {
        self.published.load.load(Relaxed) >> ONLY_IDLE_POLICY != 0 && !self.has_wakees()
    }

    /// Takes the queue for one scheduler. False if it had one already, also one that is gone: its tasks may still be here.
    pub(crate) fn take(&self) -> bool {
        self.published.owned.swap(1, AcqRel) == 0
    }

    /// The average load of this CPU's tasks as of its last tick, waiting and sleeping ones included; see [`publish_load_avg`](Self::publish_load_avg).
    #[inline(always)]
    pub(crate) fn load_avg(&self) -> u64 {
        self.published.load_avg.load(Relaxed)
    }

    /// Says what others go by when they balance. The caller holds the lock.
    pub(crate) fn publish_load_avg(&self, inner: &mut Inner<C>, now: Nanos) {
        self.published.load_avg.store(inner.fair.load(now).load_avg(), Relaxed);
    }

    /// The clock of the CPU, as of the last section under the lock.
    pub(crate) fn clock(&self) -> Nanos {
        self.published.clock.load(Relaxed)
    }

    /// The time of the queue's signals, as of the last section under its lock.
    pub(crate) fn load_time(&self) -> PeltTime {
        PeltTime::from_nanos(self.published.load_time.load(Relaxed))
    }

    /// A task that slept here is no longer part of this queue's load. The lock need not be held.
    pub(crate) fn leave_behind(&self, removed: Removed) {
        self.departed.load_avg.fetch_add(removed.load_avg, Relaxed);
        self.departed.runnable_avg.fetch_add(removed.runnable_avg, Relaxed);
        self.departed.util_avg.fetch_add(removed.util_avg, Relaxed);
        self.departed.some.store(1, Release);
    }

    /// Brings the queue's load up to what has left.
    #[inline(always)]
    fn forget_departed(&self, inner: &mut Inner<C>) {
        if self.departed.some.load(Relaxed) == 0 {
            return;
        }
        // Who adds after this swap sets the word again.
        self.departed.some.swap(0, Acquire);
        inner.fair.forget_load(Removed {
            load_avg: self.departed.load_avg.swap(0, Relaxed),
            runnable_avg: self.departed.runnable_avg.swap(0, Relaxed),
            util_avg: self.departed.util_avg.swap(0, Relaxed),
        });
    }

    /// The virtual time by which a task that slept here is measured elsewhere, as of the last section under its lock.
    pub(crate) fn min_vruntime(&self) -> VTime {
        VTime::from_raw(self.published.min_vruntime.load(Relaxed))
    }

    /// Whether this CPU was asked to reschedule.
    #[inline(always)]
    pub(crate) fn requested(&self) -> bool {
        self.guarded.request.load(Relaxed) & request::ASKED != 0
    }

    /// Asks this CPU to reschedule. True if it has to be kicked for that: nobody had asked before, and it does not poll.
    /// The caller holds the lock, under which requests are answered.
    #[inline(always)]
    pub(crate) fn request(&self) -> bool {
        !self.requested() && self.ask()
    }

    /// Asks this CPU to look at its wake list. Else as [`request`](Self::request), without the lock.
    #[inline(always)]
    pub(crate) fn request_to_look(&self) -> bool {
        // Also if there is a request already: it may be answered just now, and who answers it must see the list.
        self.ask()
    }

    /// Always a read-modify-write: a plain store would hide from who answers the request what an earlier one came with.
    #[inline(always)]
    fn ask(&self) -> bool {
        let mut seen = self.guarded.request.load(Relaxed);
        loop {
            match self.guarded.request.compare_exchange(seen, seen | request::ASKED, Release, Relaxed) {
                Ok(_) => return seen == 0,
                Err(other) => seen = other,
            }
        }
    }

    /// The request is answered by what the calling CPU, whose queue this is, does from here on.
    #[inline(always)]
    pub(crate) fn clear_request(&self) {
        if self.guarded.request.load(Relaxed) != 0 {
            // Acquire: what was pushed before a request that is cleared here is found in the wake list.
            self.guarded.request.swap(0, Acquire);
        }
    }

    /// From here on a request needs no kick. False if there is one already. The calling CPU's own queue.
    pub(crate) fn begin_poll(&self) -> bool {
        self.guarded.request.compare_exchange(0, request::POLLS, Relaxed, Relaxed).is_ok()
    }

    /// From here on a request needs a kick. False if there is one already, which then stays. The calling CPU's own queue.
    pub(crate) fn end_poll(&self) -> bool {
        let mut seen = request::POLLS;
        loop {
            match self.guarded.request.compare_exchange(seen, seen & !request::POLLS, Relaxed, Relaxed) {
                Ok(_) => return seen & request::ASKED == 0,
                Err(other) => seen = other,
            }
        }
    }

    /// Leaves a task that was woken for this CPU to it. True if the list was empty: then the CPU has to be asked to look.
    pub(crate) fn push_wakee(&self, task: TaskRef<C>) -> bool {
        let mut last = self.departed.wakees.load(Relaxed);
        loop {
            task.words.next_wakee.store(last, Relaxed);
            // Release: who takes the list in sees the tasks as their wakers left them.
            // Acquire: who pushes after it was taken by a CPU that goes offline sees that it does.
            match self.departed.wakees.compare_exchange(last, task.to_word(), AcqRel, Relaxed) {
                Ok(_) => return last == 0,
                Err(other) => last = other,
            }
        }
    }

    /// Whether tasks were woken for this CPU that it has not taken in.
    #[inline(always)]
    pub(crate) fn has_wakees(&self) -> bool {
        self.departed.wakees.load(Relaxed) != 0
    }

    /// The tasks woken for this CPU, the first one first; the caller places them.
    pub(crate) fn take_wakees(&self) -> impl Iterator<Item = TaskRef<C>> + use<C> {
        let mut last = self.departed.wakees.swap(0, AcqRel);
        // Pushed as on a stack; turned round, so that who was woken first comes first.
        let mut first = 0;
        // SAFETY: who is in the list is Waking, so it does not run, and the scheduler owns it.
        while let Some(task) = unsafe { TaskRef::<C>::from_word(last) } {
            let next = task.words.next_wakee.load(Relaxed);
            task.words.next_wakee.store(first, Relaxed);
            (first, last) = (last, next);
        }
        core::iter::from_fn(move || {
            // SAFETY: as above; the caller has not placed it yet.
            let task = unsafe { TaskRef::<C>::from_word(first) }?;
            first = task.words.next_wakee.load(Relaxed);
            Some(task)
        })
    }

    /// # Safety
    /// The caller runs on the CPU of this queue with interrupts off.
    #[inline(always)]
    pub(crate) unsafe fn current(&self) -> Option<TaskRef<C>> {
        // SAFETY: by this function's contract.
        unsafe { self.owner.current.get() }
    }

    /// # Safety
    /// The caller runs on the CPU of this queue with interrupts off.
    #[inline(always)]
    pub(crate) unsafe fn set_current(&self, task: TaskRef<C>) {
        // SAFETY: by this function's contract.
        unsafe { self.owner.current.set(Some(task)) }
    }

    /// # Safety
    /// The caller runs on the CPU of this queue with interrupts off.
    #[inline(always)]
    pub(crate) unsafe fn set_handover(&self, handover: Handover<C>) {
        // SAFETY: by this function's contract.
        unsafe { self.owner.handover.set(Some(handover)) }
    }

    /// # Safety
    /// The caller runs on the CPU of this queue with interrupts off.
    pub(crate) unsafe fn change_search(&self, change: impl FnOnce(&mut Search)) -> Search {
        // SAFETY: by this function's contract.
        unsafe {
            let mut search = self.owner.search.get();
            change(&mut search);
            self.owner.search.set(search);
            search
        }
    }

    /// # Safety
    /// The caller runs on the CPU of this queue with interrupts off.
    #[inline(always)]
    pub(crate) unsafe fn handover_pending(&self) -> bool {
        // SAFETY: by this function's contract.
        unsafe { self.owner.handover.get() }.is_some()
    }

    /// # Safety
    /// The caller runs on the CPU of this queue with interrupts off.
    #[inline(always)]
    pub(crate) unsafe fn take_handover(&self) -> Option<Handover<C>> {
        // SAFETY: by this function's contract.
        unsafe {
            let handover = self.owner.handover.get();
            self.owner.handover.set(None);
            handover
        }
    }
}

impl<C: Config> Inner<C> {
    /// Moves the queue's clock to `now`; a step back is dropped.
    #[inline(always)]
    pub(crate) fn advance(&mut self, now: Nanos) -> Nanos {
        self.clock = self.clock.max(now);
        self.clock
    }
}
