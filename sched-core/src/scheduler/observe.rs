//! # What it is
//! What others may see: the hooks where the observers listen, and the calls that read them.
//!
//! # How it works
//! Each event of the scheduler has one hook, called under the queue's lock, and each hook asks the gates.
//! Reading takes no lock, except to charge a task that runs at this moment.
//!
//! # Invariants
//! 1. No hook changes a decision; with all gates off the schedule is the same.
//! 2. Reading a statistic writes nothing a decision depends on, except that it charges the running task up to now.
//!
//! # Cost
//! When off: one gate per hook and observer. Compiled out: nothing.

use super::{
    Here, Scheduler,
    place::Queued,
    types::{Faults, Target},
};
use crate::{
    config::Config,
    cpu::CpuQueue,
    gate::{Gate, Store},
    mask::SharedMask,
    pelt::Signals,
    platform::{CpuId, Nanos, Platform},
    stats::{
        Prev,
        psi::{Pressure, Psi, PsiCpu},
        schedstat::{CpuStats, TaskStats},
        watch::{IdleWhileWaiting, LOOKED_AT, WatchReport},
    },
    task::{Class, TaskPtr, TaskRef},
    token::IrqOff,
};

/// The averages, made on first use because their first period starts with the scheduler.
pub(crate) struct PsiSlot<C: Config>(pub(super) Psi<C::Sync>);

impl<C: Config> Default for PsiSlot<C> {
    fn default() -> Self {
        Self(Psi::new(0, C::HZ))
    }
}

impl<C: Config> Scheduler<'_, C> {
    /// How often `cpu` switched from one task to another.
    pub fn switches(&self, _irq: &IrqOff, cpu: CpuId) -> u64 {
        self.queues.get(cpu.index()).map_or(0, |queue| queue.lock().switches)
    }

    /// What went wrong inside the scheduler on `cpu`, if anything.
    pub fn faults(&self, _irq: &IrqOff, cpu: CpuId) -> Faults {
        self.queues.get(cpu.index()).map_or_else(Faults::default, |queue| {
            let inner = queue.lock();
            Faults {
                picks_without_eligible: inner.fair.pick_failures(),
                unfinished_switches: inner.unfinished,
                pressure_inconsistencies: queue.psi.get().map_or(0, |psi| psi.inconsistencies()),
            }
        })
    }

    /// Counts tasks of `cpu` that were found more than three latencies away from the smallest vruntime there.
    /// CFS only, and only where features can be changed; else 0. Linux: `nr_spread_over`.
    pub fn spread_over(&self, _irq: &IrqOff, cpu: CpuId) -> u64 {
        self.queues.get(cpu.index()).map_or(0, |queue| queue.lock().fair.nr_spread_over())
    }

    /// The load of `cpu` up to now: what its runnable and its sleeping tasks asked for lately. None of a CPU that does not exist.
    pub fn load(&self, _irq: &IrqOff, cpu: CpuId) -> Option<Signals> {
        let queue = self.queues.get(cpu.index())?;
        let mut inner = queue.lock();
        let now = inner.advance(self.platform.now(cpu));
        Some(*inner.fair.load(now))
    }

    /// The load of `task` as of its last wake-up, switch, sleep or tick.
    ///
    /// None while it is on no queue, or is not of this scheduler.
    pub fn task_load(&self, _irq: &IrqOff, task: &Target<C>) -> Option<Signals> {
        // SAFETY: the caller's reference keeps the task alive during the call.
        let task = unsafe { TaskRef::<C>::new(C::Task::field(task)) };
        if !self.owns(task) || !task.is(Class::Fair) {
            return None;
        }
        let Queued { inner, .. } = self.lock_where_queued(task)?;
        Some(inner.fair.signals(task.entity_ref()))
    }

    /// The counters of `cpu`, or none where schedstats are compiled out or the CPU does not exist.
    pub fn cpu_stats(&self, cpu: CpuId) -> Option<CpuStats> {
        self.queues.get(cpu.index())?.counters.get().map(|counters| counters.read())
    }

    /// The counters of `task`, with its run time up to now if it is a task of this scheduler.
    pub fn task_stats(&self, _irq: &IrqOff, task: &Target<C>) -> TaskStats {
        // SAFETY: the caller's reference keeps the task alive during the call.
        let task = unsafe { TaskRef::<C>::new(C::Task::field(task)) };
        if self.owns(task)
            && let Some(Queued { cpu, mut inner }) = self.lock_where_queued(task)
        {
            let now = inner.advance(self.platform.now(cpu));
            if inner.current == Some(task) {
                match task.class() {
                    Class::Fair => {
                        // The request that may come of it is the tick's to make.
                        inner.fair.charge(now);
                    }
                    _ => inner.fair.charge_outsider(task.entity_ref(), now),
                }
            }
        }
        TaskStats {
            sum_exec_runtime: task.entity.sum_exec(),
            run_delay: task.counters.get().map_or(0, |counters| counters.run_delay()),
            pcount: task.counters.get().map_or(0, |counters| counters.pcount()),
        }
    }

    /// CPU pressure up to now, or none where pressure is compiled out or off.
    pub fn cpu_pressure(&self, irq: &IrqOff) -> Option<Pressure> {
        let psi = self.psi.get().filter(|_| self.gates.psi.on())?;
        let now = self.platform.now(self.here(irq).cpu);
        Some(psi.0.read(now, self.pressure_cpus(), |cpu| self.platform.now(CpuId(cpu as u32))))
    }

    pub(super) fn collect_pressure(&self, now: Nanos) {
        if let Some(psi) = self.psi.get() {
            psi.0.try_update(now, self.pressure_cpus(), |cpu| self.platform.now(CpuId(cpu as u32)));
        }
    }

    fn pressure_cpus(&self) -> impl Iterator<Item = &PsiCpu<C::Sync>> {
        self.queues.iter().filter_map(|queue| queue.psi.get())
    }

    /// What the work-conservation watch has seen, or none where it is compiled out or off.
    pub fn watch_report(&self) -> Option<WatchReport> {
        Some(self.watch.get().filter(|_| self.gates.watch.on())?.report())
    }

    /// How long a CPU may be idle while a task that may run there waits, before the watch counts a violation.
    /// In nanoseconds; 100 ms at first. Nothing where the watch is compiled out.
    pub fn set_idle_bound(&self, bound: Nanos) {
        if let Some(watch) = self.watch.get() {
            watch.set_bound(bound);
        }
    }

    /// Hook: a CPU comes online, idle.
    pub(super) fn observe_idle(&self, queue: &CpuQueue<C>, now: Nanos) {
        if let Some(watch) = queue.watch.get().filter(|_| self.gates.watch.on()) {
            watch.goes_idle(now);
        }
    }

    /// Hook: a CPU has gone offline.
    pub(super) fn observe_offline(&self, queue: &CpuQueue<C>) {
        if let Some(watch) = queue.watch.get().filter(|_| self.gates.watch.on()) {
            watch.goes_busy();
        }
    }

    /// Hook: the tick of a busy CPU. No lock is held.
    #[inline(always)]
    pub(super) fn observe_tick(&self, here: &Here<'_, C>, now: Nanos) {
        if self.gates.watch.on() && here.queue.load() > 1 {
            self.look_for_idle_cpus(here, now);
        }
    }

    /// Of who waits here, is there somebody whom a CPU could run that has been idle for long?
    #[cold]
    fn look_for_idle_cpus(&self, here: &Here<'_, C>, now: Nanos) {
        let Some(watch) = self.watch.get() else { return };
        let bound = watch.bound();
        for idle in self.online() {
            let Some(cpu) = self.queues[idle.index()].watch.get() else { return };
            let Some(began) = cpu.idle_since() else { continue };
            let idle_for = self.platform.now(idle).saturating_sub(began);
            if idle_for <= bound {
                continue;
            }
            let inner = here.queue.lock();
            let waited = inner
                .fair
                .in_line()
                .take(LOOKED_AT)
                // SAFETY: only entities of tasks of this configuration are queued.
                .map(|entity| unsafe { TaskRef::<C>::of(entity) })
                .filter(|task| task.mask.contains(idle))
                .filter_map(|task| task.watch.get()?.waited(now))
                .max();
            drop(inner);
            if let Some(waited) = waited.filter(|waited| *waited > bound) {
                watch.found(IdleWhileWaiting { idle, waits_on: here.cpu, nanos: waited.min(idle_for) }, cpu, began);
            }
        }
    }

    /// Hook: a wake-up done by this CPU. `at` is where the task went, unless the CPU that is leaving it will decide that.
    #[inline(always)]
    pub(super) fn count_wake(&self, irq: &IrqOff, at: Option<CpuId>) {
        if self.gates.schedstats.on() {
            let here = self.here(irq);
            if let Some(counters) = here.queue.counters.get() {
                counters.woke();
                if at == Some(here.cpu) {
                    counters.woke_here();
                }
            }
        }
    }

    /// Hook: a task became runnable on a queue, `now` or, if it was woken for an idle CPU, shortly before.
    #[inline(always)]
    pub(super) fn observe_join(&self, queue: &CpuQueue<C>, task: TaskRef<C>, cpu: CpuId, now: Nanos) {
        if let (Some(counters), Some(mine)) = (queue.counters.get(), task.counters.get())
            && self.gates.schedstats.on()
        {
            counters.queued(mine, now);
        }
        if let (Some(psi), Some(mine)) = (queue.psi.get(), task.psi.get())
            && self.gates.psi.on()
        {
            psi.queued(mine, || self.platform.now(cpu));
        }
        if let Some(mine) = task.watch.get()
            && self.gates.watch.on()
        {
            mine.waits(now);
        }
    }

    /// Hook: a task that waits leaves a queue for another.
    #[inline(always)]
    pub(super) fn observe_leave(&self, queue: &CpuQueue<C>, task: TaskRef<C>, cpu: CpuId, now: Nanos) {
        if let (Some(counters), Some(mine)) = (queue.counters.get(), task.counters.get())
            && self.gates.schedstats.on()
        {
            counters.unqueued(mine, now);
        }
        if let (Some(psi), Some(mine)) = (queue.psi.get(), task.psi.get())
            && self.gates.psi.on()
        {
            psi.unqueued(mine, || self.platform.now(cpu));
        }
        if let Some(mine) = task.watch.get()
            && self.gates.watch.on()
        {
            mine.stops_waiting();
        }
    }

    /// Hook: a CPU goes from one task to another.
    #[inline(always)]
    pub(super) fn observe_switch(&self, here: &Here<'_, C>, prev: TaskRef<C>, next: TaskRef<C>, is: Prev, now: Nanos) {
        let busy = |task: &TaskRef<C>| !task.is(Class::Idle);
        let (from, to) = (Some(&prev).filter(|task| busy(task)), Some(&next).filter(|task| busy(task)));
        if let Some(counters) = here.queue.counters.get()
            && self.gates.schedstats.on()
        {
            let from = from.and_then(|task| task.counters.get());
            counters.switched(from.map(|prev| (prev, is)), to.and_then(|task| task.counters.get()), now);
        }
        if let Some(psi) = here.queue.psi.get()
            && self.gates.psi.on()
        {
            let (from, to) = (from.and_then(|task| task.psi.get()), to.and_then(|task| task.psi.get()));
            psi.switched(from, to, is, || self.platform.now(here.cpu));
        }
        if let Some(watch) = here.queue.watch.get()
            && self.gates.watch.on()
        {
            if let Some(prev) = from.and_then(|task| task.watch.get()) {
                match is {
                    Prev::Queued => prev.waits(now),
                    Prev::Gone => prev.stops_waiting(),
                }
            }
            match to.and_then(|task| task.watch.get()) {
                Some(next) => {
                    next.stops_waiting();
                    watch.goes_busy();
                }
                None => watch.goes_idle(now),
            }
        }
    }
}
