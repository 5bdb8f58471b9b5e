//! What must hold, checked while a run goes on.
//!
//! # What it is
//! [`Oracle`], and the seven there are. Each has a file that says in one line what it watches for.
//!
//! # How it works
//! The engine keeps its own books ([`State`]): who runs where, who is awake, who served whom for how long.
//! It tells each oracle what happened, before it books it, and asks it to compare the books with the scheduler's.
//!
//! # Invariants
//! 1. An oracle changes nothing. (Reading a task's statistics charges it up to now, which decides nothing.)
//! 2. An oracle that never objects proves nothing: `tests/tests/sim_oracles.rs` breaks the machine for each.
//!
//! # Cost
//! A few comparisons an event; [`Oracle::everything`] a few for each task and CPU.

use std::{collections::VecDeque, sync::Arc};

use sched_core::{CpuId, IrqOff, Scheduler, TaskParams, TaskState};

use super::{
    Nanos, Scenario,
    script::Task,
    world::{SimTask, World},
};

mod fairness;
mod one_cpu;
mod queues;
mod time;
mod waits;
mod wake_ups;
mod work_conservation;

pub use fairness::Fairness;
pub use work_conservation::{WorkConservation, bound_of};

/// What an oracle says: nothing, or what is wrong.
pub type Verdict = Result<(), String>;

/// What a task does, by the engine's books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It runs or wants to.
    Awake,
    /// It sleeps until a timer, or somebody else, wakes it.
    Asleep,
    /// It has exited.
    Dead,
}

/// A task, by the engine's books.
pub struct Member {
    /// The task.
    pub task: Arc<SimTask>,
    /// Its place in the script.
    pub plan: usize,
    /// What it was given, as far as everybody knows.
    pub params: TaskParams,
    /// What it does.
    pub doing: Doing,
    /// The CPU that runs it or is still leaving it.
    pub on: Option<u32>,
    /// The CPU it ran on last.
    pub last: Option<u32>,
    /// Since when it has waited for a CPU, if it does.
    pub waits_since: Option<Nanos>,
    /// How long it has waited before that.
    pub waited: Nanos,
    /// How long it has run before the present stretch, by the clocks of its CPUs.
    pub served: Nanos,
    pub(super) pc: usize,
    pub(super) rounds: u64,
    pub(super) left: Nanos,
    pub(super) naps: u64,
}

/// A CPU, by the engine's books.
#[derive(Clone, Debug, Default)]
pub struct Seat {
    /// Whether it is online.
    pub online: bool,
    /// Who runs; nobody: its idle task.
    pub runs: Option<usize>,
    /// Since when, by its own clock.
    pub since: Nanos,
    /// Since when, in true time.
    pub idle_since: Nanos,
    /// It is on its way from one task to another.
    pub switching: bool,
    /// Who is being left.
    pub leaving: Option<usize>,
    /// Kicks on their way to it.
    pub kicks: u32,
    /// How long its idle task has run before the present stretch.
    pub idled: Nanos,
    pub(super) stretch: u64,
    pub(super) due: Nanos,
    pub(super) arrives: Nanos,
}

/// A pipe: how many messages it holds, and who sleeps at which end.
#[derive(Clone, Debug, Default)]
pub struct Pipe {
    pub(super) messages: u32,
    pub(super) receivers: VecDeque<usize>,
    pub(super) senders: VecDeque<usize>,
}

/// The engine's books.
pub struct State<'s> {
    /// The scheduler under test.
    pub sched: &'s Scheduler<'s, World>,
    /// What is played.
    pub scenario: &'s Scenario,
    /// The script, as it is for this seed.
    pub plans: Vec<Task>,
    /// All tasks that were ever started.
    pub members: Vec<Member>,
    /// All CPUs.
    pub seats: Vec<Seat>,
    /// The idle task of each CPU.
    pub idles: Vec<Arc<SimTask>>,
    /// True time since the beginning.
    pub now: Nanos,
}

impl State<'_> {
    /// From here on `cpu` acts, with interrupts off.
    pub fn on(&self, cpu: u32) -> IrqOff {
        self.sched.platform().here.set(CpuId(cpu));
        // SAFETY: one thread is all CPUs, one call after another, and nothing interrupts it.
        unsafe { IrqOff::assert() }
    }

    /// What the clock of `cpu` shows.
    pub fn clock(&self, cpu: u32) -> Nanos {
        self.sched.platform().clocks[cpu as usize].at(self.now)
    }

    /// How long a task has run.
    pub fn served(&self, id: usize) -> Nanos {
        let member = &self.members[id];
        let running = member.on.filter(|cpu| self.seats[*cpu as usize].runs == Some(id));
        member.served + running.map_or(0, |cpu| self.clock(cpu) - self.seats[cpu as usize].since)
    }

    /// How long a task has waited.
    pub fn waited(&self, id: usize) -> Nanos {
        let member = &self.members[id];
        member.waited + member.waits_since.map_or(0, |since| self.now - since)
    }

    /// What the scheduler says a task is doing.
    pub fn state(&self, id: usize) -> TaskState {
        self.members[id].task.sched.state()
    }
}

/// Something that must hold.
pub trait Oracle {
    /// A word or two.
    fn name(&self) -> &'static str;

    /// A CPU is about to leave `state.seats[cpu].runs` for `next`.
    fn switches(&mut self, _state: &State<'_>, _cpu: u32, _next: Option<usize>) -> Verdict {
        Ok(())
    }

    /// A task was woken, or was started.
    fn woken(&mut self, _state: &State<'_>, _id: usize) -> Verdict {
        Ok(())
    }

    /// Who wants to run, with which weight, and where, has changed just now.
    fn changes(&mut self, _state: &State<'_>) {}

    /// An event of `cpu` is over.
    fn after(&mut self, _state: &State<'_>, _cpu: u32) -> Verdict {
        Ok(())
    }

    /// A millisecond has passed.
    fn sample(&mut self, _state: &State<'_>) -> Verdict {
        Ok(())
    }

    /// Looks at everything.
    fn everything(&mut self, _state: &State<'_>) -> Verdict {
        Ok(())
    }

    /// The run is over.
    fn end(&mut self, _state: &State<'_>) -> Verdict {
        Ok(())
    }

    /// What was measured, as `name=value`.
    fn figures(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// All oracles.
pub fn all(scenario: &Scenario) -> Vec<Box<dyn Oracle>> {
    vec![
        Box::new(one_cpu::OneCpu),
        Box::new(queues::Queues::default()),
        Box::new(wake_ups::WakeUps),
        Box::new(time::Time),
        Box::new(waits::Waits::new(scenario)),
        Box::new(WorkConservation::new(scenario)),
        Box::new(Fairness::new(scenario)),
    ]
}
