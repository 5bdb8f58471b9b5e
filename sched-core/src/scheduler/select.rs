//! # What it is
//! Which CPU a task goes to when it is born, wakes up, or may not stay where it is.
//!
//! # How it works
//! A sleeper goes back to the CPU it slept on if that is idle; else an idle CPU near it takes it; else it goes back and waits.
//! For a normal task a CPU that runs only tasks of the idle policy is as good as idle.
//! A new task, and one that has to move, goes to the CPU with the fewest runnable tasks, one whose core is quiet first.
//! Whatever is decided here by what others have published may be outdated at once; [`balance`](super::balance) mends it.
//!
//! # Invariants
//! 1. An answer is online and in the mask, as far as one look could tell; `place` looks again.
//!
//! # Cost
//! A wake-up reads the published line of at most [`LOOKED_AT`] CPUs beside the last one, of few while nobody idles. A birth reads that of all.

use super::{Here, Scheduler, place::Coming};
use crate::{
    config::Config,
    mask::{self, SharedMask},
    params::Policy,
    platform::CpuId,
    task::{Class, TaskRef},
    topology::Level,
};

/// At how many CPUs a wake-up looks, besides the one the task slept on, to find an idle one: at most, and at least.
/// A search in vain halves the number for the next one of the same waker, a successful one doubles it:
/// while nobody idles, looking everywhere would be all that a large machine does.
const LOOKED_AT: core::ops::RangeInclusive<u32> = 8..=64;

impl<C: Config> Scheduler<'_, C> {
    /// A CPU for the task.
    pub(super) fn select(&self, here: &Here<'_, C>, task: TaskRef<C>, coming: Coming) -> CpuId {
        let last = task.cpu();
        match coming {
            _ if !task.is(Class::Fair) => last,
            Coming::Given(cpu) => cpu,
            Coming::Fresh => self.least_loaded(task, here.cpu),
            Coming::Listed if self.may_use(task, here.cpu) => here.cpu,
            Coming::Woken | Coming::Listed if self.may_use(task, last) => {
                if self.is_free(last, task) {
                    last
                } else {
                    self.idle_near(here, last, task).unwrap_or(last)
                }
            }
            Coming::Woken | Coming::Listed | Coming::Moved => self.least_loaded(task, last),
        }
    }

    /// An idle CPU that the task may use, behind the cache of `last` if there is one, one whose core is quiet if there is one.
    #[inline(always)]
    fn idle_near(&self, here: &Here<'_, C>, last: CpuId, task: TaskRef<C>) -> Option<CpuId> {
        let others = |at| self.online.word(at) & task.mask.word(at) & !mask::word_of(last, at);
        // A pinned task need not search.
        if (0..self.mask_words).all(|at| others(at) == 0) { None } else { self.search_idle_near(here, last, task) }
    }

    #[inline(never)]
    fn search_idle_near(&self, here: &Here<'_, C>, last: CpuId, task: TaskRef<C>) -> Option<CpuId> {
        let domains = &self.queues[last.index()].domains;
        let others = |at| self.online.word(at) & task.mask.word(at) & !mask::word_of(last, at);
        let search = here.change_search(|_| {});
        // Where all can be looked at, the nearest in number comes first; else each search goes on where the last one ended.
        let from = if self.queues.len() as u32 <= search.most { last } else { search.from };
        let mut left = search.most;
        let found = self
            .idle_of(task, from, &mut left, |at| others(at) & domains.word(Level::Cache, at))
            .or_else(|| self.idle_of(task, from, &mut left, |at| others(at) & !domains.word(Level::Cache, at)));
        here.change_search(|search| {
            let most = if found.is_some() { search.most * 2 } else { search.most / 2 };
            search.most = most.clamp(*LOOKED_AT.start(), *LOOKED_AT.end());
            search.from = CpuId((from.0 + search.most) % self.queues.len() as u32);
        });
        found
    }

    /// An idle CPU of those given as words, one whose core is quiet if there is one. Looks at no more than `left` of them.
    #[inline(always)]
    fn idle_of(&self, task: TaskRef<C>, from: CpuId, left: &mut u32, word: impl Fn(usize) -> u64) -> Option<CpuId> {
        let mut idle = None;
        for cpu in mask::ring(self.mask_words, from, word) {
            if *left == 0 {
                break;
            }
            *left -= 1;
            if self.is_free(cpu, task) {
                if self.load_beside(cpu) == 0 {
                    return Some(cpu);
                }
                idle = idle.or(Some(cpu));
            }
        }
        idle
    }

    /// The allowed CPU with the fewest runnable tasks, then with the fewest beside it on its core; of equals the first from `from` on.
    #[cold]
    fn least_loaded(&self, task: TaskRef<C>, from: CpuId) -> CpuId {
        let cpus = self.allowed(from, Level::Machine, task);
        cpus.min_by_key(|cpu| (self.queues[cpu.index()].load(), self.load_beside(*cpu)))
            // A mask that is being changed word by word may look empty; `place` looks again.
            .unwrap_or_else(|| self.online().next().unwrap_or(from))
    }

    /// The CPUs that share `level` with `around`, are online, and may be used by the task: from `around` on, and around.
    #[inline(always)]
    pub(super) fn allowed(&self, around: CpuId, level: Level, task: TaskRef<C>) -> impl Iterator<Item = CpuId> {
        let domains = &self.queues[around.index()].domains;
        mask::ring(self.mask_words, around, move |at| {
            domains.word(level, at) & self.online.word(at) & task.mask.word(at)
        })
    }

    /// Whether the task may use `cpu`, as of now.
    #[inline(always)]
    fn may_use(&self, task: TaskRef<C>, cpu: CpuId) -> bool {
        task.mask.contains(cpu) && self.online.contains(cpu)
    }

    /// Whether `cpu` has nothing to do, as of the last section under its lock.
    #[inline(always)]
    pub(super) fn is_idle_cpu(&self, cpu: CpuId) -> bool {
        self.queues[cpu.index()].load() == 0
    }

    /// Whether the task would run on `cpu` at once: it has nothing to do, or nothing but tasks of the idle policy,
    /// which the task is not of.
    #[inline(always)]
    pub(super) fn is_free(&self, cpu: CpuId, task: TaskRef<C>) -> bool {
        let queue = &self.queues[cpu.index()];
        queue.load() == 0 || queue.gives_way() && task.params().policy != Policy::Idle
    }

    /// Runnable tasks of the CPUs that share a core with `cpu`, without its own.
    fn load_beside(&self, cpu: CpuId) -> u64 {
        let domains = &self.queues[cpu.index()].domains;
        mask::ring(self.mask_words, cpu, |at| domains.word(Level::Smt, at))
            .filter(|other| *other != cpu)
            .map(|other| self.queues[other.index()].load())
            .sum()
    }
}
