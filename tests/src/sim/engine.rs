//! Plays a scenario, event by event.
//!
//! # What it is
//! [`run`]: from a scenario and a seed to an [`Outcome`].
//!
//! # How it works
//! Events lie in a heap by time, then by order of making. Each belongs to a CPU; one that comes in the middle of a switch,
//! when interrupts are off, waits until the CPU has arrived. An idle CPU takes no tick: a kick or a timer brings it back.
//! A step of a task that takes no time of its own takes [`STEP`].
//!
//! # Invariants
//! 1. Every decision of the scheduler is carried out, every kick arrives, unless the scenario is broken on purpose.
//! 2. Oracles see an event before the books do.
//!
//! # Cost
//! A heap operation and a few calls an event.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    cmp::Reverse,
    collections::BinaryHeap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use sched_core::{
    CpuId, CpuQueue, Decision, Gates, IrqOff, Mask1024, Nice, Reason, SchedTask, Scheduler, SleepKind, Spawn, Switch,
    TaskParams, Tunables, Woken,
};

use super::{
    MS, Nanos, Scenario, US,
    broken::Break,
    oracles::{self, Doing, Member, Oracle, Pipe, Seat, State, Verdict},
    script::{Op, PIPE_ROOM, Task, Whom},
    trace::{self, Trace},
    world::{self, Bench, SimTask, World},
};

/// What a step takes that takes no time of its own.
const STEP: Nanos = 200;
/// From one tick to the next.
const TICK: Nanos = 4 * MS;
/// Events from one look at everything to the next.
const LOOK: u64 = 10_000;

/// What an oracle has to object, or what the scheduler itself panicked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// When, in true time.
    pub at: Nanos,
    /// Which oracle; `panic` if it was none.
    pub oracle: String,
    /// What is wrong.
    pub what: String,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Events played.
    pub events: u64,
    /// Switches from one task, or from idling, to another.
    pub switches: u64,
    /// Wake-ups.
    pub wake_ups: u64,
    /// Switches to a task that ran on another CPU before.
    pub moved: u64,
    /// Kicks sent.
    pub kicks: u64,
    /// Words of the scheduler read in the course of wake-ups.
    pub words: u64,
    /// Tasks started.
    pub tasks: usize,
    /// What oracles measured.
    pub measured: Vec<(&'static str, f64)>,
}

/// How a run went.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The first objection, if there was one.
    pub objection: Option<Objection>,
    /// What happened, if that was asked for.
    pub trace: Option<Trace>,
    /// What was counted.
    pub figures: Figures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(u32),
    Tick(u32),
    Kick(u32),
    /// The step of the task that runs on the CPU is over, if the CPU still runs the same stretch.
    Due(u32, u64),
    /// The nap of a task is over, if it still naps the same.
    Timer(u32, usize, u64),
    Start(u32, usize),
    Online(u32),
    /// The CPU goes offline for so long, as soon as it idles.
    Leave(u32, Nanos),
    Back(u32),
    Sample,
}

/// Plays `scenario` from `seed`.
pub fn run(scenario: &Scenario, seed: u64, traced: bool) -> Outcome {
    let plans = match scenario.expand(seed) {
        Ok(plans) => plans,
        Err(what) => return refused(what),
    };
    play(scenario, seed, plans, traced)
}

fn refused(what: String) -> Outcome {
    let objection = Objection { at: 0, oracle: "scenario".into(), what };
    Outcome { objection: Some(objection), trace: None, figures: Figures::default() }
}

/// Plays the tasks `plans` on the machine of `scenario`.
pub fn play(scenario: &Scenario, seed: u64, plans: Vec<Task>, traced: bool) -> Outcome {
    world::begin();
    let tunables = Tunables::for_cpus(scenario.cpus).with(scenario.algorithm);
    let place = |cpu| scenario.topology.place(cpu);
    let queues: Vec<CpuQueue<World>> =
        (0..scenario.cpus).map(|cpu| CpuQueue::placed(&tunables, CpuId(cpu), scenario.cpus, place)).collect();
    let gates = Gates {
        schedstats: Switch::new(sched_core::State::On),
        psi: Switch::new(sched_core::State::On),
        watch: Switch::new(sched_core::State::On),
    };
    let bench = Bench {
        clocks: scenario.clocks(seed),
        now: Cell::new(0),
        here: Cell::new(CpuId(0)),
        kicks: RefCell::new(Vec::new()),
        lie: Cell::new(None),
    };
    let sched = match Scheduler::new(&queues, bench, gates) {
        Ok(sched) => sched,
        Err(error) => return refused(error.to_string()),
    };
    let idle = |cpu: u32| Arc::new(SimTask { sched: SchedTask::new(), id: usize::MAX - cpu as usize });
    let mut engine = Engine {
        state: State {
            sched: &sched,
            scenario,
            plans,
            members: Vec::new(),
            seats: vec![Seat::default(); scenario.cpus as usize],
            idles: (0..scenario.cpus).map(idle).collect(),
            now: 0,
        },
        oracles: oracles::all(scenario),
        events: BinaryHeap::new(),
        order: 0,
        chance: fastrand::Rng::with_seed(seed),
        pipes: Vec::new(),
        trace: traced.then(Trace::default),
        figures: Figures::default(),
        preemptions: 0,
    };
    let verdict = catch_unwind(AssertUnwindSafe(|| engine.play()));
    let objection = match verdict {
        Ok(Ok(())) => None,
        Ok(Err(objection)) => Some(objection),
        Err(panic) => Some(Objection { at: engine.state.now, oracle: "panic".into(), what: said(&*panic) }),
    };
    let mut figures = engine.figures;
    figures.tasks = engine.state.members.len();
    figures.measured = engine.oracles.iter().flat_map(|oracle| oracle.figures()).collect();
    Outcome { objection, trace: engine.trace, figures }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().map(ToString::to_string).or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no words".into()).replace('\n', " ")
}

struct Engine<'s> {
    state: State<'s>,
    oracles: Vec<Box<dyn Oracle>>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    order: u64,
    chance: fastrand::Rng,
    pipes: Vec<Pipe>,
    trace: Option<Trace>,
    figures: Figures,
    preemptions: u64,
}

type Played = Result<(), Objection>;

impl Engine<'_> {
    fn play(&mut self) -> Played {
        let scenario = self.state.scenario;
        for feature in &scenario.features {
            let irq = self.state.on(0);
            self.state.sched.set_feature(&irq, feature.0, feature.1).expect("features are switchable here");
        }
        for cpu in 0..scenario.cpus {
            match cpu.checked_sub(scenario.late_from) {
                None => self.bring_online(cpu)?,
                Some(late) => self.at(MS * u64::from(late + 1), Event::Online(cpu)),
            }
        }
        for (id, plan) in self.state.plans.iter().enumerate() {
            if !plan.template && !plan.steps.is_empty() {
                let starter = id as u32 % scenario.late_from;
                self.order += 1;
                self.events.push(Reverse((plan.at, self.order, Event::Start(starter, id))));
            }
        }
        for away in &scenario.away {
            self.at(away.at, Event::Leave(away.cpu, away.span));
        }
        self.at(MS, Event::Sample);
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at > scenario.length {
                break;
            }
            self.pass_to(at);
            self.happen(event)?;
            self.figures.events += 1;
            if self.figures.events.is_multiple_of(LOOK) {
                self.ask(|oracle, state| oracle.everything(state))?;
            }
        }
        self.pass_to(scenario.length);
        self.ask(|oracle, state| oracle.everything(state))?;
        self.ask(|oracle, state| oracle.end(state))
    }

    /// Asks all oracles; the first objection ends the run.
    fn ask(&mut self, question: impl Fn(&mut dyn Oracle, &State<'_>) -> Verdict) -> Played {
        for oracle in &mut self.oracles {
            question(&mut **oracle, &self.state).map_err(|what| Objection {
                at: self.state.now,
                oracle: oracle.name().into(),
                what,
            })?;
        }
        Ok(())
    }

    fn changes(&mut self) {
        self.oracles.iter_mut().for_each(|oracle| oracle.changes(&self.state));
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    fn pass_to(&mut self, now: Nanos) {
        self.state.now = now;
        let bench = self.state.sched.platform();
        bench.now.set(now);
        if let Some(Break::LyingClock(from)) = self.state.scenario.broken
            && now >= from
        {
            bench.lie.set(Some((CpuId(0), MS)));
        }
    }

    fn note(&mut self, cpu: u32, event: trace::Event) {
        if let Some(trace) = &mut self.trace {
            trace.events.push((self.state.now, cpu, event));
        }
    }

    fn seat(&mut self, cpu: u32) -> &mut Seat {
        &mut self.state.seats[cpu as usize]
    }

    fn happen(&mut self, event: Event) -> Played {
        let cpu = match event {
            Event::Sample => {
                self.at(self.state.now + MS, event);
                return self.ask(|oracle, state| oracle.sample(state));
            }
            Event::Arrive(cpu) | Event::Tick(cpu) | Event::Kick(cpu) | Event::Due(cpu, _) => cpu,
            Event::Online(cpu) | Event::Leave(cpu, _) | Event::Back(cpu) => cpu,
            // The work of a CPU that is not there is done by another one.
            Event::Timer(cpu, ..) | Event::Start(cpu, _) => self.stand_in(cpu),
        };
        if self.state.seats[cpu as usize].switching && !matches!(event, Event::Arrive(_)) {
            let later = self.state.seats[cpu as usize].arrives;
            self.at(later, event);
            return Ok(());
        }
        match event {
            Event::Arrive(_) => self.arrive(cpu)?,
            Event::Tick(_) => {
                self.at(self.state.now + TICK, event);
                if self.state.seats[cpu as usize].runs.is_none() {
                    return Ok(());
                }
                let irq = self.state.on(cpu);
                self.state.sched.tick(&irq);
            }
            Event::Kick(_) => self.seat(cpu).kicks -= 1,
            Event::Due(_, stretch) => {
                if self.state.seats[cpu as usize].stretch != stretch {
                    return Ok(());
                }
                self.act(cpu)?;
            }
            Event::Timer(_, id, nap) => {
                let member = &self.state.members[id];
                if member.naps == nap && member.doing == Doing::Asleep {
                    self.wake(cpu, id)?;
                }
            }
            Event::Start(_, plan) => self.start(cpu, plan)?,
            Event::Online(_) => self.bring_online(cpu)?,
            Event::Leave(_, span) => self.leave(cpu, span),
            Event::Back(_) => self.come_back(cpu)?,
            Event::Sample => {}
        }
        self.leave_interrupt(cpu)
    }

    fn bring_online(&mut self, cpu: u32) -> Played {
        let irq = self.state.on(cpu);
        let idle = self.state.idles[cpu as usize].clone();
        self.state.sched.bring_online(&irq, idle).expect("a new CPU");
        let (now, clock) = (self.state.now, self.state.clock(cpu));
        let seat = self.seat(cpu);
        (seat.online, seat.since, seat.idle_since) = (true, clock, now);
        if self.state.scenario.ticks {
            // Ticks of different CPUs are spread over the period.
            let phase = TICK * u64::from(cpu + 1) / u64::from(self.state.scenario.cpus);
            self.at(now + phase, Event::Tick(cpu));
        }
        self.changes();
        Ok(())
    }

    fn stand_in(&self, cpu: u32) -> u32 {
        let online = |cpu: &u32| self.state.seats[*cpu as usize].online;
        let cpus = self.state.scenario.cpus;
        (0..cpus).map(|step| (cpu + step) % cpus).find(online).unwrap_or(cpu)
    }

    fn leave(&mut self, cpu: u32, span: Nanos) {
        let irq = self.state.on(cpu);
        let idles = self.state.seats[cpu as usize].runs.is_none();
        if idles && self.state.sched.go_offline(&irq).is_ok() {
            self.seat(cpu).online = false;
            self.at(self.state.now + span, Event::Back(cpu));
            self.changes();
        } else {
            self.at(self.state.now + 50 * US, Event::Leave(cpu, span));
        }
    }

    fn come_back(&mut self, cpu: u32) -> Played {
        let irq = self.state.on(cpu);
        self.state.sched.come_back(&irq).expect("it was away");
        let now = self.state.now;
        let seat = self.seat(cpu);
        (seat.online, seat.idle_since) = (true, now);
        self.changes();
        Ok(())
    }

    /// Sends the kicks, and does what a CPU does on the way out of an interrupt.
    fn leave_interrupt(&mut self, cpu: u32) -> Played {
        self.send_kicks();
        if !self.state.seats[cpu as usize].switching {
            let irq = self.state.on(cpu);
            if self.state.sched.need_resched(&irq) {
                self.decide(cpu, &irq, Reason::Preempt, "preempted")?;
                self.send_kicks();
            }
        }
        self.ask(|oracle, state| oracle.after(state, cpu))
    }

    fn send_kicks(&mut self) {
        let kicked = std::mem::take(&mut *self.state.sched.platform().kicks.borrow_mut());
        for CpuId(cpu) in kicked {
            self.figures.kicks += 1;
            if let Some(Break::LostKicks(from)) = self.state.scenario.broken
                && self.figures.kicks >= from
            {
                continue;
            }
            self.seat(cpu).kicks += 1;
            let travels = self.state.scenario.kick.pick(&mut self.chance);
            self.at(self.state.now + travels, Event::Kick(cpu));
        }
    }

    /// Asks the scheduler, and begins the switch it decides. False: the CPU goes on.
    fn decide(&mut self, cpu: u32, irq: &IrqOff, reason: Reason<World>, why: &'static str) -> Result<bool, Objection> {
        let prev = self.state.seats[cpu as usize].runs;
        let leaves = matches!(reason, Reason::Block(_) | Reason::Exit);
        let reason = match self.state.scenario.broken {
            Some(Break::ForgottenTask(nth)) if !leaves && prev.is_some() => {
                self.preemptions += 1;
                if self.preemptions == nth { Reason::Exit } else { reason }
            }
            _ => reason,
        };
        let Decision::Switch { next, .. } = self.state.sched.schedule(irq, reason) else { return Ok(false) };
        // SAFETY: the task runs, so it is alive.
        let next = unsafe { next.as_ref() }.id;
        let mut next = Some(next).filter(|id| *id < self.state.members.len());
        self.figures.switches += 1;
        if let Some(Break::TaskOnTwoCpus(nth)) = self.state.scenario.broken
            && self.figures.switches >= nth
        {
            next = self
                .state
                .seats
                .iter()
                .zip(0..)
                .find(|(_, other)| *other != cpu)
                .and_then(|(seat, _)| seat.runs)
                .or(next);
        }
        self.ask(|oracle, state| oracle.switches(state, cpu, next))?;
        self.note(cpu, trace::Event::Switch { from: prev, why, to: next });
        let (now, clock) = (self.state.now, self.state.clock(cpu));
        let Seat { since, due, .. } = self.state.seats[cpu as usize];
        let ran = clock - since;
        match prev {
            None => self.seat(cpu).idled += ran,
            Some(id) => {
                let member = &mut self.state.members[id];
                member.served += ran;
                member.left = due.saturating_sub(now);
                // Who may not stay is on no queue until the CPU has left it.
                let stays = member.task.sched.affinity().contains(CpuId(cpu));
                member.waits_since = Some(now).filter(|_| !leaves && stays);
            }
        }
        if let Some(id) = next {
            let member = &mut self.state.members[id];
            self.figures.moved += u64::from(member.last.replace(cpu).is_some_and(|last| last != cpu));
            member.on = Some(cpu);
            member.waited += member.waits_since.take().map_or(0, |since| now - since);
        }
        let takes = self.state.scenario.switch.pick(&mut self.chance);
        let seat = self.seat(cpu);
        *seat = Seat {
            runs: next,
            since: clock,
            idle_since: if next.is_none() { now } else { seat.idle_since },
            switching: true,
            leaving: prev,
            arrives: now + takes,
            stretch: seat.stretch + 1,
            due: 0,
            ..*seat
        };
        self.at(now + takes, Event::Arrive(cpu));
        Ok(true)
    }

    /// The CPU has arrived at its next task.
    fn arrive(&mut self, cpu: u32) -> Played {
        let (now, irq) = (self.state.now, self.state.on(cpu));
        let back = self.state.sched.finish_switch(&irq);
        let seat = self.seat(cpu);
        seat.switching = false;
        let left = seat.leaving.take();
        let given_back = back.as_ref().map(|task| task.id);
        if let Some(id) = left {
            let member = &mut self.state.members[id];
            member.on = None;
            if member.doing == Doing::Awake && member.waits_since.is_none() {
                // It was placed just now.
                member.waits_since = Some(now);
            }
            assert_eq!(given_back.is_some(), member.doing == Doing::Dead, "t{id} is given back when it is dead");
        }
        drop(back);
        let Some(id) = self.state.seats[cpu as usize].runs else { return Ok(()) };
        match self.state.members[id].left {
            0 => self.act(cpu),
            left => {
                self.compute(cpu, left);
                Ok(())
            }
        }
    }

    /// The task of `cpu` computes for so long.
    fn compute(&mut self, cpu: u32, nanos: Nanos) {
        let due = self.state.now + nanos.max(STEP);
        let seat = self.seat(cpu);
        seat.due = due;
        let stretch = seat.stretch;
        self.at(due, Event::Due(cpu, stretch));
    }

    /// The task of `cpu` takes its next step.
    fn act(&mut self, cpu: u32) -> Played {
        let Some(id) = self.state.seats[cpu as usize].runs else { return Ok(()) };
        let member = &mut self.state.members[id];
        let plan = &self.state.plans[member.plan];
        if member.pc == plan.steps.len() {
            member.pc = 0;
            member.rounds += 1;
        }
        let over = plan.times != 0 && member.rounds == plan.times;
        let op = if over { Op::Exit } else { plan.steps[member.pc] };
        member.pc += 1;
        let irq = self.state.on(cpu);
        match op {
            Op::Run(span) => {
                let nanos = span.pick(&mut self.chance);
                self.compute(cpu, nanos);
                return Ok(());
            }
            Op::Sleep(span) => {
                let until = self.state.now + span.pick(&mut self.chance);
                let nap = self.state.members[id].naps;
                self.at(until, Event::Timer(cpu, id, nap));
                return self.block(cpu, id, &irq);
            }
            Op::Send(pipe) => {
                if self.pipe(pipe).messages == PIPE_ROOM {
                    self.pipe(pipe).senders.push_back(id);
                    return self.block_and_retry(cpu, id, &irq);
                }
                self.pipe(pipe).messages += 1;
                if let Some(receiver) = self.pipe(pipe).receivers.pop_front() {
                    self.wake(cpu, receiver)?;
                }
            }
            Op::Receive(pipe) => {
                if self.pipe(pipe).messages == 0 {
                    self.pipe(pipe).receivers.push_back(id);
                    return self.block_and_retry(cpu, id, &irq);
                }
                self.pipe(pipe).messages -= 1;
                if let Some(sender) = self.pipe(pipe).senders.pop_front() {
                    self.wake(cpu, sender)?;
                }
            }
            Op::Yield => {
                if self.decide(cpu, &irq, Reason::Yield, "yields")? {
                    return Ok(());
                }
            }
            Op::Nice(whom, value) => self.set_nice(whom, value, &irq),
            Op::Affinity(whom, mask) => self.set_affinity(whom, mask, &irq),
            Op::Fork(child) => self.start(cpu, child)?,
            Op::Exit => {
                self.state.members[id].doing = Doing::Dead;
                self.changes();
                self.decide(cpu, &irq, Reason::Exit, "exits")?;
                return Ok(());
            }
        }
        self.compute(cpu, STEP);
        Ok(())
    }

    fn pipe(&mut self, pipe: usize) -> &mut Pipe {
        if self.pipes.len() <= pipe {
            self.pipes.resize_with(pipe + 1, Pipe::default);
        }
        &mut self.pipes[pipe]
    }

    fn block(&mut self, cpu: u32, id: usize, irq: &IrqOff) -> Played {
        let sleep = self.state.sched.prepare(irq, SleepKind::Interruptible);
        self.state.members[id].doing = Doing::Asleep;
        self.changes();
        let switched = self.decide(cpu, irq, Reason::Block(sleep), "blocks")?;
        assert!(switched, "t{id} goes to sleep and goes on");
        Ok(())
    }

    fn block_and_retry(&mut self, cpu: u32, id: usize, irq: &IrqOff) -> Played {
        self.state.members[id].pc -= 1;
        self.block(cpu, id, irq)
    }

    /// `cpu` wakes a task that sleeps.
    fn wake(&mut self, cpu: u32, id: usize) -> Played {
        let (now, irq) = (self.state.now, self.state.on(cpu));
        let member = &mut self.state.members[id];
        assert_eq!(member.doing, Doing::Asleep, "t{id} is woken and does not sleep");
        member.doing = Doing::Awake;
        member.naps += 1;
        let being_left = member.on.is_some();
        member.waits_since = Some(now).filter(|_| !being_left);
        let task = member.task.clone();
        self.changes();
        self.figures.wake_ups += 1;
        if self.state.scenario.broken != Some(Break::SwallowedWakeUp(self.figures.wake_ups)) {
            let words = world::words_read();
            let woken = self.state.sched.wake(&irq, &task);
            self.figures.words += world::words_read() - words;
            assert_eq!(woken, Woken::Yes, "t{id} slept");
        }
        let to = task.sched.cpu().0;
        self.note(cpu, trace::Event::Wake { task: id, to: Some(to).filter(|_| !being_left) });
        self.came(id, cpu, to)
    }

    /// A task starts to live.
    fn start(&mut self, cpu: u32, plan: usize) -> Played {
        let (id, now, irq) = (self.state.members.len(), self.state.now, self.state.on(cpu));
        let task = Arc::new(SimTask { sched: SchedTask::new(), id });
        let Task { params, cpus, .. } = self.state.plans[plan];
        self.state.members.push(Member {
            task: task.clone(),
            plan,
            params,
            doing: Doing::Awake,
            on: None,
            last: None,
            waits_since: Some(now),
            waited: 0,
            served: 0,
            pc: 0,
            rounds: 0,
            left: 0,
            naps: 0,
        });
        let spawn = Spawn { params, affinity: cpus.unwrap_or(Mask1024::ALL) };
        if let Err(rejected) = self.state.sched.spawn(&irq, task.clone(), spawn) {
            panic!("t{id} cannot start: {}", rejected.error);
        }
        if self.state.scenario.broken == Some(Break::SecretNice) && id == 0 {
            let nice = Nice::new(19).expect("in range");
            self.state.sched.set_params(&irq, &task, TaskParams { nice, ..params }).expect("a fair task");
        }
        self.changes();
        let to = task.sched.cpu().0;
        self.note(cpu, trace::Event::Spawn { task: id, to });
        self.came(id, cpu, to)
    }

    /// `cpu` has put a task on the queue of `to`.
    fn came(&mut self, id: usize, cpu: u32, to: u32) -> Played {
        self.send_kicks();
        self.ask(|oracle, state| oracle.woken(state, id))?;
        if to != cpu { self.ask(|oracle, state| oracle.after(state, to)) } else { Ok(()) }
    }

    fn whom(&mut self, whom: Whom) -> Option<usize> {
        let id = match whom {
            Whom::Any => self.chance.usize(0..self.state.members.len()),
            Whom::Task(plan) => self.state.members.iter().position(|member| member.plan == plan)?,
        };
        Some(id).filter(|id| self.state.members[*id].doing != Doing::Dead)
    }

    fn set_nice(&mut self, whom: Whom, value: Option<i32>, irq: &IrqOff) {
        let value = value.unwrap_or_else(|| self.chance.i32(-20..=19));
        let Some(id) = self.whom(whom) else { return };
        let member = &mut self.state.members[id];
        member.params.nice = Nice::new(value).expect("it was read in range");
        self.state.sched.set_params(irq, &member.task, member.params).expect("a fair task");
        self.changes();
    }

    fn set_affinity(&mut self, whom: Whom, mask: Option<Mask1024>, irq: &IrqOff) {
        let cpus = self.state.scenario.cpus;
        let mask = mask.unwrap_or_else(|| {
            // One CPU, some, or all.
            let few = self.chance.u32(0..cpus);
            let upto = self.chance.u32(few..cpus);
            if self.chance.bool() { Mask1024::ALL } else { (few..=upto).map(CpuId).collect() }
        });
        let Some(id) = self.whom(whom) else { return };
        let (now, member) = (self.state.now, &mut self.state.members[id]);
        let at = member.task.sched.cpu();
        // Without an online CPU it is refused, and nothing changes.
        let done = self.state.sched.set_affinity(irq, &member.task, mask).is_ok();
        let runs = self.state.seats.iter().any(|seat| seat.runs == Some(id));
        if done && member.on.is_some() && !runs && !mask.contains(at) {
            // Its placement is left to the CPU that is leaving it; until then it is on no queue.
            member.waited += member.waits_since.take().map_or(0, |since| now - since);
        }
        self.changes();
    }
}
