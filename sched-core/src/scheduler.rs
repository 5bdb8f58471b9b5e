//! # What it is
//! The front door: [`Scheduler`] decides who runs where, for all CPUs. It never switches stacks, allocates, prints or waits.
//!
//! # How it works
//! Each CPU has a queue under a lock of its own. The order of picks is: the stop task, the fair class, the idle task.
//!
//! *Sleeping* is prepare, check, block. [`Scheduler::prepare`] marks the current task;
//! from then on a wake-up is not lost, because it takes the mark away and [`Scheduler::schedule`] then answers `Stay`.
//!
//! *Waking* moves a blocked task to Waking by compare-and-swap; whoever wins owns its placement.
//! If the task is still leaving its last CPU, the owner hands the placement to that CPU by a second compare-and-swap on `on_cpu`
//! and goes on: nobody ever waits for another CPU's switch.
//! Otherwise it picks a CPU (see `select`), queues the task there under that queue's lock,
//! sets the request if the task should run now, and kicks the CPU after it let go of the lock.
//! A task that waits moves to a CPU that is better off (see `balance`).
//!
//! A task that owes service when it falls asleep is *delayed*: asleep for everybody but its queue, where it waits until it has paid.
//! Who wakes it finds it there, and it goes on waiting, awake; or it is its turn first, and it leaves.
//! If another CPU could run it at once, the waker takes it off and places it there.
//!
//! *Switching* takes two calls: [`Scheduler::schedule`] returns who was left and who comes,
//! and [`Scheduler::finish_switch`], first thing on the new stack, releases who was left.
//! Until then it cannot run, move or die: it is marked on-CPU, and everybody who would place it hands that to this CPU.
//!
//! *Parameters* (nice, policy, slice, affinity) are words of the task. Setting one stores it and then looks at the queue the task is on;
//! placing a task names its queue and then reads them. Both are sequentially consistent, so one of the two sees the other.
//!
//! # Invariants
//! 1. A task runs on at most one CPU: it is picked only from the one queue it is on, and queued only when no CPU is on it,
//!    or on the very CPU that is leaving it.
//! 2. A task's entity is touched only under the lock of the queue named by `queued_on`, or by the owner of its placement
//!    under the lock of the queue it is placed on.
//! 3. A runnable task is on a queue, or its placement has an owner that is running.
//! 4. A request is set before its kick; a kick is sent for every request that was not already pending on another CPU.
//! 5. At most one queue lock is held at a time; locks are ordered: mask writer or hotplug, queue, averages.
//!
//! # Cost
//! `schedule`: one lock, O(log n) on average (see `queue`). `wake`: one lock, one or two compare-and-swaps, a bounded scan for an idle CPU.
//! `finish_switch`: one swap, no lock.

mod balance;
mod hotplug;
mod observe;
mod place;
mod select;
mod types;

pub use types::{Decision, Error, Faults, Gates, Reason, Rejected, Sleep, Spawn, Target, Woken};

use core::{
    ptr::NonNull,
    sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};

use observe::PsiSlot;
use place::{Coming, Queued};

use crate::{
    config::Config,
    cpu::{CpuQueue, Handover, Inner, Search, Section, Then},
    entity::EntityRef,
    features::{Feature, FeatureError, FeatureSet},
    gate::{Gate, Store},
    mask::{CpuMask, SharedMask},
    params::TaskParams,
    platform::{CpuId, Nanos, Platform},
    policy::Departure,
    queue::Left,
    stats::{Prev, watch::Watch},
    sync::{Family, Lock, Word},
    task::{Class, SleepKind, TaskPtr, TaskRef, on_cpu, state},
    token::IrqOff,
};

/// The scheduler of one machine.
///
/// Dropping it gives no task back: those that have not been returned by [`finish_switch`](Self::finish_switch) stay as they are
/// and are never freed. It is meant to live as long as its machine.
pub struct Scheduler<'q, C: Config> {
    queues: &'q [CpuQueue<C>],
    platform: C::Platform,
    gates: Gates<C>,
    psi: <C::Psi as Gate>::Store<PsiSlot<C>>,
    watch: <C::Watch as Gate>::Store<Watch<C::Sync>>,
    /// How many words of a mask name CPUs that there are.
    mask_words: usize,
    /// Held by a CPU that is about to go offline, so that the last two do not go together.
    plugging: Lock<C::Sync, ()>,
    /// The CPUs that are online.
    online: <C::Mask as CpuMask>::Shared<C::Sync>,
    /// Not 0: some CPU may have a task that waits. Set where one may come to be, cleared by who looked everywhere.
    crowded: <C::Sync as Family>::Word,
    /// A bit for each feature that is not as in the table. The queues follow it; nobody decides by it.
    changed_features: <C::Sync as Family>::Word,
}

/// The CPU that executes the call, with interrupts off.
struct Here<'a, C: Config> {
    cpu: CpuId,
    queue: &'a CpuQueue<C>,
}

impl<C: Config> Here<'_, C> {
    #[inline(always)]
    fn current(&self) -> Option<TaskRef<C>> {
        // SAFETY: a `Here` is made only by `Scheduler::here`, on this CPU with interrupts off, and does not outlive the call.
        unsafe { self.queue.current() }
    }

    #[inline(always)]
    fn set_current(&self, task: TaskRef<C>) {
        // SAFETY: as in `current`.
        unsafe { self.queue.set_current(task) }
    }

    #[inline(always)]
    fn set_handover(&self, handover: Handover<C>) {
        // SAFETY: as in `current`.
        unsafe { self.queue.set_handover(handover) }
    }

    fn change_search(&self, change: impl FnOnce(&mut Search)) -> Search {
        // SAFETY: as in `current`.
        unsafe { self.queue.change_search(change) }
    }

    #[inline(always)]
    fn handover_pending(&self) -> bool {
        // SAFETY: as in `current`.
        unsafe { self.queue.handover_pending() }
    }

    #[inline(always)]
    fn take_handover(&self) -> Option<Handover<C>> {
        // SAFETY: as in `current`.
        unsafe { self.queue.take_handover() }
    }
}

impl<'q, C: Config> Scheduler<'q, C> {
    /// A scheduler over `queues`, one per possible CPU. No CPU is online yet.
    ///
    /// # Errors
    /// [`Error::CpuCount`] without a queue, or with more than [`CpuMask::CPUS`] of them;
    /// [`Error::QueueTaken`] if a queue belongs to another scheduler, or belonged to one that is gone.
    pub fn new(queues: &'q [CpuQueue<C>], platform: C::Platform, gates: Gates<C>) -> Result<Self, Error> {
        if queues.is_empty() || queues.len() > C::Mask::CPUS {
            return Err(Error::CpuCount { queues: queues.len(), mask: C::Mask::CPUS });
        }
        for (at, queue) in queues.iter().enumerate() {
            if !queue.take() {
                return Err(Error::QueueTaken(CpuId(at as u32)));
            }
        }
        Ok(Self {
            queues,
            platform,
            gates,
            psi: Default::default(),
            watch: Default::default(),
            mask_words: queues.len().div_ceil(64),
            plugging: Lock::new(()),
            online: SharedMask::new(C::Mask::EMPTY),
            crowded: Word::new(0),
            changed_features: Word::new(0),
        })
    }

    /// Brings the calling CPU online, with `idle` as its current task.
    ///
    /// `idle` runs whenever nobody else wants to. It must not sleep or exit.
    ///
    /// # Errors
    /// [`Error::NoSuchCpu`], [`Error::AlreadyOnline`], [`Error::AlreadySpawned`]; the pointer comes back.
    pub fn bring_online(&self, _irq: &IrqOff, idle: C::Task) -> Result<(), Rejected<C>> {
        let cpu = self.platform.this_cpu();
        let Some(queue) = self.queues.get(cpu.index()) else {
            return Err(Rejected { task: idle, error: Error::NoSuchCpu(cpu) });
        };
        if self.is_online(cpu) {
            return Err(Rejected { task: idle, error: Error::AlreadyOnline(cpu) });
        }
        let idle = self.adopt(idle, Class::Idle)?;
        idle.words.cpu.store(u64::from(cpu.0), Relaxed);
        idle.words.on_cpu.store(on_cpu::ON, Relaxed);
        idle.words.queued_on.store(u64::from(cpu.0) + 1, Relaxed);
        let mut inner = queue.lock();
        let now = inner.advance(self.platform.now(cpu));
        inner.fair.start_outsider(idle.entity_ref(), now);
        inner.idle = Some(idle);
        inner.current = Some(idle);
        self.observe_idle(queue, now);
        drop(inner);
        Here { cpu, queue }.set_current(idle);
        self.online.set(cpu, true);
        Ok(())
    }

    /// A new task becomes runnable, on the allowed CPU with the fewest runnable tasks.
    ///
    /// # Errors
    /// [`Error::NoOnlineCpu`], [`Error::AlreadySpawned`]; the pointer comes back.
    pub fn spawn(&self, irq: &IrqOff, task: C::Task, spawn: Spawn<C>) -> Result<(), Rejected<C>> {
        if !self.any_online(&spawn.affinity) {
            return Err(Rejected { task, error: Error::NoOnlineCpu });
        }
        let here = self.here(irq);
        let task = self.adopt(task, Class::Fair)?;
        task.words.cpu.store(u64::from(here.cpu.0), Relaxed);
        task.words.params.store(spawn.params.pack(), Relaxed);
        task.mask.store(spawn.affinity);
        self.place(&here, task, Coming::Fresh);
        Ok(())
    }

    /// A new stop task for the calling CPU: runs before all others, asleep until its first wake-up, never anywhere else.
    ///
    /// # Errors
    /// [`Error::StopTaskTaken`], [`Error::AlreadySpawned`]; the pointer comes back.
    pub fn spawn_stop(&self, irq: &IrqOff, task: C::Task) -> Result<(), Rejected<C>> {
        let here = self.here(irq);
        if here.queue.lock().stop.is_some() {
            return Err(Rejected { task, error: Error::StopTaskTaken(here.cpu) });
        }
        let task = self.adopt(task, Class::Stop)?;
        task.words.cpu.store(u64::from(here.cpu.0), Relaxed);
        here.queue.lock().stop = Some(task);
        task.words.state.store(state::BLOCKED_UNINTERRUPTIBLE, Release);
        Ok(())
    }

    /// The current task says that it is about to sleep.
    ///
    /// Now check the condition to wait for.
    /// If it holds, drop the [`Sleep`]; if not, pass it to [`schedule`](Self::schedule).
    /// A wake-up that comes in between is not lost. Checking *before* `prepare` loses wake-ups.
    ///
    /// The idle task cannot sleep: `schedule` will answer `Stay`.
    ///
    /// # Panics
    /// In debug builds, on a CPU that is not online.
    pub fn prepare(&self, irq: &IrqOff, kind: SleepKind) -> Sleep<C> {
        let current = self.current_task(irq);
        if !current.is(Class::Idle) {
            let prepared = match kind {
                SleepKind::Interruptible => state::PREPARED_INTERRUPTIBLE,
                SleepKind::Uninterruptible => state::PREPARED_UNINTERRUPTIBLE,
            };
            current.words.state.store(prepared, Relaxed);
            // Pairs with the fence in `wake`: either the waker sees the mark, or the caller sees the condition.
            C::Sync::fence(SeqCst);
        }
        Sleep::of(current)
    }

    /// Decides who runs on this CPU now.
    ///
    /// On [`Decision::Switch`] the caller saves `prev`, continues `next` without interrupts in between,
    /// and calls [`finish_switch`](Self::finish_switch) first thing on the new stack.
    /// A pending request is answered by any call that comes to a decision; a cancelled sleep is not a decision.
    pub fn schedule(&self, irq: &IrqOff, reason: Reason<C>) -> Decision<C> {
        let here = self.here(irq);
        let Some(prev) = here.current() else {
            debug_assert!(false, "this CPU is not online");
            return Decision::Stay;
        };
        let (yields, departure) = match reason {
            Reason::Preempt => (false, None),
            Reason::Yield => (true, None),
            Reason::Block(sleep) => {
                debug_assert!(sleep.belongs_to(prev), "a Sleep of another task");
                if !sleep.commit() {
                    return Decision::Stay;
                }
                (false, Some(Then::Nothing))
            }
            Reason::Exit => {
                if prev.is(Class::Idle) {
                    debug_assert!(false, "the idle task must not exit");
                    return Decision::Stay;
                }
                prev.words.state.store(state::DEAD, Release);
                (false, Some(Then::Return))
            }
        };
        self.decide(&here, prev, yields, departure)
    }

    #[inline(always)]
    fn decide(&self, here: &Here<'_, C>, prev: TaskRef<C>, yields: bool, departure: Option<Then>) -> Decision<C> {
        let mut inner = here.queue.lock();
        let mut now = inner.advance(self.platform.now(here.cpu));
        here.queue.clear_request();
        if here.queue.has_wakees() {
            (inner, now) = self.take_wakees_in(here, inner);
        }
        if let Some(counters) = here.queue.counters.get().filter(|_| self.gates.schedstats.on()) {
            counters.scheduled();
            if yields {
                counters.yielded();
            }
        }
        let fair = prev.is(Class::Fair);
        let then = match departure {
            None if fair && !prev.mask.contains(here.cpu) && self.any_online(&prev.mask.load()) => Some(Then::Move),
            other => other,
        };
        match then {
            None if !fair => {}
            None if yields => inner.fair.yield_running(now),
            None => {
                inner.fair.charge(now);
            }
            Some(then) if fair => {
                let departure = match then {
                    Then::Nothing => Departure::Sleep,
                    Then::Move => Departure::Move,
                    Then::Return => Departure::Exit,
                };
                // A delayed task sleeps, but its queue keeps it.
                if inner.fair.dequeue(prev.entity_ref(), departure, now) == Left::Gone {
                    prev.words.queued_on.store(0, Relaxed);
                }
            }
            Some(then) => {
                inner.stop_ready = false;
                if then == Then::Return {
                    inner.stop = None;
                }
                prev.words.queued_on.store(0, Relaxed);
            }
        }
        let mut next = Self::pick(&mut inner, now);
        if next.is(Class::Idle) && self.may_be_crowded() && self.is_online(here.cpu) {
            (inner, now, next) = self.pull_and_pick(here, inner);
        }
        if next == prev {
            return Decision::Stay;
        }
        if !fair {
            inner.fair.charge_outsider(prev.entity_ref(), now);
        }
        inner.fair.stop(now);
        if next.is(Class::Fair) {
            inner.fair.start(next.entity_ref(), now);
        } else {
            if next.is(Class::Idle) {
                inner.fair.goes_idle(now);
            }
            inner.fair.start_outsider(next.entity_ref(), now);
        }
        inner.current = Some(next);
        inner.switches += 1;
        let lost = here.handover_pending();
        debug_assert!(!lost, "finish_switch was not called after the last switch");
        inner.unfinished += u64::from(lost);
        debug_assert_eq!(next.words.on_cpu.load(Relaxed), on_cpu::OFF, "picked a task that a CPU is on");
        next.words.on_cpu.store(on_cpu::ON, Relaxed);
        self.observe_switch(here, prev, next, if then.is_some() { Prev::Gone } else { Prev::Queued }, now);
        drop(inner);
        here.set_current(next);
        here.set_handover(Handover { prev, then: then.unwrap_or(Then::Nothing) });
        Decision::Switch { prev: C::Task::target(prev.as_ptr()), next: C::Task::target(next.as_ptr()) }
    }

    /// Looks for a task elsewhere, without the lock, and decides again.
    #[cold]
    #[inline(never)]
    fn pull_and_pick<'a>(&self, here: &Here<'a, C>, inner: Section<'a, C>) -> (Section<'a, C>, Nanos, TaskRef<C>) {
        drop(inner);
        if !here.queue.has_wakees() {
            self.pull(here);
        }
        let (mut inner, now) = self.take_wakees_in(here, here.queue.lock());
        let next = Self::pick(&mut inner, now);
        (inner, now, next)
    }

    /// Takes in the tasks that others woke for this CPU. The request is cleared.
    #[inline(never)]
    fn take_wakees_in<'a>(&self, here: &Here<'a, C>, mut inner: Section<'a, C>) -> (Section<'a, C>, Nanos) {
        loop {
            let now = inner.advance(self.platform.now(here.cpu));
            // First the request, then the list: who comes after this look asks again.
            here.queue.clear_request();
            if !here.queue.has_wakees() {
                return (inner, now);
            }
            drop(inner);
            for task in here.queue.take_wakees() {
                self.place(here, task, Coming::Listed);
            }
            inner = here.queue.lock();
        }
    }

    /// Stop task, fair class, idle task.
    #[inline(always)]
    fn pick(inner: &mut Inner<C>, now: Nanos) -> TaskRef<C> {
        if inner.stop_ready
            && let Some(stop) = inner.stop
        {
            return stop;
        }
        match inner.fair.pick(now, Self::left_asleep) {
            // SAFETY: only entities of tasks of this configuration are queued.
            Some(entity) => unsafe { TaskRef::of(entity) },
            None => inner.idle.unwrap_or_else(|| unreachable_in_release()),
        }
    }

    /// A delayed task has left the queue whose lock is held. It is asleep, or its waker finds it on no queue.
    fn left_asleep(entity: EntityRef<C::Sync>) {
        // SAFETY: only entities of tasks of this configuration are queued.
        let task: TaskRef<C> = unsafe { TaskRef::of(entity) };
        // Release: a waker that sees it off the queue sees what this lock's holder left in the entity.
        task.words.queued_on.store(0, Release);
    }

    /// Releases the task that was left; to be called first thing after every switch, also by a new task.
    ///
    /// Returns a task that has exited: from here on no CPU uses it, and its stack may be freed.
    pub fn finish_switch(&self, irq: &IrqOff) -> Option<C::Task> {
        let here = self.here(irq);
        let handover = here.take_handover()?;
        let prev = handover.prev;
        // From here on others may run, move or place `prev`.
        let left = prev.words.on_cpu.swap(on_cpu::OFF, AcqRel);
        match (handover.then, left) {
            // SAFETY: the pointer came from `into_raw` at spawn; a dead task is on no queue and nobody wakes it,
            // so this is the last use, once.
            (Then::Return, _) => return Some(unsafe { C::Task::from_raw(prev.as_ptr()) }),
            (Then::Move, _) | (_, on_cpu::THEN_MOVE) => _ = self.place(&here, prev, Coming::Moved),
            (_, on_cpu::THEN_WAKE) => _ = self.place(&here, prev, Coming::Woken),
            _ => {}
        }
        None
    }

    /// Wakes `task` if it sleeps or is about to, and was spawned here.
    ///
    /// What the waker wrote before is seen by the task when it goes on.
    /// May be called from interrupts, for any task that was ever spawned and whose memory is alive.
    pub fn wake(&self, irq: &IrqOff, task: &Target<C>) -> Woken {
        // SAFETY: the caller's reference keeps the task alive during the call; a task that is placed was spawned, so it stays alive.
        let task = unsafe { TaskRef::<C>::new(C::Task::field(task)) };
        // Pairs with the fence in `prepare`.
        C::Sync::fence(SeqCst);
        // Acquire: who sees the task asleep sees also who owns it.
        let mut seen = task.words.state.load(Acquire);
        loop {
            let to = match seen {
                state::PREPARED_INTERRUPTIBLE | state::PREPARED_UNINTERRUPTIBLE => state::RUNNABLE,
                state::BLOCKED_INTERRUPTIBLE | state::BLOCKED_UNINTERRUPTIBLE => state::WAKING,
                _ => return Woken::No,
            };
            if !self.owns(task) {
                return Woken::No;
            }
            match task.words.state.compare_exchange(seen, to, AcqRel, Acquire) {
                Ok(_) if to == state::RUNNABLE => {
                    self.count_wake(irq, Some(task.cpu()));
                    return Woken::Yes;
                }
                Ok(_) => break,
                Err(other) => seen = other,
            }
        }
        // The placement is ours (task I2).
        let handed_over = self.hand_over(task, on_cpu::THEN_WAKE);
        let at = (!handed_over).then(|| self.place(&self.here(irq), task, Coming::Woken));
        self.count_wake(irq, at);
        Woken::Yes
    }

    /// The periodic tick of the calling CPU, [`Config::HZ`] times a second while it is not idle.
    ///
    /// Afterwards look at [`need_resched`](Self::need_resched).
    pub fn tick(&self, irq: &IrqOff) {
        let here = self.here(irq);
        let mut inner = here.queue.lock();
        let now = inner.advance(self.platform.now(here.cpu));
        if inner.fair.tick(now) {
            here.queue.request();
        }
        here.queue.publish_load_avg(&mut inner, now);
        let crowded = self.ticks_crowded(&mut inner);
        drop(inner);
        // Before anything is mended: what is seen here is how it was up to this tick.
        self.observe_tick(&here, now);
        if let Some(ticks) = crowded {
            self.spread(&here, ticks);
        }
        if let Some(psi) = self.psi.get().filter(|_| self.gates.psi.on())
            && psi.0.due(now)
        {
            self.collect_pressure(now);
        }
    }

    /// The calling CPU, which is idle, is going to look at [`need_resched`](Self::need_resched) for a while instead of halting,
    /// and needs no kick until [`end_poll`](Self::end_poll). False if there is a request already: it should not begin.
    pub fn begin_poll(&self, irq: &IrqOff) -> bool {
        self.here(irq).queue.begin_poll()
    }

    /// The calling CPU no longer polls: from here on a request comes with a kick. False if there is a request: it must not halt.
    pub fn end_poll(&self, irq: &IrqOff) -> bool {
        self.here(irq).queue.end_poll()
    }

    /// Whether the calling CPU should call [`schedule`](Self::schedule) as soon as it may.
    ///
    /// Look at it on the way out of every interrupt, when preemption is allowed again, and in the idle loop before halting.
    #[inline(always)]
    pub fn need_resched(&self, irq: &IrqOff) -> bool {
        self.here(irq).queue.requested()
    }

    /// Changes nice value, policy and slice. The task's lag, and V of its queue, stay as they are.
    ///
    /// # Errors
    /// [`Error::NotFair`] for an idle or stop task, [`Error::NotOurs`] for one that was not spawned here.
    pub fn set_params(&self, irq: &IrqOff, task: &Target<C>, params: TaskParams) -> Result<(), Error> {
        let task = self.fair_task(task)?;
        task.words.params.store(params.pack(), SeqCst);
        C::Sync::fence(SeqCst);
        if let Some(Queued { cpu, mut inner }) = self.lock_where_queued(task) {
            let queue = &self.queues[cpu.index()];
            let now = inner.advance(self.platform.now(cpu));
            // Read again: of two concurrent changes the last one applied is the last one stored.
            inner.fair.reweight(task.entity_ref(), task.params(), now);
            let kick = queue.request() && cpu != self.here(irq).cpu;
            drop(inner);
            if kick {
                self.platform.kick(cpu);
            }
        }
        Ok(())
    }

    /// Changes where the task may run. A task on a CPU that is no longer allowed is moved:
    /// at once if it waits, at its next reschedule, which is requested, if it runs.
    ///
    /// # Errors
    /// [`Error::NoOnlineCpu`] if the mask holds no online CPU, [`Error::NotFair`] for an idle or stop task,
    /// [`Error::NotOurs`] for one that was not spawned here; nothing is changed.
    pub fn set_affinity(&self, irq: &IrqOff, task: &Target<C>, mask: C::Mask) -> Result<(), Error> {
        let task = self.fair_task(task)?;
        if !self.any_online(&mask) {
            return Err(Error::NoOnlineCpu);
        }
        let writer = task.mask_writer.lock();
        task.mask.store(mask);
        C::Sync::fence(SeqCst);
        drop(writer);
        let Some(Queued { cpu, mut inner }) = self.lock_where_queued(task) else { return Ok(()) };
        if task.mask.contains(cpu) {
            return Ok(());
        }
        let queue = &self.queues[cpu.index()];
        if inner.current == Some(task) {
            let kick = queue.request() && cpu != self.here(irq).cpu;
            drop(inner);
            if kick {
                self.platform.kick(cpu);
            }
            return Ok(());
        }
        let now = inner.advance(self.platform.now(cpu));
        if inner.fair.is_delayed(task.entity_ref()) {
            // It sleeps, or has a waker who looks for it here: it only leaves.
            inner.fair.give_up(task.entity_ref(), now);
            // Release: as in `left_asleep`.
            task.words.queued_on.store(0, Release);
            return Ok(());
        }
        _ = inner.fair.dequeue(task.entity_ref(), Departure::Move, now);
        task.words.queued_on.store(0, Relaxed);
        self.observe_leave(queue, task, cpu, now);
        drop(inner);
        // Off every queue and runnable: the placement is ours.
        if !self.hand_over(task, on_cpu::THEN_MOVE) {
            self.place(&self.here(irq), task, Coming::Moved);
        }
        Ok(())
    }

    /// Whether a rule of the fair policies holds.
    pub fn feature(&self, _irq: &IrqOff, feature: Feature) -> bool {
        // All queues agree while no change is under way, and the first is there always.
        self.queues[0].lock().fair.feature(feature)
    }

    /// Lets a rule of the fair policies hold from now on, on every CPU, or not.
    ///
    /// # Errors
    /// [`FeatureError::Fixed`] where [`Config::Features`] holds constants.
    pub fn set_feature(&self, _irq: &IrqOff, feature: Feature, on: bool) -> Result<(), FeatureError> {
        if !C::Features::SWITCHABLE {
            return Err(FeatureError::Fixed);
        }
        let mut seen = self.changed_features.load(SeqCst);
        let (bit, default) = (1 << feature as u64, feature.default_on());
        loop {
            let changed = if on == default { seen & !bit } else { seen | bit };
            match self.changed_features.compare_exchange(seen, changed, SeqCst, SeqCst) {
                Ok(_) => break,
                Err(other) => seen = other,
            }
        }
        for queue in self.queues {
            let mut inner = queue.lock();
            // Read under the lock: of two concurrent changes every queue has both in the end.
            let changed = self.changed_features.load(SeqCst);
            for &feature in Feature::ALL {
                inner.fair.set_feature(feature, feature.default_on() != (changed & 1 << feature as u64 != 0));
            }
        }
        Ok(())
    }

    /// What a write to the file of features does: `NAME` or `NO_NAME`, with a line end or without. Returns the bytes taken: all.
    ///
    /// # Errors
    /// [`FeatureError`]; nothing is changed.
    pub fn write_features(&self, irq: &IrqOff, written: &[u8]) -> Result<usize, FeatureError> {
        let (feature, on) = Feature::parse(written)?;
        self.set_feature(irq, feature, on).map(|()| written.len())
    }

    /// The task the calling CPU runs, or none before it is online.
    pub fn current(&self, irq: &IrqOff) -> Option<NonNull<Target<C>>> {
        self.here(irq).current().map(|task| C::Task::target(task.as_ptr()))
    }

    /// Whether the calling CPU runs its idle task.
    pub fn is_idle(&self, irq: &IrqOff) -> bool {
        self.here(irq).current().is_none_or(|task| task.is(Class::Idle))
    }

    /// Runnable tasks of `cpu`, waiting or running, and one more if some were woken for it that it has not taken in.
    /// A hint: it may change at once. 0 for a CPU that does not exist.
    pub fn nr_running(&self, cpu: CpuId) -> u64 {
        self.queues.get(cpu.index()).map_or(0, CpuQueue::load)
    }

    /// The CPUs that are online.
    pub fn online(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.cpus().filter(|cpu| self.is_online(*cpu))
    }

    /// The machine, as it was given.
    pub fn platform(&self) -> &C::Platform {
        &self.platform
    }

    /// The gates.
    pub fn gates(&self) -> &Gates<C> {
        &self.gates
    }

    #[inline(always)]
    fn here(&self, _irq: &IrqOff) -> Here<'q, C> {
        let cpu = self.platform.this_cpu();
        Here { cpu, queue: &self.queues[cpu.index()] }
    }

    fn current_task(&self, irq: &IrqOff) -> TaskRef<C> {
        self.here(irq).current().unwrap_or_else(|| unreachable_in_release())
    }

    fn cpus(&self) -> impl Iterator<Item = CpuId> + use<C> {
        (0..self.queues.len() as u32).map(CpuId)
    }

    fn is_online(&self, cpu: CpuId) -> bool {
        self.online.contains(cpu)
    }

    fn any_online(&self, mask: &C::Mask) -> bool {
        (0..self.mask_words).any(|at| self.online.word(at) & mask.word(at) != 0)
    }

    /// Takes a task over from the embedder.
    fn adopt(&self, task: C::Task, class: Class) -> Result<TaskRef<C>, Rejected<C>> {
        let raw = task.into_raw();
        // SAFETY: `into_raw` gave the pointer to us; the task stays alive until `from_raw`.
        let task = unsafe { TaskRef::new(raw) };
        if task.words.state.compare_exchange(state::NEW, state::RUNNABLE, AcqRel, Relaxed).is_err() {
            // SAFETY: the pointer came from `into_raw` just now.
            return Err(Rejected { task: unsafe { C::Task::from_raw(raw) }, error: Error::AlreadySpawned });
        }
        task.set_owner(self.identity(), class);
        Ok(task)
    }

    /// What tells this scheduler from all others: the place of its queues, which no other scheduler can have.
    #[inline(always)]
    fn identity(&self) -> u64 {
        self.queues.as_ptr().addr() as u64
    }

    #[inline(always)]
    fn owns(&self, task: TaskRef<C>) -> bool {
        task.is_owned_by(self.identity())
    }

    fn fair_task(&self, task: &Target<C>) -> Result<TaskRef<C>, Error> {
        // SAFETY: the caller's reference keeps the task alive during the call.
        let task = unsafe { TaskRef::<C>::new(C::Task::field(task)) };
        match task.class() {
            _ if !self.owns(task) => Err(Error::NotOurs),
            Class::Fair => Ok(task),
            Class::Stop | Class::Idle => Err(Error::NotFair),
        }
    }
}

/// A CPU that is online has an idle task. A debug build says so; a release build of a broken embedder stops here.
#[cold]
fn unreachable_in_release() -> ! {
    debug_assert!(false, "this CPU is not online");
    loop {
        core::hint::spin_loop();
    }
}
