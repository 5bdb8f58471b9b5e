//! # What it is
//! Drives a [`Machine`] through time: tasks follow scripts, timers wake, ticks tick, kicks arrive late, switches take a while.
//!
//! # How it works
//! Events lie in a heap by time. Chance comes from one seed, and the scheduler has none of its own,
//! so a seed gives the same run again.
//! A CPU takes no event in the middle of a switch, as if interrupts were off, and an idle CPU takes no tick:
//! only a kick or a timer brings it back.
//!
//! # Invariants
//! Besides those of the machine:
//! 1. `away` of a task is exactly the time in which it was on no queue: asleep, or between two queues.
//! 2. A run ends; a task that never comes to run again is reported ([`Sim::finish`]).

use std::{cmp::Reverse, collections::BinaryHeap, ops::Range, sync::Arc};

use sched_core::{CpuId, Mask256, Nanos, Reason, Spawn, State, Switch, TaskParams, Woken};

use super::{Built, Machine, Made, START, TICK, Task};

/// What a task does next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Computes for so long.
    Run(Nanos),
    /// Sleeps, and a timer wakes it.
    Sleep(Nanos),
    /// Sleeps until somebody wakes it.
    Block,
    Yield,
    /// Puts a message into the mailbox of a task, and wakes it.
    Send(usize),
    /// Takes a message, or sleeps until there is one: prepare, check, block.
    Receive,
    Wake(usize),
    Affinity(usize, Mask256),
    Params(usize, TaskParams),
    /// Starts a task with the script that comes with it.
    Fork(fn(usize) -> Script),
    Exit,
}

/// Called for each step with the source of chance and the number of tasks there are.
pub type Script = Box<dyn FnMut(&mut fastrand::Rng, usize) -> Step>;

/// A script that computes for ever.
pub fn spin() -> Script {
    Box::new(|_, _| Step::Run(Nanos::MAX / 8))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(u32),
    Tick(u32),
    Kick(u32),
    /// The step of the task that runs on the CPU is over, if the CPU still runs the same stretch.
    Due(u32, u64),
    Timer(usize),
}

/// One task of a [`Sim`].
pub struct Member<S: Made, P: Made> {
    pub task: Arc<Task<Built<S, P>>>,
    script: Script,
    /// Computing that is left of the present step.
    left: Nanos,
    pub born: Nanos,
    pub died: Option<Nanos>,
    /// Time on no queue so far.
    pub away: Nanos,
    away_since: Option<Nanos>,
    /// The CPU that leaves it will place it.
    handed_over: bool,
    messages: u32,
    receives: bool,
}

/// One CPU of a [`Sim`].
#[derive(Default)]
struct Seat {
    stretch: u64,
    since: Nanos,
    arrives: Nanos,
    leaving: Option<usize>,
}

pub struct Sim<S: Made = Switch, P: Made = Switch> {
    pub machine: Machine<S, P>,
    pub members: Vec<Member<S, P>>,
    seats: Vec<Seat>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    order: u64,
    pub now: Nanos,
    rng: fastrand::Rng,
    /// How long a kick travels.
    pub kick_nanos: Range<Nanos>,
    /// How long a switch takes.
    pub switch_nanos: Range<Nanos>,
    /// Who came to which CPU when.
    pub trace: Vec<(Nanos, u32, String)>,
    /// Per CPU: wake-ups by it that woke somebody.
    pub wakes: Vec<u64>,
    /// Per CPU: calls of the scheduler, which all come to a decision here.
    pub decisions: Vec<u64>,
    /// Per CPU: those of the decisions that were yields.
    pub yields: Vec<u64>,
    ending: bool,
}

impl<S: Made, P: Made> Sim<S, P> {
    /// A machine whose CPUs have clocks that differ by fixed offsets.
    pub fn new(cpus: u32, stats: State, seed: u64) -> Self {
        let clocks = (0..cpus).map(|cpu| START + u64::from(cpu) * 977).collect();
        Self::on(Machine::with_clocks(clocks, stats), seed)
    }

    /// Drives `machine`.
    pub fn on(machine: Machine<S, P>, seed: u64) -> Self {
        let cpus = machine.cpus().count() as u32;
        let mut sim = Self {
            machine,
            members: Vec::new(),
            seats: (0..cpus).map(|_| Seat::default()).collect(),
            events: BinaryHeap::new(),
            order: 0,
            now: 0,
            rng: fastrand::Rng::with_seed(seed),
            kick_nanos: 500..20_000,
            switch_nanos: 100..3_000,
            trace: Vec::new(),
            wakes: vec![0; cpus as usize],
            decisions: vec![0; cpus as usize],
            yields: vec![0; cpus as usize],
            ending: false,
        };
        for cpu in 0..cpus {
            sim.at(TICK * u64::from(cpu + 1) / u64::from(cpus), Event::Tick(cpu));
        }
        sim
    }

    /// A new task, started by `cpu`.
    pub fn add(&mut self, cpu: u32, spawn: Spawn<Built<S, P>>, script: Script) -> usize {
        while self.machine.cpu(cpu).is_leaving() {
            self.step();
        }
        let id = self.members.len();
        let task = self.machine.cpu(cpu).spawn_with(&format!("t{id}"), spawn);
        self.members.push(Member {
            task,
            script,
            left: 0,
            born: self.now,
            died: None,
            away: 0,
            away_since: None,
            handed_over: false,
            messages: 0,
            receives: false,
        });
        self.after_event(cpu);
        id
    }

    /// Runs for `nanos`.
    pub fn run(&mut self, nanos: Nanos) {
        let end = self.now + nanos;
        while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= end) {
            self.step();
        }
        self.pass_to(end);
    }

    /// Wakes everybody up and lets everybody exit.
    pub fn finish(&mut self) {
        self.ending = true;
        for id in 0..self.members.len() {
            self.members[id].left = 0;
            self.at(self.now, Event::Timer(id));
        }
        for cpu in 0..self.seats.len() {
            self.at(self.now, Event::Due(cpu as u32, self.seats[cpu].stretch));
        }
        let limit = self.now + 100_000_000_000;
        while self.members.iter().any(|member| member.died.is_none()) {
            if self.now > limit {
                let stuck = self.members.iter().filter(|member| member.died.is_none()).map(|member| &member.task);
                panic!("never run again: {:?}; loads {:?}", stuck.collect::<Vec<_>>(), self.machine.loads());
            }
            self.step();
        }
        // The last ones may still be on their way out.
        self.run(10 * TICK);
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    fn pass_to(&mut self, now: Nanos) {
        self.machine.advance(now - self.now);
        self.now = now;
    }

    fn chance(&mut self, range: Range<Nanos>) -> Nanos {
        if range.is_empty() { range.start } else { self.rng.u64(range) }
    }

    fn step(&mut self) {
        let Reverse((at, _, event)) = self.events.pop().expect("ticks go on for ever");
        let cpu = match event {
            Event::Arrive(cpu) | Event::Tick(cpu) | Event::Kick(cpu) | Event::Due(cpu, _) => cpu,
            // Any CPU's timer may fire.
            Event::Timer(_) => self.rng.u32(0..self.seats.len() as u32),
        };
        self.pass_to(at);
        if self.machine.cpu(cpu).is_leaving() && !matches!(event, Event::Arrive(_)) {
            let later = self.seats[cpu as usize].arrives;
            return self.at(later, event);
        }
        match event {
            Event::Arrive(_) => self.arrive(cpu),
            Event::Tick(_) => {
                self.at(self.now + TICK, event);
                if self.machine.cpu(cpu).is_idle() {
                    return;
                }
                self.machine.cpu(cpu).tick();
            }
            Event::Kick(_) => {}
            Event::Due(_, stretch) => {
                if self.seats[cpu as usize].stretch != stretch {
                    return;
                }
                self.act(cpu);
            }
            Event::Timer(id) => self.wake(cpu, id),
        }
        self.after_event(cpu);
    }

    /// Sends the kicks, and does what a CPU does on the way out of an interrupt.
    fn after_event(&mut self, cpu: u32) {
        for kicked in self.machine.kicks() {
            let delay = self.chance(self.kick_nanos.clone());
            self.at(self.now + delay, Event::Kick(kicked));
        }
        let here = self.machine.cpu(cpu);
        if !here.is_leaving() && here.need_resched() {
            self.decide(cpu, Reason::Preempt);
        }
        for other in
            self.machine.cpus().filter(|other| other.id.0 != cpu && other.need_resched() && !other.is_leaving())
        {
            let coming = self.events.iter().any(|Reverse((.., event))| *event == Event::Kick(other.id.0));
            assert!(coming, "{:?} has a request that no kick follows", other.id);
        }
    }

    fn running(&self, cpu: u32) -> Option<usize> {
        self.members.iter().position(|member| self.machine.cpu(cpu).runs(&member.task))
    }

    fn decide(&mut self, cpu: u32, reason: Reason<Built<S, P>>) {
        let prev = self.running(cpu);
        let blocks = matches!(reason, Reason::Block(_));
        let exits = matches!(reason, Reason::Exit);
        self.decisions[cpu as usize] += 1;
        self.yields[cpu as usize] += u64::from(matches!(reason, Reason::Yield));
        let here = self.machine.cpu(cpu);
        if !here.leave(reason) {
            return;
        }
        self.trace.push((self.now, cpu, here.current()));
        if let Some(id) = prev {
            let member = &mut self.members[id];
            member.left = member.left.saturating_sub(self.now - self.seats[cpu as usize].since);
            if exits {
                member.died = Some(self.now);
            } else if blocks || !member.task.sched.affinity().contains(CpuId(cpu)) {
                member.away_since = Some(self.now);
                member.handed_over = !blocks;
            }
        }
        let delay = self.chance(self.switch_nanos.clone());
        let seat = &mut self.seats[cpu as usize];
        seat.stretch += 1;
        seat.leaving = prev;
        seat.arrives = self.now + delay;
        self.at(self.now + delay, Event::Arrive(cpu));
    }

    fn arrive(&mut self, cpu: u32) {
        let back = self.machine.cpu(cpu).arrive();
        let left = self.seats[cpu as usize].leaving.take();
        if let Some(task) = back {
            assert!(Arc::ptr_eq(&task, &self.members[left.expect("a member exits")].task));
            assert_eq!(Arc::strong_count(&task), 2, "ours and the one that came back");
        }
        if let Some(id) = left.filter(|&id| self.members[id].handed_over) {
            self.members[id].handed_over = false;
            self.placed(id);
        }
        if let Some(id) = self.running(cpu) {
            let seat = &mut self.seats[cpu as usize];
            seat.since = self.now;
            let (due, stretch) = (self.now.saturating_add(self.members[id].left), seat.stretch);
            self.at(due, Event::Due(cpu, stretch));
        }
    }

    fn placed(&mut self, id: usize) {
        let member = &mut self.members[id];
        member.away += self.now - member.away_since.take().expect("away");
    }

    /// A CPU is on its way away from it.
    fn is_left(&self, id: usize) -> bool {
        self.seats.iter().any(|seat| seat.leaving == Some(id))
    }

    fn wake(&mut self, cpu: u32, id: usize) {
        if self.machine.cpu(cpu).wake(&self.members[id].task) == Woken::Yes {
            self.wakes[cpu as usize] += 1;
            if self.is_left(id) {
                self.members[id].handed_over = true;
            } else {
                self.placed(id);
            }
        }
    }

    fn set_affinity(&mut self, cpu: u32, id: usize, mask: Mask256) {
        let task = self.members[id].task.clone();
        let (at, waits) = (task.sched.cpu(), self.members[id].away_since.is_none() && self.members[id].died.is_none());
        let cpus: Vec<_> = mask.iter().map(|cpu| cpu.0).collect();
        if self.machine.cpu(cpu).set_affinity(&task, &cpus).is_ok() && waits && self.is_left(id) && !mask.contains(at) {
            self.members[id].away_since = Some(self.now);
            self.members[id].handed_over = true;
        }
    }

    /// The current task of `cpu` takes its next step.
    fn act(&mut self, cpu: u32) {
        let Some(id) = self.running(cpu) else { return };
        let count = self.members.len();
        let step = if self.ending {
            Step::Exit
        } else if self.members[id].receives {
            Step::Receive
        } else {
            (self.members[id].script)(&mut self.rng, count)
        };
        let here = self.machine.cpu(cpu);
        // Whatever a step does takes a moment.
        self.members[id].left = 100;
        self.seats[cpu as usize].since = self.now;
        match step {
            Step::Run(nanos) => self.members[id].left = nanos,
            Step::Sleep(nanos) => {
                let sleep = here.prepare();
                self.at(self.now + nanos, Event::Timer(id));
                return self.decide(cpu, Reason::Block(sleep));
            }
            Step::Block => {
                let sleep = here.prepare();
                return self.decide(cpu, Reason::Block(sleep));
            }
            Step::Exit => return self.decide(cpu, Reason::Exit),
            Step::Yield => {
                self.decide(cpu, Reason::Yield);
                if self.machine.cpu(cpu).is_leaving() {
                    return;
                }
            }
            Step::Receive => {
                let sleep = here.prepare();
                let member = &mut self.members[id];
                member.receives = member.messages == 0;
                if member.receives {
                    return self.decide(cpu, Reason::Block(sleep));
                }
                member.messages -= 1;
            }
            Step::Send(id) => {
                self.members[id].messages += 1;
                self.wake(cpu, id);
            }
            Step::Wake(id) => self.wake(cpu, id),
            Step::Affinity(id, mask) => self.set_affinity(cpu, id, mask),
            Step::Params(id, params) => drop(here.set_params(&self.members[id].task.clone(), params)),
            Step::Fork(script) => {
                let script = script(self.members.len());
                let spawn = Spawn { affinity: self.members[id].task.sched.affinity(), ..Spawn::default() };
                self.add(cpu, spawn, script);
                if self.machine.cpu(cpu).is_leaving() {
                    return;
                }
            }
        }
        let seat = &self.seats[cpu as usize];
        let (due, stretch) = (self.now.saturating_add(self.members[id].left), seat.stretch);
        self.at(due, Event::Due(cpu, stretch));
    }

    /// The time since the scheduler came up.
    pub fn elapsed(&self) -> Nanos {
        self.now
    }

    /// Whether the member is alive and counted by nobody but us.
    pub fn released(&self, id: usize) -> bool {
        Arc::strong_count(&self.members[id].task) == 1
    }
}
