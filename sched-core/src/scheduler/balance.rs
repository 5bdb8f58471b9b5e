//! # What it is
//! Moving tasks that wait: a CPU that has nothing to do pulls, a CPU on which somebody waits gives.
//!
//! # How it works
//! *Pull.* A CPU about to go idle looks for one with more than one runnable task, near ones first, and takes a task that waits there.
//!
//! *Give.* A CPU that goes idle may find nobody, halt, and then somebody comes to wait elsewhere.
//! So the tick of a CPU on which somebody waits looks for idle CPUs and gives them one each.
//! If there is none, loads are compared every [`EVEN_OUT`] ticks: a task goes to the CPU with the least load
//! if that one is clearly better off also with it.
//! If the difference is less than a task, some must share a CPU while others have one for themselves.
//! Then the crowd goes round: after [`GO_ROUND`] ticks who has been here longest goes on to a CPU
//! that is not worse off with it than this one without.
//!
//! Only the tick of a busy CPU gives, so an idle CPU needs no tick, and no CPU acts for another.
//!
//! # Invariants
//! 1. Nobody is moved that runs, that a CPU is still leaving, that sleeps, or whose mask forbids it.
//! 2. A queue that is pulled from keeps a runnable task.
//! 3. Two queue locks are never held at once: a task is off one queue before it is on the other, owned by who moves it.
//!
//! # Cost
//! Nothing while no CPU has two runnable tasks: one load when a CPU goes idle, one branch a tick.
//! Else a line of each CPU of the domain looked at, up to [`LOOKED_AT`] a tick, and one lock of each of two queues for a task that moves.
//!
//! # How long a CPU may idle while a task that may run there waits
//! Until the next tick of the CPU on which it waits, if at most [`LOOKED_AT`] CPUs share its cache and the waiting tasks have equal masks;
//! each further [`LOOKED_AT`] CPUs of the machine add a tick.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{Here, Scheduler, place::Coming};
use crate::{
    config::Config,
    cpu::Inner,
    mask::{self, SharedMask},
    platform::{CpuId, Platform},
    policy::Departure,
    sync::Word,
    task::{TaskRef, on_cpu},
    topology::Level,
};

/// How many CPUs are looked at in one go, and how many waiting tasks of one of them.
const LOOKED_AT: usize = 64;
/// How many queues are asked for a task in vain before a search gives up: most tasks may run anywhere.
const ASKED: usize = 8;
/// How many tasks one tick gives to idle CPUs.
const GIVEN: usize = 16;
/// Ticks from one comparison of loads to the next.
const EVEN_OUT: u32 = 4;
/// Ticks after which a crowd goes round.
const GO_ROUND: u32 = 16;

impl<C: Config> Scheduler<'_, C> {
    /// Whether some CPU may have a task that waits.
    #[inline(always)]
    pub(super) fn may_be_crowded(&self) -> bool {
        self.crowded.load(Relaxed) != 0
    }

    /// Some CPU has a task that waits.
    #[inline(always)]
    pub(super) fn note_crowd(&self) {
        // Mostly it is known, and then the line stays shared.
        if self.crowded.load(Relaxed) == 0 {
            self.crowded.store(1, Relaxed);
        }
    }

    /// At the tick: for how many ticks somebody has waited here, if somebody does.
    #[inline(always)]
    pub(super) fn ticks_crowded(&self, inner: &mut Inner<C>) -> Option<u32> {
        if inner.fair.nr_runnable() + u32::from(inner.stop_ready) < 2 {
            inner.crowded_ticks = 0;
            return None;
        }
        inner.crowded_ticks = inner.crowded_ticks.wrapping_add(1);
        Some(inner.crowded_ticks)
    }

    /// Brings a task that waits elsewhere to the calling CPU, which has nothing to do. No lock is held.
    #[cold]
    pub(super) fn pull(&self, here: &Here<'_, C>) {
        let mut asked = 0;
        let mut nobody_waits = true;
        for level in Level::ALL {
            let busiest = self.beyond(here.cpu, level).max_by_key(|cpu| self.queues[cpu.index()].load());
            // The busiest first, and if nobody there may come, the others as they lie.
            for from in busiest.into_iter().chain(self.beyond(here.cpu, level)) {
                if self.queues[from.index()].load() < 2 {
                    continue;
                }
                nobody_waits = false;
                if let Some(task) = self.take_waiting(from, here.cpu, |_, _| Some(0)) {
                    self.place(here, task, Coming::Given(here.cpu));
                    return;
                }
                asked += 1;
                if asked == ASKED {
                    return;
                }
            }
        }
        if nobody_waits {
            // Whoever comes to wait meanwhile is noted again at the latest by the next tick there.
            self.crowded.store(0, Relaxed);
        }
    }

    /// Gives a task that waits here to a CPU that is better off. The tick of the calling CPU; no lock is held.
    #[cold]
    pub(super) fn spread(&self, here: &Here<'_, C>, ticks: u32) {
        self.note_crowd();
        if self.give_to_idle(here, ticks) {
            return;
        }
        if ticks.is_multiple_of(EVEN_OUT) && self.even_out(here, ticks) {
            return;
        }
        if ticks >= GO_ROUND {
            self.go_round(here);
        }
    }

    /// Gives tasks to idle CPUs, one each, as long as somebody waits here.
    /// False if there is no idle CPU, or none that anybody may use.
    fn give_to_idle(&self, here: &Here<'_, C>, ticks: u32) -> bool {
        let (mut given, mut asked) = (0, 0);
        let gives_way = |cpu: &CpuId| self.is_idle_cpu(*cpu) || self.queues[cpu.index()].gives_way();
        for idle in self.in_view(here.cpu, ticks).filter(gives_way) {
            if self.give(here, idle, |_, task| self.is_free(idle, task).then_some(0)) {
                given += 1;
                if given == GIVEN || here.queue.load() < 2 {
                    break;
                }
            } else {
                asked += 1;
                if asked == ASKED {
                    break;
                }
            }
        }
        given > 0
    }

    /// Gives a task to the CPU in view that has the least load, if that one stays clearly better off. False if it would not.
    fn even_out(&self, here: &Here<'_, C>, ticks: u32) -> bool {
        let mine = here.queue.load_avg();
        let least =
            self.in_view(here.cpu, ticks / EVEN_OUT).map(|cpu| (self.queues[cpu.index()].load_avg(), cpu)).min();
        let Some((theirs, to)) = least else { return false };
        self.give(here, to, |inner, task| {
            let with_it = theirs + inner.fair.signals(task.entity_ref()).load_avg();
            (with_it + with_it / 8 < mine).then(|| task.words.here_since.load(Relaxed))
        })
    }

    /// Gives who has been here longest to the next CPU that is then not worse off than this one is now.
    fn go_round(&self, here: &Here<'_, C>) {
        let (mine, tasks) = (here.queue.load_avg(), here.queue.load().max(1));
        let no_worse = |with_it: u64| with_it <= mine + mine / 16;
        // Round the whole machine, whatever is near: among neighbours alone the crowd would never get to the others.
        let next = mask::ring(self.mask_words, here.cpu, |at| self.online.word(at))
            .filter(|cpu| *cpu != here.cpu)
            .take(LOOKED_AT)
            .find(|cpu| no_worse(self.queues[cpu.index()].load_avg() + mine / tasks));
        let Some(to) = next else { return };
        let theirs = self.queues[to.index()].load_avg();
        self.give(here, to, |inner, task| {
            let since = task.words.here_since.load(Relaxed);
            let longest = inner.current.is_none_or(|current| since <= current.words.here_since.load(Relaxed));
            let with_it = theirs + inner.fair.signals(task.entity_ref()).load_avg();
            (longest && no_worse(with_it)).then_some(since)
        });
    }

    /// Gives a task to `to`: of those that `rank` accepts the lowest. False if there is none.
    fn give(&self, here: &Here<'_, C>, to: CpuId, rank: impl Fn(&Inner<C>, TaskRef<C>) -> Option<u64>) -> bool {
        let Some(task) = self.take_waiting(here.cpu, to, rank) else { return false };
        here.queue.lock().crowded_ticks = 0;
        self.place(here, task, Coming::Given(to));
        true
    }

    /// Takes a task off the queue of `from` that waits there and may run on `to`: of those that `rank` accepts the lowest, of equals
    /// the first in line. The caller owns its placement. Nobody, if `from` would be left without a runnable task.
    fn take_waiting(
        &self,
        from: CpuId,
        to: CpuId,
        rank: impl Fn(&Inner<C>, TaskRef<C>) -> Option<u64>,
    ) -> Option<TaskRef<C>> {
        let queue = &self.queues[from.index()];
        let mut inner = queue.lock();
        if inner.fair.nr_runnable() + u32::from(inner.stop_ready) < 2 {
            return None;
        }
        let task = inner
            .fair
            .in_line()
            .take(LOOKED_AT)
            .filter(|entity| !inner.fair.is_delayed(*entity))
            // SAFETY: only entities of tasks of this configuration are queued.
            .map(|entity| unsafe { TaskRef::<C>::of(entity) })
            // Acquire: what the CPU that left it did before it let go is seen where it goes.
            .filter(|task| task.mask.contains(to) && task.words.on_cpu.load(Acquire) == on_cpu::OFF)
            .filter_map(|task| rank(&inner, task).map(|rank| (rank, task)))
            .min_by_key(|(rank, _)| *rank)?
            .1;
        let now = inner.advance(self.platform.now(from));
        _ = inner.fair.dequeue(task.entity_ref(), Departure::Move, now);
        task.words.queued_on.store(0, Relaxed);
        queue.publish_load_avg(&mut inner, now);
        self.observe_leave(queue, task, from, now);
        Some(task)
    }

    /// The CPUs that are online and share `level` with `cpu` and nothing nearer, from the one after it on.
    fn beyond(&self, cpu: CpuId, level: Level) -> impl Iterator<Item = CpuId> {
        let domains = &self.queues[cpu.index()].domains;
        mask::ring(self.mask_words, cpu, move |at| {
            let nearer = match level {
                Level::Smt => 0,
                Level::Cache => domains.word(Level::Smt, at),
                Level::Node => domains.word(Level::Cache, at),
                Level::Machine => domains.word(Level::Node, at),
            };
            domains.word(level, at) & !nearer & self.online.word(at)
        })
        .filter(move |other| *other != cpu)
    }

    /// The CPUs that one tick looks at: near ones first, another part of a large machine each time.
    fn in_view(&self, cpu: CpuId, turn: u32) -> impl Iterator<Item = CpuId> {
        let parts = self.queues.len().div_ceil(LOOKED_AT);
        let skipped = turn as usize % parts * LOOKED_AT;
        Level::ALL.into_iter().flat_map(move |level| self.beyond(cpu, level)).skip(skipped).take(LOOKED_AT)
    }
}
