//! # What it is
//! How a task gets to where it goes: one owner, one queue, nobody waits.
//!
//! # How it works
//! A placement has one owner: the CPU that spawns the task, whose wake-up won, or that took the task off a queue it may no longer use.
//! If a CPU is still leaving the task, the owner hands the placement to that CPU.
//! Otherwise it [selects](super::select) a CPU, names it in the task, and only then reads what was asked for the task:
//! a change of parameters stores first and looks for the queue then, so one of the two sees the other.
//!
//! # Invariants
//! 1. Nobody waits: a placement is carried out by its owner or by the CPU that is leaving the task.
//! 2. A task is queued only on a CPU of its mask, unless no CPU of the mask is online.
//!
//! # Cost
//! One queue lock, and that of the queue where a sleeper waits to pay if it wakes elsewhere.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use super::{Here, Scheduler};
use crate::{
    config::Config,
    cpu::Section,
    mask::SharedMask,
    platform::{CpuId, Platform},
    policy::Arrival,
    sync::{Family, Word},
    task::{Class, TaskRef, on_cpu, state},
};

/// How a task comes to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coming {
    Fresh,
    Woken,
    /// After a wake-up, by the CPU for which it was left in the wake list.
    Listed,
    /// From a CPU it may no longer use.
    Moved,
    /// To a CPU that was chosen before it left its queue.
    Given(CpuId),
}

/// The queue a task is on, locked.
pub(super) struct Queued<'q, C: Config> {
    pub(super) cpu: CpuId,
    pub(super) inner: Section<'q, C>,
}

impl<'q, C: Config> Scheduler<'q, C> {
    /// The lock of the queue the task is on; none if it is on no queue.
    ///
    /// None also while its placement has an owner, who reads the parameters after it named the queue.
    pub(super) fn lock_where_queued(&self, task: TaskRef<C>) -> Option<Queued<'q, C>> {
        loop {
            let cpu = CpuId(task.words.cpu.load(SeqCst) as u32);
            let inner = self.queues.get(cpu.index())?.lock();
            if task.words.queued_on.load(Relaxed) == u64::from(cpu.0) + 1 {
                return Some(Queued { cpu, inner });
            }
            if task.words.cpu.load(SeqCst) == u64::from(cpu.0) {
                return None;
            }
        }
    }

    /// If a CPU is still leaving the task, asks that CPU to place it afterwards. The caller owns the placement.
    #[inline(always)]
    pub(super) fn hand_over(&self, task: TaskRef<C>, then: u64) -> bool {
        task.words.on_cpu.load(Acquire) == on_cpu::ON
            && task.words.on_cpu.compare_exchange(on_cpu::ON, then, AcqRel, Acquire).is_ok()
    }

    /// Puts a task that is runnable, on no queue and off every CPU on a queue, and says on whose.
    /// The caller owns the placement.
    pub(super) fn place(&self, here: &Here<'_, C>, task: TaskRef<C>, mut coming: Coming) -> CpuId {
        let last = task.cpu();
        let wakes = matches!(coming, Coming::Woken | Coming::Listed);
        let (cpu, kick) = loop {
            let cpu = self.select(here, task, coming);
            if cpu != last && wakes {
                self.take_off(task);
            }
            let queue = &self.queues[cpu.index()];
            if coming == Coming::Woken && cpu != here.cpu && self.is_idle_cpu(cpu) && task.is(Class::Fair) {
                // It has nothing to do, so it may as well do this, with its own queue at hand. The wait begins now.
                task.words.here_since.store(self.platform.now(cpu), Relaxed);
                let kick = queue.push_wakee(task) && queue.request_to_look();
                if !self.is_online(cpu) {
                    // It went offline meanwhile and may not have seen the list. Whoever takes it has it whole.
                    for late in queue.take_wakees() {
                        self.place(here, late, Coming::Listed);
                    }
                }
                break (cpu, kick);
            }
            let mut inner = queue.lock();
            if task.words.cpu.load(Relaxed) != u64::from(cpu.0) {
                // First name the queue, then read the parameters (see *Parameters* above).
                task.words.cpu.store(u64::from(cpu.0), SeqCst);
                C::Sync::fence(SeqCst);
            }
            let usable = self.is_online(cpu) && (task.mask.contains(cpu) || !self.any_online(&task.mask.load()));
            if !usable && task.is(Class::Fair) {
                if let Coming::Given(_) = coming {
                    coming = Coming::Moved;
                }
                continue;
            }
            let now = inner.advance(self.platform.now(cpu));
            let joins = if coming == Coming::Listed { now.min(task.words.here_since.load(Relaxed)) } else { now };
            task.words.here_since.store(joins, Relaxed);
            if wakes {
                // Nobody else writes the state of a task that is Waking.
                // One that was moved may be Prepared, and stays so: nobody woke it.
                task.words.state.store(state::RUNNABLE, Relaxed);
            }
            let waits_here = task.words.queued_on.load(Relaxed) != 0;
            task.words.queued_on.store(u64::from(cpu.0) + 1, Relaxed);
            self.observe_join(queue, task, cpu, joins);
            let arrival = match coming {
                Coming::Fresh => Arrival::Fresh,
                Coming::Moved | Coming::Given(_) => Arrival::Moved,
                Coming::Woken | Coming::Listed if waits_here => Arrival::Undelayed,
                Coming::Woken | Coming::Listed => Arrival::Woken,
            };
            let fair = task.is(Class::Fair);
            if cpu != last && wakes && fair {
                // It slept there and is still part of that queue's load.
                let old = &self.queues[last.index()];
                let idles = old.load() == 0;
                let lag = if idles { self.platform.now(last).saturating_sub(old.clock()) } else { 0 };
                let there = (old.min_vruntime(), old.load_time(), lag);
                old.leave_behind(inner.fair.comes_from(task.entity_ref(), there, now));
            }
            match arrival {
                _ if !fair => inner.stop_ready = true,
                Arrival::Undelayed => inner.fair.undelay(task.entity_ref(), now),
                _ => inner.fair.enqueue(task.entity_ref(), task.params(), arrival, now),
            }
            if let Coming::Given(_) = coming {
                queue.publish_load_avg(&mut inner, now);
            }
            let preempts = match inner.current {
                Some(current) if current.is(Class::Fair) => {
                    !fair || inner.fair.preempts(task.entity_ref(), arrival, Self::left_asleep)
                }
                Some(current) => current.is(Class::Idle),
                None => false,
            };
            if inner.fair.nr_runnable() > 1 {
                self.note_crowd();
            }
            break (cpu, preempts && queue.request() && cpu != here.cpu);
        };
        if kick {
            self.platform.kick(cpu);
        }
        cpu
    }

    /// Takes a task that is being woken off the queue where it waits asleep, if it does. The caller owns the placement.
    fn take_off(&self, task: TaskRef<C>) {
        // Acquire: whoever took it off meanwhile, at its turn or for a new mask, wrote the entity before it cleared the word.
        if task.words.queued_on.load(Acquire) == 0 {
            return;
        }
        if let Some(Queued { cpu, mut inner }) = self.lock_where_queued(task) {
            let now = inner.advance(self.platform.now(cpu));
            inner.fair.give_up(task.entity_ref(), now);
            task.words.queued_on.store(0, Relaxed);
        }
    }
}
