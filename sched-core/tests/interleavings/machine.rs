//! A machine whose CPUs are threads of the checker, and whose every access to a shared word is a point where it may switch.

use std::{
    cell::UnsafeCell,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{
            AtomicU64 as Plain,
            Ordering::{self, Relaxed, SeqCst},
        },
    },
};

use sched_core::{
    Config, CpuId, CpuQueue, Decision, Family, Faults, Gates, IrqOff, Mask64, Nanos, Nice, Platform, RawLock, Reason,
    SchedTask, Scheduler, SleepKind, Spawn, State, Switch, TaskParams, TaskState, Tunables, Woken, Word, task_ptr,
};
use shuttle::{
    sync::atomic::{AtomicBool, AtomicU64},
    thread,
};

/// Words and locks whose every access is a point where another thread may go on.
pub struct Woven;

impl Family for Woven {
    type Word = WovenWord;
    type RawLock = WovenLock;
    type Cell<T> = UnsafeCell<T>;
    fn fence(_: Ordering) {}
}

pub struct WovenWord(AtomicU64);

impl Word for WovenWord {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    fn load(&self, _: Ordering) -> u64 {
        self.0.load(SeqCst)
    }
    fn store(&self, value: u64, _: Ordering) {
        self.0.store(value, SeqCst);
    }
    fn swap(&self, value: u64, _: Ordering) -> u64 {
        self.0.swap(value, SeqCst)
    }
    fn compare_exchange(&self, current: u64, new: u64, _: Ordering, _: Ordering) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, SeqCst, SeqCst)
    }
    fn fetch_add(&self, value: u64, _: Ordering) -> u64 {
        self.0.fetch_add(value, SeqCst)
    }
}

pub struct WovenLock(AtomicBool);

impl RawLock for WovenLock {
    fn new() -> Self {
        Self(AtomicBool::new(false))
    }
    fn lock(&self) {
        while !self.try_lock() {
            thread::yield_now();
        }
    }
    fn try_lock(&self) -> bool {
        !self.0.swap(true, SeqCst)
    }
    unsafe fn unlock(&self) {
        self.0.store(false, SeqCst);
    }
}

shuttle::thread_local! {
    static HERE: Plain = const { Plain::new(0) };
}

#[derive(Default)]
pub struct Board {
    pub now: Plain,
    pub bells: [Plain; 4],
}

impl Platform for Board {
    fn now(&self, _: CpuId) -> Nanos {
        self.now.fetch_add(20_000, Relaxed)
    }
    fn this_cpu(&self) -> CpuId {
        CpuId(HERE.with(|here| here.load(Relaxed)) as u32)
    }
    fn kick(&self, cpu: CpuId) {
        assert_ne!(cpu, self.this_cpu(), "a CPU kicks itself");
        self.bells[cpu.index()].store(1, SeqCst);
    }
}

pub struct Kernel;

impl Config for Kernel {
    type Platform = Board;
    type Sync = Woven;
    type Mask = Mask64;
    type Task = Arc<Task>;
    type Schedstats = Switch;
    type Psi = Switch;
    type Watch = Switch;
    type Features = sched_core::Fixed;
    const HZ: u32 = 250;
}

pub struct Task {
    pub sched: SchedTask<Kernel>,
    /// 0, or 1 + the CPU that is on it.
    on: Plain,
}
task_ptr!(Kernel: Arc<Task> { sched });

pub fn task() -> Arc<Task> {
    Arc::new(Task { sched: SchedTask::new(), on: Plain::new(0) })
}

pub fn only(cpus: &[u32]) -> Mask64 {
    cpus.iter().copied().map(CpuId).collect()
}

pub fn nice(nice: i32) -> TaskParams {
    TaskParams { nice: Nice::new(nice).expect("-20..=19"), ..TaskParams::default() }
}

/// A machine whose CPUs are threads of the checker. Leaked: a schedule is short.
#[derive(Clone, Copy)]
pub struct Machine {
    pub sched: &'static Scheduler<'static, Kernel>,
    cpus: u32,
}

impl Machine {
    pub fn new(cpus: u32) -> Self {
        let queues: Vec<_> = (0..cpus).map(|_| CpuQueue::new(&Tunables::for_cpus(cpus))).collect();
        let gates =
            Gates { schedstats: Switch::new(State::On), psi: Switch::new(State::On), watch: Switch::new(State::On) };
        let sched = Scheduler::new(queues.leak(), Board { now: Plain::new(1_000_000), ..Board::default() }, gates);
        let machine = Self { sched: Box::leak(Box::new(sched.expect("few CPUs"))), cpus };
        for cpu in machine.cpus() {
            let idle = task();
            idle.on.store(u64::from(cpu.id) + 1, Relaxed);
            machine.sched.bring_online(&cpu.irq(), idle).expect("a new CPU");
        }
        machine
    }

    /// The calling thread may act as this CPU.
    pub fn cpu(self, id: u32) -> Cpu {
        Cpu { sched: self.sched, id }
    }

    pub fn cpus(self) -> impl Iterator<Item = Cpu> {
        (0..self.cpus).map(move |id| self.cpu(id))
    }

    pub fn loads(self) -> Vec<u64> {
        (0..self.cpus).map(|cpu| self.sched.nr_running(CpuId(cpu))).collect()
    }

    /// Lets time pass.
    pub fn advance(self, nanos: u64) {
        self.sched.platform().now.fetch_add(nanos, Relaxed);
    }

    /// A task that fell asleep on CPU 0 in debt, and one that runs there and is owed what the first one owes.
    pub fn delayed(self) -> [Arc<Task>; 2] {
        let (debtor, other) = (self.running(), task());
        self.cpu(0).spawn(&other, &[0]);
        self.advance(2_000_000);
        assert!(self.cpu(0).block());
        assert!(self.cpu(0).runs(&other));
        assert!(self.sched.task_load(&self.cpu(0).irq(), &debtor).is_some(), "it owes nothing: the scenario is wrong");
        [debtor, other]
    }

    /// A task that runs on CPU 0 and may run there only.
    pub fn running(self) -> Arc<Task> {
        let task = task();
        self.cpu(0).spawn(&task, &[0]);
        self.cpu(0).leave_interrupt();
        assert!(self.cpu(0).runs(&task));
        task
    }

    /// After all threads have ended: nothing is forgotten, and each task runs and exits. Gives the CPUs they ran on.
    pub fn drain(self, tasks: &[Arc<Task>]) -> Vec<u32> {
        for (cpu, load) in self.cpus().zip(self.loads()) {
            let asked = self.sched.need_resched(&cpu.irq());
            assert!(load == 0 || asked || !self.sched.is_idle(&cpu.irq()), "CPU {} idles beside {load} tasks", cpu.id);
            assert_eq!(self.sched.faults(&cpu.irq(), CpuId(cpu.id)), Faults::default());
        }
        // Idle CPUs take in who was woken for them.
        self.cpus().for_each(Cpu::leave_interrupt);
        let alive = tasks.iter().filter(|task| task.sched.state() == TaskState::Runnable).count() as u64;
        assert_eq!(self.loads().iter().sum::<u64>(), alive, "runnable tasks and tasks on queues");
        let mut ran_on = vec![u32::MAX; tasks.len()];
        for cpu in self.cpus() {
            loop {
                cpu.leave_interrupt();
                let Some(id) = tasks.iter().position(|task| cpu.runs(task)) else { break };
                ran_on[id] = cpu.id;
                cpu.switch(Reason::Exit);
            }
        }
        assert_eq!(self.loads(), vec![0; self.cpus as usize]);
        for task in tasks {
            let owned = matches!(task.sched.state(), TaskState::Blocked(_));
            assert_eq!(Arc::strong_count(task), 1 + usize::from(owned), "{:?}", task.sched);
        }
        ran_on
    }
}

#[derive(Clone, Copy)]
pub struct Cpu {
    sched: &'static Scheduler<'static, Kernel>,
    pub id: u32,
}

impl Cpu {
    pub fn irq(self) -> IrqOff {
        HERE.with(|here| here.store(u64::from(self.id), Relaxed));
        // SAFETY: each scenario lets one thread at a time be a CPU.
        unsafe { IrqOff::assert() }
    }

    pub fn spawn(self, task: &Arc<Task>, cpus: &[u32]) {
        let spawn = Spawn { affinity: only(cpus), ..Spawn::default() };
        self.sched.spawn(&self.irq(), task.clone(), spawn).expect("a new task");
    }

    pub fn runs(self, task: &Arc<Task>) -> bool {
        self.sched.current(&self.irq()) == Some(NonNull::from(&**task))
    }

    pub fn wake(self, task: &Task) -> Woken {
        self.sched.wake(&self.irq(), task)
    }

    pub fn set_affinity(self, task: &Task, cpus: &[u32]) {
        self.sched.set_affinity(&self.irq(), task, only(cpus)).expect("online");
    }

    /// True if the CPU went to another task.
    pub fn switch(self, reason: Reason<Kernel>) -> bool {
        match self.sched.schedule(&self.irq(), reason) {
            Decision::Stay => false,
            Decision::Switch { prev, next } => {
                // SAFETY: the scenario holds its tasks, and idle tasks stay for ever.
                let (prev, next) = unsafe { (prev.as_ref(), next.as_ref()) };
                let me = u64::from(self.id) + 1;
                assert_eq!(next.on.swap(me, SeqCst), 0, "a task on two CPUs");
                thread::yield_now();
                assert_eq!(prev.on.swap(0, SeqCst), me, "somebody else left it");
                drop(self.sched.finish_switch(&self.irq()));
                true
            }
        }
    }

    pub fn block(self) -> bool {
        let sleep = self.sched.prepare(&self.irq(), SleepKind::Interruptible);
        self.switch(Reason::Block(sleep))
    }

    pub fn leave_interrupt(self) {
        while self.sched.need_resched(&self.irq()) {
            self.switch(Reason::Preempt);
        }
    }
}
