//! # What it is
//! A kernel of host threads: each is one CPU, tasks are state machines that whoever runs them steps.
//!
//! # How it works
//! A task either holds a token or waits for one: it takes a token from its mailbox, works, and passes it to somebody else.
//! Tokens are never lost, so somebody can always run; if nothing moves for a minute, a wake-up was lost, and the watchdog says where.
//! Beside that, tasks change each other's masks and nice values, wake stop tasks, start tasks and exit.
//! An idle CPU waits for its kick and nothing else.
//!
//! # Invariants
//! 1. A task is on one CPU at a time: its `on` word is claimed before its first step and freed after its last.
//! 2. A task that is picked after a change of its mask was confirmed is on a CPU of that mask.
//! 3. Every task is given back once, and only when no CPU is on it.

use std::{
    hint,
    sync::{
        Arc, Barrier,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::{Duration, Instant},
};

use sched_core::{
    CpuId, CpuQueue, Decision, Error, Family, Faults, Gates, IrqOff, Mask256, Nice, Reason, Scheduler, SleepKind,
    Spawn, State, Switch, TaskParams, TaskState, Tunables,
};

use super::{
    jitter::{self, perhaps},
    kernel::{CLOSED, Cpus, HERE, Handle, Kernel, Kind, Local, Task},
};

/// How long nothing may move.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub cpus: u32,
    /// Tasks at the start.
    pub tasks: usize,
    /// Tasks in all.
    pub most: usize,
    /// Steps in all.
    pub steps: u64,
    pub seed: u64,
}

struct World<'a, F: Family> {
    plan: Plan,
    sched: Scheduler<'a, Kernel<F>>,
    tasks: Vec<Arc<Task<F>>>,
    stops: Vec<Arc<Task<F>>>,
    idles: Vec<Arc<Task<F>>>,
    started: AtomicUsize,
    ended: AtomicUsize,
    steps: AtomicU64,
    /// Counts confirmations of masks.
    stamp: AtomicU64,
    /// Counts wake-ups that came while a CPU was leaving the task.
    handed_over: AtomicU64,
    stopping: AtomicBool,
    told: AtomicBool,
    failed: AtomicBool,
    barrier: Barrier,
}

/// Plays `plan`. Panics if a task is on two CPUs, lost, or given back wrongly.
pub fn play<F: Family>(plan: Plan) {
    let tunables = Tunables::for_cpus(plan.cpus);
    let queues: Vec<CpuQueue<Kernel<F>>> = (0..plan.cpus).map(|_| CpuQueue::new(&tunables)).collect();
    let gates =
        Gates { schedstats: Switch::new(State::On), psi: Switch::new(State::On), watch: Switch::new(State::On) };
    let world = World {
        plan,
        sched: Scheduler::new(&queues, Cpus::new(plan.cpus), gates).expect("few CPUs"),
        tasks: (0..plan.most).map(|_| Task::new(Kind::Fair)).collect(),
        stops: (0..plan.cpus).map(|_| Task::new(Kind::Stop)).collect(),
        idles: (0..plan.cpus).map(|_| Task::new(Kind::Idle)).collect(),
        started: AtomicUsize::new(0),
        ended: AtomicUsize::new(0),
        steps: AtomicU64::new(0),
        stamp: AtomicU64::new(1),
        handed_over: AtomicU64::new(0),
        stopping: AtomicBool::new(false),
        told: AtomicBool::new(false),
        failed: AtomicBool::new(false),
        barrier: Barrier::new(plan.cpus as usize),
    };
    thread::scope(|scope| {
        for cpu in 0..plan.cpus {
            let world = &world;
            scope.spawn(move || {
                let _guard = FailWith(&world.failed);
                Cpu::new(world, cpu).run();
            });
        }
        world.watch();
    });
    world.check_end();
}

/// Stops everybody if the thread panics.
struct FailWith<'a>(&'a AtomicBool);

impl Drop for FailWith<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, SeqCst);
        }
    }
}

impl<F: Family> World<'_, F> {
    fn over(&self) -> bool {
        self.failed.load(SeqCst) || self.ended.load(SeqCst) == self.started.load(SeqCst) && self.stopping.load(SeqCst)
    }

    fn watch(&self) {
        let (mut seen, mut since) = (0, Instant::now());
        while !self.over() {
            thread::sleep(Duration::from_millis(2));
            let steps = self.steps.load(Relaxed) + self.ended.load(Relaxed) as u64;
            if steps != seen {
                (seen, since) = (steps, Instant::now());
            } else if since.elapsed() > PATIENCE {
                self.report();
                // The CPUs hang and cannot be joined.
                std::process::abort();
            }
        }
    }

    fn report(&self) {
        eprintln!(
            "nothing moves in {:?}; {} of {} ended",
            self.plan,
            self.ended.load(SeqCst),
            self.started.load(SeqCst)
        );
        for cpu in 0..self.plan.cpus as usize {
            let load = self.sched.nr_running(CpuId(cpu as u32));
            eprintln!("CPU {cpu}: {load} runnable, kicked {}", self.sched.platform().bells[cpu].load(SeqCst));
        }
        for (id, task) in self.tasks.iter().chain(&self.stops).enumerate() {
            let mailbox = task.mailbox.load(SeqCst);
            eprintln!("task {id}: {:?}, mailbox {mailbox:x}, on {}", task.sched, task.on.load(SeqCst));
        }
    }

    fn check_end(&self) {
        let started = self.started.load(SeqCst);
        for (id, task) in self.tasks.iter().enumerate() {
            assert_eq!(task.given_back.load(SeqCst), u64::from(id < self.started_fair()), "task {id} of {started}");
            assert_eq!(Arc::strong_count(task), 1, "task {id}");
            assert_eq!(task.on.load(SeqCst), 0, "task {id}");
        }
        for task in &self.stops {
            assert_eq!((task.given_back.load(SeqCst), Arc::strong_count(task)), (1, 1));
        }
        for cpu in 0..self.plan.cpus {
            assert_eq!(self.sched.nr_running(CpuId(cpu)), 0);
            // SAFETY: no CPU runs any more.
            let irq = unsafe { IrqOff::assert() };
            assert_eq!(self.sched.faults(&irq, CpuId(cpu)), Faults::default());
        }
        let (mut delay, mut slices) = (0, 0);
        for task in self.tasks.iter().chain(&self.stops) {
            // SAFETY: as above.
            let stats = self.sched.task_stats(&unsafe { IrqOff::assert() }, task);
            delay += stats.run_delay;
            slices += stats.pcount;
        }
        let cpus = (0..self.plan.cpus).filter_map(|cpu| self.sched.cpu_stats(CpuId(cpu)));
        let sums = cpus.fold((0, 0), |sum, cpu| (sum.0 + cpu.run_delay, sum.1 + cpu.pcount));
        assert_eq!((delay, slices), sums, "what tasks count and what CPUs count");
        assert!(slices > self.plan.steps / 100, "hardly a switch");
        assert!(self.handed_over.load(Relaxed) > 0, "the race that all this is about did not happen");
    }

    fn started_fair(&self) -> usize {
        self.started.load(SeqCst) - self.stops.len()
    }
}

/// One thread.
struct Cpu<'a, F: Family> {
    world: &'a World<'a, F>,
    sched: &'a Scheduler<'a, Kernel<F>>,
    id: CpuId,
    irq: IrqOff,
    rng: fastrand::Rng,
}

impl<'a, F: Family> Cpu<'a, F> {
    fn new(world: &'a World<'a, F>, cpu: u32) -> Self {
        HERE.set(cpu);
        let seed = world.plan.seed * 64 + u64::from(cpu);
        jitter::seed(seed);
        // SAFETY: this thread alone is this CPU, and nothing interrupts it.
        let irq = unsafe { IrqOff::assert() };
        Self { world, sched: &world.sched, id: CpuId(cpu), irq, rng: fastrand::Rng::with_seed(seed) }
    }

    fn run(mut self) {
        let idle = &self.world.idles[self.id.index()];
        idle.on.store(u64::from(self.id.0) + 1, SeqCst);
        self.sched.bring_online(&self.irq, Handle(idle.clone())).expect("a new CPU");
        self.world.started.fetch_add(1, SeqCst);
        self.sched.spawn_stop(&self.irq, Handle(self.world.stops[self.id.index()].clone())).expect("the first");
        self.world.barrier.wait();
        if self.id.0 == 0 {
            (0..self.world.plan.tasks).for_each(|_| self.start_one());
        }
        // Nobody ends before everybody is there.
        self.world.barrier.wait();
        self.leave_interrupt();
        let mut turns = 0_u32;
        while !self.world.over() {
            turns = turns.wrapping_add(1);
            let kicked = self.sched.platform().bells[self.id.index()].swap(false, SeqCst);
            if kicked {
                self.leave_interrupt();
            } else if self.sched.is_idle(&self.irq) {
                hint::spin_loop();
                thread::yield_now();
            } else {
                self.step();
                if turns.is_multiple_of(8) {
                    self.sched.tick(&self.irq);
                }
                self.leave_interrupt();
            }
        }
    }

    fn current(&self) -> &'a Task<F> {
        let current = self.sched.current(&self.irq).expect("online");
        // SAFETY: the world holds every task until the threads have ended.
        unsafe { current.as_ref() }
    }

    fn leave_interrupt(&mut self) {
        while self.sched.need_resched(&self.irq) {
            self.switch(Reason::Preempt);
        }
    }

    fn switch(&mut self, reason: Reason<Kernel<F>>) {
        let me = u64::from(self.id.0) + 1;
        let stamp = self.world.stamp.load(SeqCst);
        match self.sched.schedule(&self.irq, reason) {
            Decision::Stay => {}
            Decision::Switch { prev, next } => {
                // SAFETY: the world holds every task until the threads have ended.
                let (prev, next) = unsafe { (prev.as_ref(), next.as_ref()) };
                let was = next.on.swap(me, SeqCst);
                assert_eq!(was, 0, "a task on two CPUs");
                self.check_mask(next, stamp);
                // Now the CPU saves `prev`, which takes its time.
                (0..self.rng.u32(0..8)).for_each(|_| perhaps());
                if self.rng.u8(0..16) == 0 {
                    thread::yield_now();
                }
                assert_eq!(prev.on.swap(0, SeqCst), me, "somebody else left it");
                if prev.sched.state() == TaskState::Waking {
                    self.world.handed_over.fetch_add(1, Relaxed);
                }
                if let Some(dead) = self.sched.finish_switch(&self.irq) {
                    assert!(std::ptr::eq(&*dead.0, prev), "another one died");
                    assert_eq!(dead.0.on.load(SeqCst), 0, "given back with a CPU on it");
                    dead.0.given_back.fetch_add(1, SeqCst);
                    drop(dead);
                    self.world.ended.fetch_add(1, SeqCst);
                }
            }
        }
    }

    /// I2. `stamp` is from before the decision.
    fn check_mask(&self, next: &Task<F>, stamp: u64) {
        let confirmed = next.confirmed.load(SeqCst);
        let (mask, when) = (confirmed & 0xff, confirmed >> 8);
        if next.kind == Kind::Fair && when < stamp {
            assert_ne!(mask & 1 << self.id.0, 0, "picked on {:?}, mask {mask:b}", self.id);
        }
    }

    /// What lies on the stack of `task`, which this CPU is on.
    fn with_local<R>(&self, task: &Task<F>, f: impl FnOnce(&mut Local<F>) -> R) -> R {
        debug_assert_eq!(task.on.load(Relaxed), u64::from(self.id.0) + 1);
        // SAFETY: this CPU is on the task (I1), and `f` does not switch.
        f(unsafe { &mut *task.local.get() })
    }

    /// One step of the current task.
    fn step(&mut self) {
        let me = self.current();
        if self.world.steps.fetch_add(1, SeqCst) >= self.world.plan.steps {
            self.world.stopping.store(true, SeqCst);
        }
        if self.world.stopping.load(SeqCst) {
            self.tell_everybody();
            return self.exit(me);
        }
        let holds = self.with_local(me, |local| {
            local.steps += 1;
            local.token
        });
        if me.kind == Kind::Stop || !holds {
            return self.wait(me);
        }
        let other = self.somebody();
        match self.rng.u32(0..32) {
            0..8 => {}
            8..20 => {
                let passed = self.pass(other);
                self.with_local(me, |local| local.token = !passed);
            }
            20..24 => self.change_mask(other),
            24 | 25 => {
                let nice = Nice::new(self.rng.i32(-20..20)).expect("in range");
                match self.sched.set_params(&self.irq, other, TaskParams { nice, ..TaskParams::default() }) {
                    // Its spawn may not have come to the owner yet.
                    Ok(()) | Err(Error::NotOurs) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            26 => _ = self.sched.task_stats(&self.irq, other),
            27 => self.switch(Reason::Yield),
            28 => {
                let stop = &self.world.stops[self.rng.usize(0..self.world.stops.len())];
                stop.send();
                self.sched.wake(&self.irq, stop);
            }
            29 => _ = self.sched.wake(&self.irq, other),
            30 => self.start_one(),
            _ => self.hand_on_and_exit(me),
        }
    }

    /// Any task, most likely one that is alive.
    fn somebody(&mut self) -> &'a Arc<Task<F>> {
        let tasks = &self.world.tasks[..self.world.started_fair()];
        let mut any = || &tasks[self.rng.usize(0..tasks.len())];
        (0..100).map(|_| any()).find(|task| task.mailbox.load(Relaxed) & CLOSED == 0).unwrap_or(&tasks[0])
    }

    /// Exits, if somebody takes over the tokens.
    fn hand_on_and_exit(&mut self, me: &Task<F>) {
        let alive = self.world.started.load(SeqCst) - self.world.ended.load(SeqCst) - self.world.stops.len();
        if alive <= self.world.plan.tasks {
            return;
        }
        let tokens = me.mailbox.swap(CLOSED, SeqCst) & !CLOSED;
        let mut passed = 0;
        for other in &self.world.tasks[..self.world.started_fair()] {
            while passed <= tokens && self.pass(other) {
                passed += 1;
            }
        }
        if passed > tokens {
            return self.exit(me);
        }
        me.mailbox.store(tokens, SeqCst);
    }

    /// Waits for a token: prepare, check, block. A preemption may come at any point.
    fn wait(&mut self, me: &Task<F>) {
        let kind = if self.rng.bool() { SleepKind::Interruptible } else { SleepKind::Uninterruptible };
        let kept = self.with_local(me, |local| local.sleep.take());
        let sleep = kept.unwrap_or_else(|| self.sched.prepare(&self.irq, kind));
        if me.receive() {
            drop(sleep);
            self.with_local(me, |local| local.token = true);
        } else if self.rng.u8(0..8) == 0 {
            // An interrupt between the check and the block. The mark stays.
            self.with_local(me, |local| local.sleep = Some(sleep));
        } else {
            self.switch(Reason::Block(sleep));
        }
    }

    fn pass(&mut self, other: &Task<F>) -> bool {
        let sent = other.send();
        if sent {
            perhaps();
            self.sched.wake(&self.irq, other);
        }
        sent
    }

    fn exit(&mut self, me: &Task<F>) {
        me.mailbox.store(CLOSED, SeqCst);
        // A mark that was set stays on the stack of the dead.
        std::mem::forget(self.with_local(me, |local| local.sleep.take()));
        self.switch(Reason::Exit);
    }

    fn tell_everybody(&mut self) {
        if !self.world.told.swap(true, SeqCst) {
            for task in self.world.tasks[..self.world.started_fair()].iter().chain(&self.world.stops) {
                task.send();
                self.sched.wake(&self.irq, task);
            }
        }
    }

    fn change_mask(&mut self, task: &Task<F>) {
        if task.changing.swap(true, SeqCst) {
            return;
        }
        task.confirmed.store(u64::MAX, SeqCst);
        let mask = self.rng.u64(1..1 << self.world.plan.cpus);
        let cpus: Mask256 = (0..8).filter(|cpu| mask & 1 << cpu != 0).map(CpuId).collect();
        self.sched.set_affinity(&self.irq, task, cpus).expect("all CPUs are online");
        let when = self.world.stamp.fetch_add(1, SeqCst);
        task.confirmed.store(when << 8 | mask, SeqCst);
        task.changing.store(false, SeqCst);
    }

    fn start_one(&mut self) {
        let first = self.world.stops.len();
        let claim = |started: usize| (started < first + self.world.plan.most).then_some(started + 1);
        if let Ok(started) = self.world.started.fetch_update(SeqCst, SeqCst, claim) {
            let task = &self.world.tasks[started - first];
            // One token for two of the first tasks, none for those that come later.
            let number = started - first;
            task.mailbox.store(u64::from(number < self.world.plan.tasks && number.is_multiple_of(2)), SeqCst);
            self.sched.spawn(&self.irq, Handle(task.clone()), Spawn::default()).expect("a new task");
            // Before, the spawn would undo the change.
            task.changing.store(false, SeqCst);
        }
    }
}
