//! A whole embedder on one CPU: two tasks of nice 0 and nice 5 share it by weight, and a third sleeps and is woken.
use sched_core::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Task {
    sched: SchedTask<OneCpu>,
    name: &'static str,
} // your task, our field, your memory

struct Machine {
    now: AtomicU64,
} // what the scheduler asks the machine
impl Platform for Machine {
    fn now(&self, _: CpuId) -> Nanos {
        self.now.load(Relaxed)
    }
    fn this_cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn kick(&self, _: CpuId) {
        unreachable!("there is no other CPU")
    }
}

struct OneCpu; // your choices
impl Config for OneCpu {
    type Platform = Machine;
    type Sync = Spin;
    type Mask = Mask64;
    type Task = &'static Task;
    type Schedstats = Switch;
    type Psi = Never;
    const HZ: u32 = 250;
}
task_ptr!(OneCpu: &'static Task { sched });

fn task(name: &'static str) -> &'static Task {
    Box::leak(Box::new(Task { sched: SchedTask::new(), name }))
}

fn main() {
    // SAFETY: this program has no interrupts, and one thread that is the CPU.
    let irq = unsafe { IrqOff::assert() };
    let queues = [CpuQueue::new(&Tunables::for_cpus(1))];
    let gates = Gates { schedstats: Switch::new(State::On), psi: Never };
    let sched = Scheduler::<OneCpu>::new(&queues, Machine { now: AtomicU64::new(0) }, gates).unwrap();
    sched.bring_online(&irq, task("idle")).unwrap();

    let (heavy, light, sleeper) = (task("heavy"), task("light"), task("sleeper"));
    let nice = |nice| Spawn {
        params: TaskParams { nice: Nice::new(nice).unwrap(), ..Default::default() },
        ..Default::default()
    };
    for (task, nice) in [(heavy, nice(0)), (light, nice(5)), (sleeper, nice(0))] {
        sched.spawn(&irq, task, nice).unwrap();
    }
    let switch = |reason| match sched.schedule(&irq, reason) {
        Decision::Stay => {}
        Decision::Switch { .. } => {
            // a kernel saves `prev` and continues `next` here, and then:
            assert!(sched.finish_switch(&irq).is_none(), "nobody exits");
        }
    };
    for millisecond in 0..10_000 {
        sched.platform().now.fetch_add(1_000_000, Relaxed); // the current task runs for 1 ms
        // SAFETY: current tasks are alive.
        let current = sched.current(&irq).map(|task| unsafe { task.as_ref() }.name);
        if current == Some("sleeper") {
            switch(Reason::Block(sched.prepare(&irq, SleepKind::Interruptible)));
        }
        if millisecond % 100 == 0 {
            sched.wake(&irq, sleeper);
        }
        if millisecond % 4 == 0 {
            sched.tick(&irq);
        }
        if sched.need_resched(&irq) {
            switch(Reason::Preempt);
        }
    }
    for task in [heavy, light, sleeper] {
        println!("{:8} {:?}", task.name, sched.task_stats(&irq, task));
    }
}
