//! The front door under a checker that decides at every access of a shared word who goes on.
//!
//! `shuttle` plays each scenario under hundreds of schedules (`SCHEDULES=20000` for more), random ones and ones with few but well-placed preemptions;
//! a failure prints the schedule, which `shuttle::replay` plays again.
//! It plays sequentially consistent memory; what weaker memory adds is the subject of `store_buffers.rs`.

#[path = "interleavings/machine.rs"]
mod machine;

use std::sync::{
    Arc,
    atomic::{
        AtomicU64 as Plain,
        Ordering::{Relaxed, SeqCst},
    },
};

use machine::{Cpu, Machine, Task, nice, task};
use sched_core::{CpuId, Reason, SleepKind, TaskState, Woken};
use shuttle::{
    rand::{Rng, thread_rng},
    sync::atomic::AtomicBool,
    thread,
};

/// Plays a scenario under many schedules.
fn check(scenario: impl Fn() + Send + Sync + Copy + 'static) {
    let schedules = std::env::var("SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    shuttle::check_random(scenario, schedules);
    shuttle::check_pct(scenario, schedules, 3);
}

fn together(threads: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = threads.into_iter().map(thread::spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no failure"));
}

#[test]
fn a_wake_up_is_never_lost_between_check_and_block() {
    check(|| {
        let m = Machine::new(2);
        let task = m.running();
        let condition = Arc::new(AtomicBool::new(false));
        let (sleeper, waker) = (task.clone(), task.clone());
        let (checked, set) = (condition.clone(), condition.clone());
        together(vec![
            Box::new(move || {
                let cpu = m.cpu(0);
                let sleep = m.sched.prepare(&cpu.irq(), SleepKind::Interruptible);
                if checked.load(SeqCst) {
                    drop(sleep)
                } else {
                    _ = cpu.switch(Reason::Block(sleep))
                }
                drop(sleeper);
            }),
            Box::new(move || {
                set.store(true, SeqCst);
                m.cpu(1).wake(&waker);
                drop(waker);
            }),
        ]);
        m.cpus().for_each(Cpu::leave_interrupt);
        assert_eq!(task.sched.state(), TaskState::Runnable, "asleep beside a condition that holds");
        m.drain(&[task]);
    });
}

#[test]
fn of_two_wakers_one_wakes_and_the_task_is_queued_once() {
    check(|| {
        let m = Machine::new(3);
        let task = m.running();
        m.cpu(1).set_affinity(&task, &[0, 1, 2]);
        let woken = Arc::new(Plain::new(0));
        let waker = |cpu: u32| -> Box<dyn FnOnce() + Send> {
            let (task, woken) = (task.clone(), woken.clone());
            Box::new(move || {
                let answer = m.cpu(cpu).wake(&task);
                woken.fetch_add(u64::from(answer == Woken::Yes), SeqCst);
                m.cpu(cpu).leave_interrupt();
            })
        };
        let blocked = Arc::new(Plain::new(0));
        let sleeps = blocked.clone();
        let sleeper = Box::new(move || sleeps.store(u64::from(m.cpu(0).block()), SeqCst));
        together(vec![sleeper, waker(1), waker(2)]);
        m.cpus().for_each(Cpu::leave_interrupt);
        let asleep = u64::from(task.sched.state() != TaskState::Runnable);
        assert!(woken.load(SeqCst) <= 1, "woken twice from one sleep");
        assert_eq!(asleep, blocked.load(SeqCst) - woken.load(SeqCst).min(blocked.load(SeqCst)));
        m.drain(&[task]);
    });
}

#[test]
fn a_delayed_sleeper_is_woken_once_whatever_comes_first() {
    for turn in ["its turn comes", "the other blocks"] {
        check(move || {
            let m = Machine::new(3);
            let [debtor, other] = m.delayed();
            let woken = Arc::new(Plain::new(0));
            let waker = |cpu: u32| -> Box<dyn FnOnce() + Send> {
                let (debtor, woken) = (debtor.clone(), woken.clone());
                Box::new(move || {
                    let answer = m.cpu(cpu).wake(&debtor);
                    woken.fetch_add(u64::from(answer == Woken::Yes), SeqCst);
                    m.cpu(cpu).leave_interrupt();
                })
            };
            let owner = Box::new(move || {
                m.advance(20_000_000);
                if turn == "the other blocks" {
                    m.cpu(0).block();
                } else {
                    m.cpu(0).switch(Reason::Preempt);
                }
                m.cpu(0).leave_interrupt();
            });
            together(vec![owner, waker(1), waker(2)]);
            m.cpus().for_each(Cpu::leave_interrupt);
            assert_eq!(woken.load(SeqCst), 1, "one sleep, one wake-up");
            assert_eq!(debtor.sched.state(), TaskState::Runnable);
            m.drain(&[debtor, other]);
        });
    }
}

#[test]
fn a_delayed_sleeper_that_must_leave_is_found_by_its_waker() {
    check(|| {
        let m = Machine::new(3);
        let [debtor, other] = m.delayed();
        let (moved, woken) = (debtor.clone(), debtor.clone());
        together(vec![
            Box::new(move || {
                m.advance(20_000_000);
                m.cpu(0).switch(Reason::Preempt);
                m.cpu(0).leave_interrupt();
            }),
            Box::new(move || m.cpu(1).set_affinity(&moved, &[2])),
            Box::new(move || {
                assert_eq!(m.cpu(2).wake(&woken), Woken::Yes);
                m.cpu(2).leave_interrupt();
            }),
        ]);
        assert_eq!(debtor.sched.state(), TaskState::Runnable);
        let ran_on = m.drain(&[debtor, other]);
        assert_eq!(ran_on[0], 2, "it runs where it may not");
    });
}

#[test]
fn a_task_ends_up_where_the_last_mask_allows_it() {
    for begin in ["running", "preempted", "blocked"] {
        check(move || {
            let m = Machine::new(3);
            let task = m.running();
            let other = self::task();
            m.cpu(0).spawn(&other, &[0]);
            let mover = |cpu: u32, to: u32| -> Box<dyn FnOnce() + Send> {
                let task = task.clone();
                Box::new(move || m.cpu(cpu).set_affinity(&task, &[to]))
            };
            together(vec![
                Box::new(move || {
                    match begin {
                        "running" => m.cpu(0).leave_interrupt(),
                        "preempted" => _ = m.cpu(0).switch(Reason::Yield),
                        _ => _ = m.cpu(0).block(),
                    }
                    m.cpu(0).leave_interrupt();
                }),
                mover(1, 1),
                mover(2, 2),
            ]);
            if begin == "blocked" {
                m.cpu(1).wake(&task);
            }
            m.cpus().for_each(Cpu::leave_interrupt);
            let allowed = [1, 2].map(|cpu| task.sched.affinity().contains(CpuId(cpu)));
            assert_eq!(allowed.iter().filter(|allowed| **allowed).count(), 1, "two masks are mixed");
            let mask = task.sched.affinity();
            let ran_on = m.drain(&[task, other])[0];
            assert!(mask.contains(CpuId(ran_on)), "runs on CPU {ran_on} with {mask:?}");
        });
    }
}

#[test]
fn a_mask_or_nice_value_set_during_a_placement_counts() {
    for what in ["mask", "nice"] {
        check(move || {
            let m = Machine::new(4);
            let task = m.running();
            // CPU 0, where it slept, is busy, so that it is placed elsewhere, on CPU 2 or 3.
            assert!(m.cpu(0).block());
            let busy = [0, 1].map(|cpu| {
                let busy = self::task();
                m.cpu(cpu).spawn(&busy, &[cpu]);
                m.cpu(cpu).leave_interrupt();
                busy
            });
            m.cpu(1).set_affinity(&task, &[0, 2, 3]);
            let (woken, changed) = (task.clone(), task.clone());
            together(vec![
                Box::new(move || _ = m.cpu(0).wake(&woken)),
                Box::new(move || match what {
                    "mask" => m.cpu(1).set_affinity(&changed, &[3]),
                    _ => m.sched.set_params(&m.cpu(1).irq(), &changed, nice(19)).expect("fair"),
                }),
            ]);
            if what == "nice" {
                assert_light(m, &task);
            }
            let [a, b] = busy;
            let ran_on = m.drain(&[task, a, b]);
            assert!(what == "nice" || ran_on[0] == 3, "placed on CPU {}, which the mask forbids", ran_on[0]);
        });
    }
}

/// The queue takes the task for one of nice 19: beside one of nice 0 it runs for hardly any time.
fn assert_light(m: Machine, light: &Arc<Task>) {
    let cpu = m.cpu(light.sched.cpu().0);
    let rival = task();
    cpu.spawn(&rival, &[cpu.id]);
    for _ in 0..40 {
        m.sched.platform().now.fetch_add(4_000_000, Relaxed);
        m.sched.tick(&cpu.irq());
        cpu.leave_interrupt();
    }
    let [mine, theirs] = [light, &rival].map(|task| m.sched.task_stats(&cpu.irq(), task).sum_exec_runtime);
    assert!(mine * 4 < theirs, "{mine} to {theirs}: the change is lost");
    while !cpu.runs(&rival) {
        m.sched.platform().now.fetch_add(4_000_000, Relaxed);
        m.sched.tick(&cpu.irq());
        cpu.leave_interrupt();
    }
    cpu.switch(Reason::Exit);
}

#[test]
fn whatever_others_do_an_exit_gives_the_task_back_once() {
    check(|| {
        let m = Machine::new(3);
        let task = m.running();
        let (one, two) = (task.clone(), task.clone());
        together(vec![
            Box::new(move || assert!(m.cpu(0).switch(Reason::Exit))),
            Box::new(move || {
                m.cpu(1).wake(&one);
                m.cpu(1).set_affinity(&one, &[1, 2]);
                m.cpu(1).wake(&one);
            }),
            Box::new(move || {
                m.sched.set_params(&m.cpu(2).irq(), &two, nice(3)).expect("fair");
                m.cpu(2).set_affinity(&two, &[2]);
                m.sched.task_stats(&m.cpu(2).irq(), &two);
            }),
        ]);
        assert_eq!((task.sched.state(), Arc::strong_count(&task)), (TaskState::Dead, 1));
        assert_eq!(m.loads(), [0, 0, 0]);
    });
}

#[test]
fn a_kick_finds_its_request_and_an_idle_cpu_its_task() {
    check(|| {
        let m = Machine::new(2);
        let tasks: Vec<_> = (0..2).map(|_| task()).collect();
        let spawned = tasks.clone();
        together(vec![
            Box::new(move || {
                spawned.iter().for_each(|task| m.cpu(0).spawn(task, &[1]));
            }),
            Box::new(move || {
                // An idle loop: it looks when the bell rings, and halts again.
                for _ in 0..3 {
                    if m.sched.platform().bells[1].swap(0, SeqCst) == 1 {
                        assert!(m.sched.need_resched(&m.cpu(1).irq()), "kicked for nothing");
                        m.cpu(1).leave_interrupt();
                    }
                    thread::yield_now();
                }
            }),
        ]);
        let rung = m.sched.platform().bells[1].load(SeqCst) == 1;
        assert!(rung || !m.sched.is_idle(&m.cpu(1).irq()), "the CPU sleeps through it");
        m.drain(&tasks);
    });
}

#[test]
fn random_calls_on_three_cpus_lose_nobody() {
    check(|| random_calls(3, 4, 12));
}

#[test]
fn random_calls_on_four_cpus_with_more_tasks_lose_nobody() {
    check(|| random_calls(4, 7, 16));
}

/// Every CPU makes `calls` calls of any kind about any of the tasks, all at once.
fn random_calls(cpus: u32, tasks: usize, calls: usize) {
    let m = Machine::new(cpus);
    let tasks: Vec<_> = (0..tasks).map(|_| task()).collect();
    let everywhere: Vec<u32> = (0..cpus).collect();
    tasks.iter().for_each(|task| m.cpu(0).spawn(task, &everywhere));
    let cpu = |id: u32| -> Box<dyn FnOnce() + Send> {
        let tasks = tasks.clone();
        Box::new(move || {
            let cpu = m.cpu(id);
            for _ in 0..calls {
                let task = &tasks[thread_rng().gen_range(0..tasks.len())];
                match thread_rng().gen_range(0..24) {
                    0..9 => _ = cpu.wake(task),
                    9..12 => {
                        let masks = [[0].as_slice(), &[1, 2], &[2], &[0, 1, 2]];
                        cpu.set_affinity(task, masks[thread_rng().gen_range(0..4)]);
                    }
                    12..15 => {
                        m.sched.set_params(&cpu.irq(), task, nice(thread_rng().gen_range(-20..20))).expect("fair");
                    }
                    15..18 => m.sched.tick(&cpu.irq()),
                    _ if m.sched.is_idle(&cpu.irq()) => {}
                    18..20 => _ = cpu.switch(Reason::Yield),
                    20 => _ = cpu.switch(Reason::Exit),
                    _ => _ = cpu.block(),
                }
                cpu.leave_interrupt();
            }
        })
    };
    together((0..cpus).map(cpu).collect());
    for task in &tasks {
        m.cpu(0).wake(task);
    }
    // A task may have to be moved off the CPU it runs on before it is where it may be.
    m.cpus().for_each(Cpu::leave_interrupt);
    m.cpus().for_each(Cpu::leave_interrupt);
    let alive: Vec<_> = tasks.iter().map(|task| task.sched.state() != TaskState::Dead).collect();
    let ran_on = m.drain(&tasks);
    for ((task, cpu), _) in tasks.iter().zip(ran_on).zip(alive).filter(|(_, alive)| *alive) {
        assert!(task.sched.affinity().contains(CpuId(cpu)), "runs on CPU {cpu} with {:?}", task.sched.affinity());
    }
}
