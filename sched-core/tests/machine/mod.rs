//! # What it is
//! A machine of virtual CPUs in one host thread, for tests of the public interface.
//! A test says which CPU does what next, so every interleaving of whole calls can be played, and played again.
//!
//! # How it works
//! [`Machine`] owns a scheduler; [`Machine::cpu`] lends one CPU of it.
//! A context switch is two steps, [`Cpu::leave`] and [`Cpu::arrive`], and other CPUs may act in between.
//! Each CPU has a clock of its own that only the test moves.
//! [`sim`] drives the same machine through time: scripts, ticks, timers, and kicks that take a while.
//!
//! # Invariants
//! Checked at each step, so every test that uses the machine tests them:
//! 1. A task is on at most one CPU, from the decision that picks it until its CPU has arrived elsewhere.
//! 2. The scheduler holds at most one lock at a time, and takes none twice ([`watched`]).
//! 3. A kick goes to another CPU, with no lock held, and finds the request there already ([`board`]).
//! 4. A decision answers the request.
//! 5. A CPU goes on only with a task whose mask allows it, unless no CPU of that mask is online.
//! 6. A task is given back only by the CPU that left it for good.
#![allow(dead_code, reason = "each test uses its part")]

pub mod board;
pub mod sim;
pub mod watched;

use std::{
    cell::Cell,
    fmt,
    marker::PhantomData,
    mem::offset_of,
    ops::Deref,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use board::Board;
use sched_core::{
    Algorithm, Config, CpuId, CpuQueue, Decision, Error, Feature, FeatureError, Gate, Gates, IrqOff, Mask256, Nanos,
    Never, Nice, Place, Reason, SchedTask, Scheduler, Signals, Sleep, SleepKind, Spawn, State, Switch, TaskParams,
    TaskPtr, TaskState, TaskStats, Tunables, Woken,
};
use watched::Watched;

/// Where the clocks start. Not 0, which would look like a stamp that was never set.
pub const START: Nanos = 1_000_000_000;
pub const MS: Nanos = 1_000_000;
pub const TICK: Nanos = 4 * MS;

/// A gate that can be made.
pub trait Made: Gate {
    fn made(state: State) -> Self;
}
impl Made for Switch {
    fn made(state: State) -> Self {
        Self::new(state)
    }
}
impl Made for Never {
    fn made(_: State) -> Self {
        Self
    }
}

/// The configuration of a machine: what is compiled in.
pub struct Built<S, P>(PhantomData<fn() -> (S, P)>);

impl<S: Made, P: Made> Config for Built<S, P> {
    type Platform = Board<Self>;
    type Sync = Watched;
    type Mask = Mask256;
    type Task = Handle<Self>;
    type Schedstats = S;
    type Psi = P;
    type Watch = Switch;
    type Features = sched_core::Switchable;
    const HZ: u32 = 250;
}

/// Schedstats and pressure compiled in.
pub type Usual = Built<Switch, Switch>;

/// The embedder's task.
pub struct Task<C: Config = Usual> {
    pub sched: SchedTask<C>,
    pub name: String,
    /// 0, or 1 + the CPU that is on the task.
    on: AtomicU64,
}

impl<C: Config> Task<C> {
    pub fn state(&self) -> TaskState {
        self.sched.state()
    }

    /// The CPU that is on the task.
    pub fn on(&self) -> Option<CpuId> {
        self.on.load(Relaxed).checked_sub(1).map(|cpu| CpuId(cpu as u32))
    }
}

impl<C: Config> fmt::Debug for Task<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?} on {:?})", self.name, self.state(), self.sched.cpu())
    }
}

/// The embedder's owning pointer.
pub struct Handle<C: Config>(pub Arc<Task<C>>);

impl<C: Config> Deref for Handle<C> {
    type Target = Arc<Task<C>>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

// SAFETY: the count that `Arc::into_raw` leaves behind keeps the task in place, and `offset_of!` leads to the field and back.
unsafe impl<C: Config> TaskPtr<C> for Handle<C> {
    type Target = Task<C>;

    fn into_raw(self) -> NonNull<SchedTask<C>> {
        let task = Arc::into_raw(self.0).cast_mut();
        // SAFETY: `Arc::into_raw` is never null, and the field lies inside the task.
        unsafe { NonNull::new_unchecked(task).byte_add(offset_of!(Task<C>, sched)).cast() }
    }

    unsafe fn from_raw(raw: NonNull<SchedTask<C>>) -> Self {
        // SAFETY: `raw` came from `into_raw`, once.
        Self(unsafe { Arc::from_raw(Self::target(raw).as_ptr()) })
    }

    fn target(raw: NonNull<SchedTask<C>>) -> NonNull<Task<C>> {
        // SAFETY: `raw` points to the field of a whole task.
        unsafe { raw.byte_sub(offset_of!(Task<C>, sched)).cast() }
    }

    fn field(task: &Task<C>) -> NonNull<SchedTask<C>> {
        // SAFETY: the field lies inside the task; the pointer keeps the whole task's provenance.
        unsafe { NonNull::from(task).byte_add(offset_of!(Task<C>, sched)).cast() }
    }
}

/// Some CPUs and their scheduler. It is leaked: tests are short, and the scheduler's lifetime is not their subject.
pub struct Machine<S: Made = Switch, P: Made = Switch> {
    pub sched: &'static Scheduler<'static, Built<S, P>>,
    idles: Vec<Arc<Task<Built<S, P>>>>,
    leaving: Vec<Cell<Option<Leaving<S, P>>>>,
}

/// The task a CPU is leaving.
struct Leaving<S: Made, P: Made> {
    task: NonNull<Task<Built<S, P>>>,
    dies: bool,
}
impl<S: Made, P: Made> Clone for Leaving<S, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S: Made, P: Made> Copy for Leaving<S, P> {}

/// The usual machine: schedstats and pressure compiled in and on.
pub fn machine(cpus: u32) -> Machine {
    Machine::new(cpus, State::On)
}

impl<S: Made, P: Made> Machine<S, P> {
    /// `cpus` CPUs, all online.
    pub fn new(cpus: u32, stats: State) -> Self {
        Self::with_clocks(vec![START; cpus as usize], stats)
    }

    /// One CPU per clock, all online.
    pub fn with_clocks(clocks: Vec<Nanos>, stats: State) -> Self {
        let machine = Self::offline(clocks, stats);
        for cpu in machine.cpus() {
            cpu.bring_online();
        }
        machine
    }

    /// `cpus` CPUs, all online, that share by `algorithm`.
    pub fn under(algorithm: Algorithm, cpus: u32) -> Self {
        let machine = Self::made_of(vec![START; cpus as usize], State::On, &Tunables::for_cpus(cpus).with(algorithm));
        for cpu in machine.cpus() {
            cpu.bring_online();
        }
        machine
    }

    /// One CPU per clock, none online.
    pub fn offline(clocks: Vec<Nanos>, stats: State) -> Self {
        let cpus = clocks.len() as u32;
        Self::made_of(clocks, stats, &Tunables::for_cpus(cpus))
    }

    /// `cpus` CPUs, all online, that share with each other what `place` says.
    pub fn placed(cpus: u32, place: impl Fn(CpuId) -> Place) -> Self {
        let tunables = Tunables::for_cpus(cpus);
        let queues = (0..cpus).map(|cpu| CpuQueue::placed(&tunables, CpuId(cpu), cpus, &place)).collect();
        let machine = Self::made_with(vec![START; cpus as usize], State::On, queues);
        for cpu in machine.cpus() {
            cpu.bring_online();
        }
        machine
    }

    fn made_of(clocks: Vec<Nanos>, stats: State, tunables: &Tunables) -> Self {
        let queues = clocks.iter().map(|_| CpuQueue::new(tunables)).collect();
        Self::made_with(clocks, stats, queues)
    }

    fn made_with(clocks: Vec<Nanos>, stats: State, queues: Vec<CpuQueue<Built<S, P>>>) -> Self {
        let cpus = clocks.len() as u32;
        let gates = Gates { schedstats: S::made(stats), psi: P::made(stats), watch: Switch::new(stats) };
        let sched = Scheduler::new(queues.leak(), Board::new(clocks), gates).expect("few CPUs");
        let sched: &'static Scheduler<'static, Built<S, P>> = Box::leak(Box::new(sched));
        sched.platform().belongs_to(sched);
        let leaving = (0..cpus).map(|_| Cell::new(None)).collect();
        Self { sched, idles: (0..cpus).map(|cpu| Self::task(&format!("idle{cpu}"))).collect(), leaving }
    }

    /// A task that is not spawned yet.
    pub fn task(name: &str) -> Arc<Task<Built<S, P>>> {
        Arc::new(Task { sched: SchedTask::new(), name: name.into(), on: AtomicU64::new(0) })
    }

    pub fn cpu(&self, cpu: u32) -> Cpu<'_, S, P> {
        assert!((cpu as usize) < self.leaving.len());
        Cpu { machine: self, id: CpuId(cpu) }
    }

    pub fn cpus(&self) -> impl Iterator<Item = Cpu<'_, S, P>> {
        (0..self.leaving.len() as u32).map(|cpu| self.cpu(cpu))
    }

    /// The idle task of `cpu`.
    pub fn idle(&self, cpu: u32) -> &Arc<Task<Built<S, P>>> {
        &self.idles[cpu as usize]
    }

    /// Moves all clocks.
    pub fn advance(&self, nanos: Nanos) {
        for clock in &self.sched.platform().clocks {
            clock.set(clock.get() + nanos);
        }
    }

    /// The CPUs kicked since the last call, in order.
    pub fn kicks(&self) -> Vec<u32> {
        self.sched.platform().take_kicks().into_iter().map(|cpu| cpu.0).collect()
    }

    /// Runnable tasks of each CPU.
    pub fn loads(&self) -> Vec<u64> {
        self.cpus().map(|cpu| self.sched.nr_running(cpu.id)).collect()
    }

    /// The load of `cpu`, asked by CPU 0.
    pub fn load(&self, cpu: CpuId) -> Signals {
        self.sched.load(&self.cpu(0).irq(), cpu).expect("a CPU")
    }

    /// The load of `task`, asked by CPU 0; none while it is on no queue.
    pub fn load_of(&self, task: &Task<Built<S, P>>) -> Option<Signals> {
        self.sched.task_load(&self.cpu(0).irq(), task)
    }

    pub fn feature(&self, feature: Feature) -> bool {
        self.sched.feature(&self.cpu(0).irq(), feature)
    }

    pub fn set_feature(&self, feature: Feature, on: bool) -> Result<(), FeatureError> {
        self.sched.set_feature(&self.cpu(0).irq(), feature, on)
    }

    pub fn write_features(&self, written: &[u8]) -> Result<usize, FeatureError> {
        self.sched.write_features(&self.cpu(0).irq(), written)
    }

    /// The statistics of `task`, asked by CPU 0.
    pub fn stats(&self, task: &Task<Built<S, P>>) -> TaskStats {
        self.sched.task_stats(&self.cpu(0).irq(), task)
    }
}

/// One CPU, with interrupts off.
pub struct Cpu<'m, S: Made = Switch, P: Made = Switch> {
    machine: &'m Machine<S, P>,
    pub id: CpuId,
}

impl<S: Made, P: Made> Cpu<'_, S, P> {
    /// From here on this CPU acts.
    fn irq(&self) -> IrqOff {
        self.machine.sched.platform().here.set(self.id);
        // SAFETY: one thread is all CPUs, one call after another, and nothing interrupts it.
        unsafe { IrqOff::assert() }
    }

    fn leaving(&self) -> &Cell<Option<Leaving<S, P>>> {
        &self.machine.leaving[self.id.index()]
    }

    /// Between `leave` and `arrive`.
    pub fn is_leaving(&self) -> bool {
        self.leaving().get().is_some()
    }

    fn ready(&self) -> IrqOff {
        assert!(!self.is_leaving(), "{:?} is in the middle of a switch", self.id);
        self.irq()
    }

    pub fn bring_online(&self) {
        let idle = self.machine.idle(self.id.0);
        self.machine.sched.bring_online(&self.ready(), Handle(idle.clone())).expect("a new CPU");
        idle.on.store(u64::from(self.id.0) + 1, Relaxed);
    }

    pub fn go_offline(&self) -> Result<(), Error> {
        self.machine.sched.go_offline(&self.ready())
    }

    pub fn come_back(&self) -> Result<(), Error> {
        self.machine.sched.come_back(&self.ready())
    }

    /// A new task with default parameters, allowed everywhere.
    pub fn spawn(&self, name: &str) -> Arc<Task<Built<S, P>>> {
        self.spawn_with(name, Spawn::default())
    }

    /// A new task for `cpus`.
    pub fn spawn_on(&self, name: &str, cpus: &[u32]) -> Arc<Task<Built<S, P>>> {
        self.spawn_with(name, Spawn { affinity: mask(cpus), ..Spawn::default() })
    }

    pub fn spawn_with(&self, name: &str, spawn: Spawn<Built<S, P>>) -> Arc<Task<Built<S, P>>> {
        let task = Machine::<S, P>::task(name);
        self.try_spawn(&task, spawn).expect("a new task");
        task
    }

    pub fn try_spawn(&self, task: &Arc<Task<Built<S, P>>>, spawn: Spawn<Built<S, P>>) -> Result<(), Error> {
        let count = Arc::strong_count(task);
        self.machine.sched.spawn(&self.ready(), Handle(task.clone()), spawn).map_err(|rejected| {
            assert!(Arc::ptr_eq(&rejected.task, task), "another task came back");
            assert_eq!(Arc::strong_count(task), count + 1);
            rejected.error
        })
    }

    /// A new stop task, asleep.
    pub fn spawn_stop(&self, name: &str) -> Result<Arc<Task<Built<S, P>>>, Error> {
        let task = Machine::<S, P>::task(name);
        self.machine.sched.spawn_stop(&self.ready(), Handle(task.clone())).map_err(|rejected| rejected.error)?;
        Ok(task)
    }

    pub fn prepare(&self) -> Sleep<Built<S, P>> {
        self.prepare_as(SleepKind::Interruptible)
    }

    pub fn prepare_as(&self, kind: SleepKind) -> Sleep<Built<S, P>> {
        self.machine.sched.prepare(&self.ready(), kind)
    }

    /// Decides. True if the CPU is to switch; then it takes no part until [`arrive`](Self::arrive).
    pub fn leave(&self, reason: Reason<Built<S, P>>) -> bool {
        let irq = self.ready();
        let was = self.machine.sched.current(&irq).expect("online");
        let (dies, sleeps) = (matches!(reason, Reason::Exit), matches!(reason, Reason::Block(_)));
        match self.machine.sched.schedule(&irq, reason) {
            Decision::Stay => {
                assert!(!dies, "a task outlives its exit");
                if !sleeps {
                    self.check_decision();
                }
                false
            }
            Decision::Switch { prev, next } => {
                assert_eq!(prev, was, "leaves a task that is not current");
                // SAFETY: tasks are alive while the machine knows them: `prev` until `arrive`, `next` while current.
                let (prev, next) = unsafe { (prev.as_ref(), next.as_ref()) };
                assert_eq!(prev.on(), Some(self.id), "leaves a task it is not on");
                assert_eq!(next.on(), None, "{:?} goes to {next:?}, which a CPU is on", self.id);
                next.on.store(u64::from(self.id.0) + 1, Relaxed);
                self.leaving().set(Some(Leaving { task: NonNull::from(prev), dies }));
                self.check_decision();
                true
            }
        }
    }

    fn check_decision(&self) {
        let irq = self.irq();
        assert!(!self.machine.sched.need_resched(&irq), "a decision leaves the request pending");
        let current = self.machine.sched.current(&irq).expect("online");
        // SAFETY: the current task is alive.
        let current = unsafe { current.as_ref() };
        let mask = current.sched.affinity();
        let homeless = !self.machine.sched.online().any(|cpu| mask.contains(cpu));
        assert!(
            mask.contains(self.id) || homeless || self.is_idle(),
            "{:?} goes on with {current:?}, whose mask forbids it",
            self.id
        );
    }

    /// Finishes the switch. Returns a task that is dead.
    pub fn arrive(&self) -> Option<Arc<Task<Built<S, P>>>> {
        let left = self.leaving().take().expect("in the middle of a switch");
        // SAFETY: the task is alive until `finish_switch`.
        unsafe { left.task.as_ref() }.on.store(0, Relaxed);
        let back = self.machine.sched.finish_switch(&self.irq());
        assert_eq!(back.as_ref().map(|task| NonNull::from(&***task)), left.dies.then_some(left.task));
        assert!(self.machine.sched.finish_switch(&self.irq()).is_none(), "finished twice");
        back.map(|task| task.0)
    }

    /// Decides, and switches if that is the decision. Returns a task that is dead.
    pub fn switch(&self, reason: Reason<Built<S, P>>) -> Option<Arc<Task<Built<S, P>>>> {
        if self.leave(reason) { self.arrive() } else { None }
    }

    /// The current task sleeps. False if a wake-up came first.
    pub fn block(&self) -> bool {
        let sleep = self.prepare();
        let left = self.leave(Reason::Block(sleep));
        if left {
            self.arrive();
        }
        left
    }

    /// The current task ends.
    pub fn exit(&self) -> Arc<Task<Built<S, P>>> {
        self.switch(Reason::Exit).expect("given back")
    }

    /// What a kernel does on the way out of an interrupt.
    pub fn leave_interrupt(&self) {
        while self.need_resched() {
            self.switch(Reason::Preempt);
        }
    }

    pub fn wake(&self, task: &Task<Built<S, P>>) -> Woken {
        self.machine.sched.wake(&self.ready(), task)
    }

    pub fn tick(&self) {
        self.machine.sched.tick(&self.ready());
    }

    pub fn need_resched(&self) -> bool {
        self.machine.sched.need_resched(&self.irq())
    }

    pub fn set_affinity(&self, task: &Task<Built<S, P>>, cpus: &[u32]) -> Result<(), Error> {
        self.machine.sched.set_affinity(&self.ready(), task, mask(cpus))
    }

    pub fn set_params(&self, task: &Task<Built<S, P>>, params: TaskParams) -> Result<(), Error> {
        self.machine.sched.set_params(&self.ready(), task, params)
    }

    /// Moves this CPU's clock.
    pub fn advance(&self, nanos: Nanos) {
        let clock = &self.machine.sched.platform().clocks[self.id.index()];
        clock.set(clock.get() + nanos);
    }

    pub fn now(&self) -> Nanos {
        self.machine.sched.platform().clocks[self.id.index()].get()
    }

    pub fn runs(&self, task: &Task<Built<S, P>>) -> bool {
        self.machine.sched.current(&self.irq()) == Some(NonNull::from(task))
    }

    pub fn is_idle(&self) -> bool {
        self.machine.sched.is_idle(&self.irq())
    }

    /// The name of the current task.
    pub fn current(&self) -> String {
        let current = self.machine.sched.current(&self.irq()).expect("online");
        // SAFETY: the current task is alive.
        unsafe { current.as_ref() }.name.clone()
    }

    /// Ticks until `task` runs.
    pub fn tick_until_runs(&self, task: &Task<Built<S, P>>) {
        for _ in 0..1000 {
            if self.runs(task) {
                return;
            }
            self.machine.advance(TICK);
            self.tick();
            self.leave_interrupt();
        }
        panic!("{task:?} does not come to run on {:?}", self.id);
    }
}

pub fn mask(cpus: &[u32]) -> Mask256 {
    cpus.iter().copied().map(CpuId).collect()
}

pub fn nice(nice: i32) -> TaskParams {
    TaskParams { nice: Nice::new(nice).expect("-20..=19"), ..TaskParams::default() }
}
