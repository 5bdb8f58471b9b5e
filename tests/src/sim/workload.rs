//! The usual workloads, as tasks of a script.
//!
//! # What it is
//! [`Work`]: what `[[work]]` in a scenario file can say.
//!
//! # How it works
//! Each kind appends its tasks to a script, and takes new pipes for them. Chance is used for what differs from task to task.
//!
//! # Invariants
//! 1. The same seed gives the same tasks.
//!
//! # Cost
//! None that counts.

use sched_core::TaskParams;
use serde::Deserialize;

use super::{
    MS, SECOND, US,
    script::{self, Op, Task, Whom},
    time::Span,
};

/// Some tasks of one kind.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// What they do.
    pub kind: Kind,
    /// How many: tasks, pairs of them, groups.
    #[serde(default = "one")]
    pub count: usize,
    /// Their nice values, one after another, and again.
    #[serde(default = "zero")]
    pub nice: Vec<i32>,
    /// Where they may run.
    pub cpus: Option<String>,
    /// `normal`, `batch` or `idle`.
    pub policy: Option<String>,
    /// Their slice, in microseconds.
    pub slice_us: Option<u64>,
    /// How long they compute at a time (`periodic`, `pipe`, `messaging`, `forks`; `mix`: at most, mostly).
    pub run: Option<String>,
    /// How long they sleep (`periodic`, `forks`, storms; `mix`: at most).
    pub sleep: Option<String>,
    /// Senders and as many receivers of a group (`messaging`).
    #[serde(default = "twenty")]
    pub fds: usize,
    /// When they start.
    pub at: Option<String>,
}

fn one() -> usize {
    1
}
fn zero() -> Vec<i32> {
    vec![0]
}
fn twenty() -> usize {
    20
}

/// What tasks do.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Computes for ever.
    Spin,
    /// Computes, sleeps, and again.
    Periodic,
    /// Two tasks that pass a message to and fro.
    Pipe,
    /// Groups of senders and receivers; every sender sends to every receiver of its group.
    Messaging,
    /// Starts children that compute and exit.
    Forks,
    /// Gives anybody any nice value.
    NiceStorm,
    /// Lets anybody run anywhere, or hardly anywhere.
    AffinityStorm,
    /// A bit of everything, by chance.
    Mix,
}

impl Work {
    /// Appends the tasks.
    pub fn expand(&self, tasks: &mut Vec<Task>, pipes: &mut usize, chance: &mut fastrand::Rng) -> Result<(), String> {
        let span = |text: &Option<String>, default: Span| text.as_deref().map_or(Ok(default), str::parse);
        let run = span(&self.run, Span { from: 100 * US, to: MS })?;
        let sleep = span(&self.sleep, Span { from: 500 * US, to: 5 * MS })?;
        let cpus = self.cpus.as_deref().map(script::cpus).transpose()?;
        let at = self.at.as_deref().map_or(Ok(0), super::time::parse_nanos)?;
        let policy = self.policy.as_deref().map_or(Ok(sched_core::Policy::Normal), script::policy)?;
        let slice = self.slice_us.map(script::slice).transpose()?;
        script::count("count", self.count)?;
        script::count("fds", self.fds)?;
        script::count(
            "count times fds",
            if self.kind == Kind::Messaging { self.count.saturating_mul(self.fds) } else { 1 },
        )?;
        if self.nice.is_empty() {
            return Err("nice: at least one value".into());
        }
        let nices = self.nice.iter().map(|value| script::nice(*value)).collect::<Result<Vec<_>, _>>()?;
        // Tasks of a pipe compute for a moment only, unless the scenario says otherwise.
        let moment = if self.run.is_some() { run } else { Span { from: US, to: 10 * US } };
        let born = tasks.len();
        let mut new = New { tasks, pipes, chance };
        for _ in 0..self.count {
            match self.kind {
                Kind::Spin => _ = new.task([Op::Run(Span::fixed(3600 * SECOND))]),
                Kind::Periodic => _ = new.task([Op::Run(run), Op::Sleep(sleep)]),
                Kind::Pipe => new.pair(moment),
                Kind::Messaging => new.group(self.fds, moment),
                Kind::Forks => _ = new.forks(run, sleep),
                Kind::NiceStorm => _ = new.task([Op::Nice(Whom::Any, None), Op::Run(moment), Op::Sleep(sleep)]),
                Kind::AffinityStorm => {
                    _ = new.task([Op::Affinity(Whom::Any, None), Op::Run(moment), Op::Sleep(sleep)]);
                }
                Kind::Mix => new.mixed(run, sleep),
            }
        }
        for (place, task) in tasks[born..].iter_mut().enumerate() {
            task.at += at;
            task.params = TaskParams { nice: nices[place % nices.len()], policy, slice: slice.or(task.params.slice) };
            task.cpus = cpus;
        }
        Ok(())
    }
}

/// Where new tasks go.
struct New<'a> {
    tasks: &'a mut Vec<Task>,
    pipes: &'a mut usize,
    chance: &'a mut fastrand::Rng,
}

impl New<'_> {
    fn task(&mut self, steps: impl Into<Vec<Op>>) -> usize {
        self.tasks.push(Task::new(steps.into()));
        self.tasks.len() - 1
    }

    fn pipe(&mut self) -> usize {
        *self.pipes += 1;
        *self.pipes - 1
    }

    fn pair(&mut self, run: Span) {
        let (to, fro) = (self.pipe(), self.pipe());
        self.task([Op::Send(to), Op::Run(run), Op::Receive(fro)]);
        self.task([Op::Receive(to), Op::Run(run), Op::Send(fro)]);
    }

    fn group(&mut self, fds: usize, run: Span) {
        let pipes: Vec<usize> = (0..fds).map(|_| self.pipe()).collect();
        for own in &pipes {
            self.task([Op::Receive(*own), Op::Run(run)]);
            self.task(pipes.iter().flat_map(|to| [Op::Send(*to), Op::Run(run)]).collect::<Vec<_>>());
        }
    }

    fn forks(&mut self, run: Span, sleep: Span) -> usize {
        let child = self.task([Op::Run(run), Op::Exit]);
        self.tasks[child].template = true;
        self.task([Op::Fork(child), Op::Fork(child), Op::Fork(child), Op::Sleep(sleep)])
    }

    /// A task of any kind, or two. It computes for up to `run` at a time, mostly, and sleeps for up to `sleep`.
    fn mixed(&mut self, run: Span, sleep: Span) {
        let upto = |chance: &mut fastrand::Rng, most| {
            let to = chance.u64(most / 8..=most);
            Span { from: to / 8, to }
        };
        let (run, long) = (upto(self.chance, run.to), upto(self.chance, 30 * run.to));
        let (sleep, rest) = (upto(self.chance, sleep.to), upto(self.chance, 30 * sleep.to));
        let moment = upto(self.chance, 20 * US);
        match self.chance.u32(0..20) {
            0 => _ = self.task([Op::Sleep(rest), Op::Run(long)]),
            1 => _ = self.task([Op::Run(run), Op::Yield, Op::Run(run), Op::Sleep(sleep), Op::Sleep(sleep)]),
            2 => _ = self.task([Op::Nice(Whom::Any, None), Op::Run(moment), Op::Sleep(sleep)]),
            3 => _ = self.task([Op::Affinity(Whom::Any, None), Op::Run(moment), Op::Sleep(sleep)]),
            4 => {
                let parent = self.forks(run, sleep);
                self.tasks[parent].at = self.chance.u64(0..=sleep.to);
            }
            5 => {
                let last = self.task([Op::Sleep(rest), Op::Run(long)]);
                self.tasks[last].params.slice = Some(sched_core::Slice::clamped(self.chance.u64(100 * US..=20 * MS)));
            }
            6..10 => {
                // A server, and a client that thinks before it asks.
                let (to, fro) = (self.pipe(), self.pipe());
                self.task([Op::Sleep(sleep), Op::Send(to), Op::Run(moment), Op::Receive(fro)]);
                self.task([Op::Receive(to), Op::Run(moment), Op::Send(fro)]);
            }
            _ => _ = self.task([Op::Run(run), Op::Sleep(sleep)]),
        }
    }
}
