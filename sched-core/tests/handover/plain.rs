//! Two tasks on two CPUs that play ping-pong with nothing but plain stores beside `prepare`, `schedule` and `wake`.
//! What keeps their wake-ups from being lost is the scheduler's own fences: one in `prepare`, one in `wake`.

use std::{
    hint,
    sync::{
        Barrier,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::{Duration, Instant},
};

use sched_core::{
    CpuId, CpuQueue, Decision, Family, Gates, IrqOff, Mask256, Reason, Scheduler, SleepKind, Spawn, State, Switch,
    Tunables,
};

use super::{
    kernel::{Cpus, HERE, Handle, Kernel, Kind, Task},
    world::PATIENCE,
};

/// On a line of its own, or the two stores would meet in the same cache line.
#[repr(align(128))]
struct Said(AtomicU64);

/// Plays `rounds` rounds. Ends the process if a wake-up is lost.
pub fn ping_pong<F: Family>(rounds: u64) {
    let tunables = Tunables::for_cpus(2);
    let queues: Vec<CpuQueue<Kernel<F>>> = (0..2).map(|_| CpuQueue::new(&tunables)).collect();
    let gates =
        Gates { schedstats: Switch::new(State::On), psi: Switch::new(State::On), watch: Switch::new(State::On) };
    let sched = Scheduler::new(&queues, Cpus::new(2), gates).expect("two CPUs");
    let tasks = [Task::<F>::new(Kind::Fair), Task::new(Kind::Fair)];
    let said = [Said(AtomicU64::new(0)), Said(AtomicU64::new(0))];
    let (barrier, ended) = (Barrier::new(2), AtomicUsize::new(0));

    let player = |cpu: usize| {
        HERE.set(cpu as u32);
        // SAFETY: this thread alone is this CPU, and nothing interrupts it.
        let irq = unsafe { IrqOff::assert() };
        sched.bring_online(&irq, Handle(Task::new(Kind::Idle))).expect("a new CPU");
        let spawn = Spawn { affinity: Mask256::only(CpuId(cpu as u32)), ..Spawn::default() };
        sched.spawn(&irq, Handle(tasks[cpu].clone()), spawn).expect("a new task");
        let switch = |reason| match sched.schedule(&irq, reason) {
            Decision::Stay => false,
            Decision::Switch { .. } => {
                assert!(sched.finish_switch(&irq).is_none());
                true
            }
        };
        assert!(switch(Reason::Preempt), "to the player");
        barrier.wait();
        let wait_for = |round: u64| {
            loop {
                let sleep = sched.prepare(&irq, SleepKind::Interruptible);
                if said[1 - cpu].0.load(Relaxed) >= round {
                    return drop(sleep);
                }
                if switch(Reason::Block(sleep)) {
                    // The idle task waits for the bell, or finds a request that came during the switch.
                    let bell = &sched.platform().bells[cpu];
                    for turn in 1_u32.. {
                        let rung = bell.load(Relaxed) && bell.swap(false, SeqCst);
                        if (rung || turn == 1) && sched.need_resched(&irq) {
                            break;
                        }
                        hint::spin_loop();
                        if turn.is_multiple_of(256) {
                            thread::yield_now();
                        }
                    }
                    assert!(switch(Reason::Preempt), "back to the player");
                }
            }
        };
        for round in 1..=rounds {
            if cpu == 1 {
                wait_for(round);
            }
            said[cpu].0.store(round, Relaxed);
            sched.wake(&irq, &tasks[1 - cpu]);
            if cpu == 0 {
                wait_for(round);
            }
        }
        ended.fetch_add(1, SeqCst);
    };
    thread::scope(|scope| {
        scope.spawn(|| player(0));
        scope.spawn(|| player(1));
        let score = || said.each_ref().map(|said| said.0.load(Relaxed));
        let (mut seen, mut since) = (score(), Instant::now());
        while ended.load(SeqCst) < 2 {
            thread::sleep(Duration::from_millis(2));
            if score() != seen {
                (seen, since) = (score(), Instant::now());
            } else if since.elapsed() > PATIENCE {
                eprintln!("a wake-up is lost at {seen:?}: {:?}", tasks.each_ref().map(|task| task.sched.state()));
                std::process::abort();
            }
        }
    });
}
