//! A whole embedder on one CPU: tasks of nice 0 and 5 share it 1024 : 335, and a third sleeps and is woken.
use sched_core::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Your task, our field, your memory.
struct Task {
    sched: SchedTask<OneCpu>,
    name: &'static str,
}

/// What the scheduler asks the machine: the time, this CPU, kick that CPU.
struct Machine(AtomicU64);
#[rustfmt::skip]
impl Platform for Machine {
    fn now(&self, _: CpuId) -> Nanos { self.0.load(Relaxed) }
    fn this_cpu(&self) -> CpuId { CpuId(0) }
    fn kick(&self, _: CpuId) { unreachable!("there is no other CPU") }
}

/// Your choices.
struct OneCpu;
impl Config for OneCpu {
    type Platform = Machine;
    type Sync = Spin;
    type Mask = Mask64;
    type Task = &'static Task;
    type Schedstats = Switch;
    type Psi = Never;
    type Watch = Never;
    type Features = Fixed;
    const HZ: u32 = 250;
}
task_ptr!(OneCpu: &'static Task { sched });

fn main() {
    // SAFETY: this program has no interrupts, and one thread that is the CPU.
    let irq = unsafe { IrqOff::assert() };
    let queues = [CpuQueue::new(&Tunables::for_cpus(1))];
    let gates = Gates { schedstats: Switch::new(State::On), psi: Never, watch: Never };
    let sched = Scheduler::<OneCpu>::new(&queues, Machine(AtomicU64::new(0)), gates).unwrap();
    let task = |name| &*Box::leak(Box::new(Task { sched: SchedTask::new(), name }));
    sched.bring_online(&irq, task("idle")).unwrap();
    let tasks = [("heavy", 0), ("light", 5), ("sleeper", 0)].map(|(name, nice)| {
        let params = TaskParams { nice: Nice::new(nice).unwrap(), ..Default::default() };
        let task = task(name);
        sched.spawn(&irq, task, Spawn { params, ..Default::default() }).unwrap();
        task
    });
    let schedule = |reason| {
        if let Decision::Switch { .. } = sched.schedule(&irq, reason) {
            // A kernel saves `prev` and continues `next` here. First thing on the new stack:
            assert!(sched.finish_switch(&irq).is_none(), "nobody exits");
        }
    };
    for millisecond in 0..10_000 {
        sched.platform().0.fetch_add(1_000_000, Relaxed); // the current task runs for 1 ms
        if sched.current(&irq) == Some(tasks[2].into()) {
            schedule(Reason::Block(sched.prepare(&irq, SleepKind::Interruptible)));
        }
        if millisecond % 100 == 0 {
            sched.wake(&irq, tasks[2]);
        }
        if millisecond % 4 == 0 {
            sched.tick(&irq);
        }
        if sched.need_resched(&irq) {
            schedule(Reason::Preempt);
        }
    }
    for task in tasks {
        println!("{:8} {:?}", task.name, sched.task_stats(&irq, task));
    }
}
