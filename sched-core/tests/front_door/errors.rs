//! Mistakes of the embedder: each has its value and its line, and nothing of what was handed over is lost.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use sched_core::{
    Config, CpuId, CpuQueue, Error, Faults, Gates, IrqOff, Mask64, Nanos, Never, Nice, Platform, Reason, SchedTask,
    Scheduler, SleepKind, Spawn, Spin, State, Switch, TaskParams, Tunables, Woken, task_ptr,
};

use crate::machine::{Handle, Machine, START, machine};

#[test]
fn each_error_says_what_was_wrong_in_one_line() {
    let lines = [
        (Error::CpuCount { queues: 0, mask: 64 }, "0 CPU queues given, 1 to 64 accepted"),
        (Error::NoOnlineCpu, "the affinity mask holds no CPU that is online"),
        (Error::NoSuchCpu(CpuId(9)), "CPU 9 has no queue"),
        (Error::AlreadyOnline(CpuId(1)), "CPU 1 is online already"),
        (Error::AlreadySpawned, "the task was spawned before"),
        (Error::StopTaskTaken(CpuId(2)), "CPU 2 has a stop task already"),
        (Error::QueueTaken(CpuId(3)), "the queue of CPU 3 belongs to another scheduler"),
        (Error::NotOurs, "the task was not spawned in this scheduler"),
        (Error::NotFair, "the idle task and the stop task keep their CPU and parameters"),
    ];
    for (error, line) in lines {
        assert_eq!(error.to_string(), line);
        let _: &dyn core::error::Error = &error;
    }
    assert_eq!(Nice::new(20).unwrap_err().to_string(), "nice 20 is outside -20..=19");
}

#[test]
fn a_cpu_comes_online_once() {
    let m = machine(2);
    let idle = Machine::<Switch, Switch>::task("second idle");
    // SAFETY: one thread is all CPUs.
    let irq = unsafe { IrqOff::assert() };
    m.cpu(1).need_resched();
    let rejected = m.sched.bring_online(&irq, Handle(idle.clone())).unwrap_err();
    assert_eq!(rejected.error, Error::AlreadyOnline(CpuId(1)));
    assert!(Arc::ptr_eq(&rejected.task, &idle));
    assert_eq!(format!("{rejected:?}"), "Rejected { error: AlreadyOnline(CpuId(1)), .. }");
    drop(rejected);
    assert_eq!(Arc::strong_count(&idle), 1);
}

#[test]
fn a_task_cannot_be_the_idle_task_of_two_cpus() {
    let m = Machine::<Switch, Switch>::offline(vec![START; 2], State::On);
    m.cpu(0).bring_online();
    // SAFETY: one thread is all CPUs.
    let irq = unsafe { IrqOff::assert() };
    assert!(!m.cpu(1).is_leaving() && !m.cpu(1).need_resched());
    let rejected = m.sched.bring_online(&irq, Handle(m.idle(0).clone())).unwrap_err();
    assert_eq!(rejected.error, Error::AlreadySpawned);
    assert_eq!(m.sched.online().count(), 1);
}

/// An embedder as the documentation shows it: `Arc`, the macro, the spin family.
struct Kernel;
struct Thread {
    before: u64,
    sched: SchedTask<Kernel>,
}
struct Cpus {
    here: AtomicU32,
    now: AtomicU64,
}
impl Platform for Cpus {
    fn now(&self, _: CpuId) -> Nanos {
        self.now.fetch_add(1000, Relaxed)
    }
    fn this_cpu(&self) -> CpuId {
        CpuId(self.here.load(Relaxed))
    }
    fn kick(&self, _: CpuId) {}
}
impl Config for Kernel {
    type Platform = Cpus;
    type Sync = Spin;
    type Mask = Mask64;
    type Task = Arc<Thread>;
    type Schedstats = Never;
    type Psi = Never;
    type Watch = Never;
    type Features = sched_core::Fixed;
    const HZ: u32 = 1000;
}
task_ptr!(Kernel: Arc<Thread> { sched });

fn thread() -> Arc<Thread> {
    Arc::new(Thread { before: 42, sched: SchedTask::new() })
}

fn cpus() -> Cpus {
    Cpus { here: AtomicU32::new(0), now: AtomicU64::new(0) }
}

#[test]
fn the_number_of_queues_is_checked() {
    let make = |count: usize| {
        let queues: Vec<CpuQueue<Kernel>> = (0..count).map(|_| CpuQueue::new(&Tunables::for_cpus(1))).collect();
        Scheduler::new(&queues, cpus(), Gates::default()).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(make(0), Err("0 CPU queues given, 1 to 64 accepted".into()));
    assert_eq!(make(65), Err("65 CPU queues given, 1 to 64 accepted".into()));
    assert_eq!(make(1), Ok(()));
    assert_eq!(make(64), Ok(()));
}

#[test]
fn a_cpu_without_a_queue_stays_out() {
    let queues = [CpuQueue::new(&Tunables::for_cpus(1))];
    let sched = Scheduler::<Kernel>::new(&queues, cpus(), Gates::default()).unwrap();
    sched.platform().here.store(1, Relaxed);
    // SAFETY: one thread is all CPUs.
    let irq = unsafe { IrqOff::assert() };
    let idle = thread();
    let rejected = sched.bring_online(&irq, idle.clone()).unwrap_err();
    assert_eq!(rejected.error, Error::NoSuchCpu(CpuId(1)));
    drop(rejected);
    assert_eq!(Arc::strong_count(&idle), 1);
    assert_eq!(sched.nr_running(CpuId(1)), 0);
    assert!(sched.cpu_stats(CpuId(1)).is_none());
}

#[test]
fn without_a_cpu_online_nothing_can_be_spawned() {
    let queues = [CpuQueue::new(&Tunables::for_cpus(1))];
    let sched = Scheduler::<Kernel>::new(&queues, cpus(), Gates::default()).unwrap();
    // SAFETY: one thread is all CPUs.
    let irq = unsafe { IrqOff::assert() };
    assert_eq!(sched.spawn(&irq, thread(), Spawn::default()).unwrap_err().error, Error::NoOnlineCpu);
    assert!(sched.current(&irq).is_none());
    assert!(sched.is_idle(&irq));
    assert!(sched.finish_switch(&irq).is_none());
}

#[test]
fn two_schedulers_in_one_process_know_nothing_of_each_other() {
    let queues: [_; 2] = core::array::from_fn(|_| [CpuQueue::new(&Tunables::for_cpus(1))]);
    let scheds = queues.each_ref().map(|queues| Scheduler::<Kernel>::new(queues, cpus(), Gates::default()).unwrap());
    // SAFETY: one thread is the CPU of both.
    let irq = unsafe { IrqOff::assert() };
    for sched in &scheds {
        sched.bring_online(&irq, thread()).unwrap();
    }
    let task = thread();
    scheds[0].spawn(&irq, task.clone(), Spawn::default()).unwrap();
    assert_eq!(scheds.each_ref().map(|sched| sched.nr_running(CpuId(0))), [1, 0]);
    assert_eq!(scheds.each_ref().map(|sched| sched.need_resched(&irq)), [true, false]);
    assert_eq!(scheds[1].spawn(&irq, task.clone(), Spawn::default()).unwrap_err().error, Error::AlreadySpawned);

    // Gates too.
    let machines = [State::On, State::Off].map(|state| Machine::<Switch, Switch>::new(1, state));
    for m in &machines {
        m.cpu(0).spawn("task");
        m.cpu(0).leave_interrupt();
    }
    assert_eq!(machines.each_ref().map(|m| m.sched.cpu_stats(CpuId(0)).unwrap().pcount), [1, 0]);
}

#[test]
fn the_task_around_the_field_is_found() {
    let queues = [CpuQueue::new(&Tunables::for_cpus(1))];
    let sched = Scheduler::<Kernel>::new(&queues, cpus(), Gates::default()).unwrap();
    // SAFETY: one thread is the CPU.
    let irq = unsafe { IrqOff::assert() };
    let idle = thread();
    sched.bring_online(&irq, idle.clone()).unwrap();
    let current = sched.current(&irq).unwrap();
    assert_eq!(current.as_ptr().cast_const(), Arc::as_ptr(&idle));
    // SAFETY: the idle task is alive.
    assert_eq!(unsafe { current.as_ref() }.before, 42);
}

#[test]
fn a_queue_belongs_to_one_scheduler() {
    let queues = [CpuQueue::new(&Tunables::for_cpus(1))];
    let make = || Scheduler::<Kernel>::new(&queues, cpus(), Gates::default()).map(|_| ());
    // Also when it is gone: its tasks may still hang in the queue.
    assert_eq!([make(), make()], [Ok(()), Err(Error::QueueTaken(CpuId(0)))]);
}

#[test]
fn a_task_of_another_scheduler_is_left_alone() {
    let queues: [_; 2] = core::array::from_fn(|_| [CpuQueue::new(&Tunables::for_cpus(1))]);
    let scheds = queues.each_ref().map(|queues| Scheduler::<Kernel>::new(queues, cpus(), Gates::default()).unwrap());
    // SAFETY: one thread is the CPU of both.
    let irq = unsafe { IrqOff::assert() };
    for sched in &scheds {
        sched.bring_online(&irq, thread()).unwrap();
    }
    let [ours, theirs] = &scheds;
    let task = thread();
    ours.spawn(&irq, task.clone(), Spawn::default()).unwrap();
    let _ = ours.schedule(&irq, Reason::Preempt);
    assert!(ours.finish_switch(&irq).is_none());
    assert_eq!(theirs.set_params(&irq, &task, TaskParams::default()), Err(Error::NotOurs));
    assert_eq!(theirs.set_affinity(&irq, &task, Mask64::ALL), Err(Error::NotOurs));
    let _ = ours.schedule(&irq, Reason::Block(ours.prepare(&irq, SleepKind::Interruptible)));
    assert!(ours.finish_switch(&irq).is_none());
    assert_eq!(theirs.wake(&irq, &task), Woken::No);
    assert_eq!(theirs.nr_running(CpuId(0)), 0);
    assert_eq!(theirs.task_stats(&irq, &task).sum_exec_runtime, ours.task_stats(&irq, &task).sum_exec_runtime);
    assert_eq!(ours.wake(&irq, &task), Woken::Yes);
    assert_eq!(ours.nr_running(CpuId(0)), 1);
}

/// Without `finish_switch` the task that was left is lost: a debug build stops, a release build counts it.
#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "finish_switch was not called after the last switch"))]
fn a_switch_that_is_not_finished_is_noticed() {
    let queues = [CpuQueue::new(&Tunables::for_cpus(1))];
    let sched = Scheduler::<Kernel>::new(&queues, cpus(), Gates::default()).unwrap();
    // SAFETY: one thread is the CPU.
    let irq = unsafe { IrqOff::assert() };
    sched.bring_online(&irq, thread()).unwrap();
    sched.spawn(&irq, thread(), Spawn::default()).unwrap();
    let _ = sched.schedule(&irq, Reason::Preempt);
    assert_eq!(sched.faults(&irq, CpuId(0)), Faults::default());
    let _ = sched.schedule(&irq, Reason::Exit);
    assert_eq!(sched.faults(&irq, CpuId(0)), Faults { unfinished_switches: 1, ..Faults::default() });
}
