//! Laws that the statistics obey, checked to the nanosecond on simulated machines.
//!
//! The machines have 1 to 8 CPUs whose clocks differ, kicks that take a while, switches that take a while,
//! and tasks that compute, sleep, yield, wake each other, change masks and nice values, and start others.

mod machine;

use std::mem::size_of;

use machine::{
    Built, MS, Machine, Made, START, TICK, Usual,
    sim::{Script, Sim, Step, spin},
};
use sched_core::{
    CpuId, CpuQueue, CpuStats, Faults, IrqOff, Mask256, Nanos, Never, Nice, SchedTask, Spawn, State, Switch,
    TaskParams, TaskStats,
};

const SEEDS: u64 = 12;
const CPUS: [u32; 4] = [1, 2, 3, 8];

/// A task that does a bit of everything.
fn life(_: usize) -> Script {
    Box::new(|rng, count| {
        let some = rng.usize(0..count);
        match rng.u32(0..20) {
            0..=6 => Step::Run(rng.u64(1..6 * MS)),
            7..=11 => Step::Sleep(rng.u64(1..8 * MS)),
            12 => Step::Yield,
            13 | 14 => Step::Wake(some),
            15 | 16 => {
                Step::Affinity(some, (0..8).filter(|_| rng.bool()).map(CpuId).collect::<Mask256>().with(CpuId(0)))
            }
            17 => Step::Params(some, machine::nice(rng.i32(-20..20))),
            18 if count < 24 => Step::Fork(life),
            18 => Step::Run(1),
            _ => Step::Sleep(1),
        }
    })
}

fn lively<S: Made, P: Made>(cpus: u32, stats: State, seed: u64) -> Sim<S, P> {
    let mut sim = Sim::new(cpus, stats, seed);
    for id in 0..2 * cpus as usize + 1 {
        sim.add(id as u32 % cpus, Spawn::default(), life(id));
    }
    sim
}

fn cpu_stats(sim: &Sim) -> Vec<CpuStats> {
    sim.machine.cpus().map(|cpu| sim.machine.sched.cpu_stats(cpu.id).expect("compiled in")).collect()
}

fn sum<T>(all: &[T], of: impl Fn(&T) -> u64) -> u64 {
    all.iter().map(of).sum()
}

#[test]
fn every_nanosecond_of_a_cpu_belongs_to_a_task_or_to_idle() {
    for cpus in CPUS {
        for seed in 0..SEEDS {
            let mut sim: Sim = lively(cpus, State::On, seed);
            for _ in 0..200 {
                sim.run(997_001);
                for cpu in 0..cpus {
                    let busy = sim.machine.sched.cpu_stats(CpuId(cpu)).expect("compiled in").rq_cpu_time;
                    let idle = sim.machine.stats(sim.machine.idle(cpu)).sum_exec_runtime;
                    let switched = sim.trace.iter().rfind(|(_, at, _)| *at == cpu).map_or(0, |(when, ..)| *when);
                    let known = if sim.machine.cpu(cpu).is_idle() { sim.now } else { switched };
                    assert_eq!(busy + idle, known, "CPU {cpu} of {cpus}, seed {seed}");
                }
            }
        }
    }
}

#[test]
fn on_a_busy_machine_the_run_times_add_up_to_cpus_times_elapsed() {
    for cpus in CPUS {
        let mut sim: Sim = Sim::new(cpus, State::On, 7);
        for id in 0..3 * cpus {
            sim.add(id % cpus, Spawn::default(), spin());
        }
        for _ in 0..50 {
            sim.run(7 * MS + 13);
            let ran = sim.members.iter().map(|member| sim.machine.stats(&member.task).sum_exec_runtime).sum::<Nanos>();
            let idled = (0..cpus).map(|cpu| sim.machine.stats(sim.machine.idle(cpu)).sum_exec_runtime).sum::<Nanos>();
            assert_eq!(ran + idled, u64::from(cpus) * sim.now);
            assert!(idled < u64::from(cpus) * MS, "only until the first kick");
        }
    }
}

#[test]
fn every_nanosecond_of_a_life_is_run_or_waited_or_slept() {
    for cpus in CPUS {
        for seed in 0..SEEDS {
            let mut sim: Sim = lively(cpus, State::On, seed);
            sim.run(300 * MS);
            sim.finish();
            for member in &sim.members {
                let stats = sim.machine.stats(&member.task);
                let life = member.died.expect("all have exited") - member.born;
                assert_eq!(
                    stats.sum_exec_runtime + stats.run_delay + member.away,
                    life,
                    "{:?} of {cpus} CPUs, seed {seed}: {stats:?}, away {}",
                    member.task,
                    member.away
                );
            }
        }
    }
}

#[test]
fn what_tasks_count_and_what_cpus_count_is_the_same() {
    for cpus in CPUS {
        for seed in 0..SEEDS {
            let mut sim: Sim = lively(cpus, State::On, seed);
            sim.run(300 * MS);
            sim.finish();
            let of_tasks: Vec<TaskStats> = sim.members.iter().map(|member| sim.machine.stats(&member.task)).collect();
            let of_cpus = cpu_stats(&sim);
            assert_eq!(sum(&of_tasks, |task| task.pcount), sum(&of_cpus, |cpu| cpu.pcount));
            assert_eq!(sum(&of_tasks, |task| task.run_delay), sum(&of_cpus, |cpu| cpu.run_delay));
            assert_eq!(sum(&of_tasks, |task| task.sum_exec_runtime), sum(&of_cpus, |cpu| cpu.rq_cpu_time));
        }
    }
}

#[test]
fn calls_are_counted_once_each_where_they_were_made() {
    for cpus in CPUS {
        for seed in 0..SEEDS {
            let mut sim: Sim = lively(cpus, State::On, seed);
            sim.run(300 * MS);
            let of_cpus = cpu_stats(&sim);
            // SAFETY: one thread is all CPUs.
            let irq = unsafe { IrqOff::assert() };
            for (cpu, stats) in of_cpus.iter().enumerate() {
                let id = CpuId(cpu as u32);
                let switches = sim.machine.sched.switches(&irq, id);
                assert_eq!(stats.pcount + stats.sched_goidle, switches);
                assert_eq!(switches, sim.trace.iter().filter(|(_, at, _)| *at == id.0).count() as u64);
                assert!(stats.sched_goidle <= stats.sched_count);
                assert!(stats.ttwu_local <= stats.ttwu_count);
                assert_eq!(stats.sched_count, sim.decisions[cpu], "calls that came to a decision");
                assert_eq!(stats.yld_count, sim.yields[cpu]);
                assert_eq!(stats.ttwu_count, sim.wakes[cpu], "wake-ups by CPU {cpu}, seed {seed}");
                assert_eq!(sim.machine.sched.faults(&irq, id), Faults::default());
            }
            assert!(cpus == 1 || sum(&of_cpus, |cpu| cpu.ttwu_count) > sum(&of_cpus, |cpu| cpu.ttwu_local));
            assert!(sum(&of_cpus, |cpu| cpu.ttwu_local) > 0);
        }
    }
}

#[test]
fn a_wake_up_is_local_if_the_task_comes_to_the_waker() {
    let m = machine::machine(2);
    let task = m.cpu(0).spawn_on("task", &[0]);
    let counts =
        || (0..2).map(|cpu| m.sched.cpu_stats(CpuId(cpu)).unwrap()).map(|cpu| (cpu.ttwu_count, cpu.ttwu_local));
    for (waker, expected) in [(0, [(1, 1), (0, 0)]), (1, [(1, 1), (1, 0)])] {
        m.cpu(0).leave_interrupt();
        m.cpu(0).block();
        m.cpu(waker).wake(&task);
        assert_eq!(counts().collect::<Vec<_>>(), expected);
    }
    // Before it has gone to sleep it is where it is.
    m.cpu(0).leave_interrupt();
    let sleep = m.cpu(0).prepare();
    m.cpu(1).wake(&task);
    drop(sleep);
    assert_eq!(counts().collect::<Vec<_>>(), [(1, 1), (2, 0)]);
    // Handed over, it is counted once, by the waker.
    let sleep = m.cpu(0).prepare();
    assert!(m.cpu(0).leave(sched_core::Reason::Block(sleep)));
    m.cpu(1).wake(&task);
    m.cpu(0).arrive();
    assert_eq!(counts().collect::<Vec<_>>(), [(1, 1), (3, 0)]);
}

#[test]
fn the_time_of_a_stop_task_is_counted_like_any_other() {
    let m = machine::machine(1);
    let cpu = m.cpu(0);
    let (stop, task) = (cpu.spawn_stop("stop").unwrap(), cpu.spawn("task"));
    cpu.leave_interrupt();
    m.advance(3 * MS);
    cpu.wake(&stop);
    m.advance(MS / 2);
    cpu.leave_interrupt();
    m.advance(2 * MS);
    cpu.block();
    m.advance(MS);
    cpu.block();
    m.advance(5 * MS);
    let expected = [(&stop, 2 * MS, MS / 2, 1), (&task, 9 * MS / 2, 2 * MS, 2), (m.idle(0), 5 * MS, 0, 0)];
    for (task, sum_exec_runtime, run_delay, pcount) in expected {
        assert_eq!(m.stats(task), TaskStats { sum_exec_runtime, run_delay, pcount }, "{task:?}");
    }
    let stats = m.sched.cpu_stats(CpuId(0)).unwrap();
    assert_eq!((stats.rq_cpu_time, stats.run_delay, stats.pcount, stats.sched_goidle), (13 * MS / 2, 5 * MS / 2, 3, 1));
}

/// Everything that was decided, and how long everybody ran.
fn schedule_of<S: Made, P: Made>(cpus: u32, stats: State, seed: u64) -> (Vec<(Nanos, u32, String)>, Vec<Nanos>) {
    let mut sim: Sim<S, P> = lively(cpus, stats, seed);
    sim.run(200 * MS);
    sim.finish();
    let ran = sim.members.iter().map(|member| sim.machine.stats(&member.task).sum_exec_runtime).collect();
    (sim.trace, ran)
}

#[test]
fn no_observer_changes_the_schedule() {
    for cpus in CPUS {
        for seed in 0..SEEDS {
            let expected = schedule_of::<Switch, Switch>(cpus, State::On, seed);
            assert!(expected.0.len() > 100, "something happens");
            assert_eq!(expected, schedule_of::<Switch, Switch>(cpus, State::On, seed), "the same seed twice");
            assert_eq!(expected, schedule_of::<Switch, Switch>(cpus, State::Off, seed), "off");
            assert_eq!(expected, schedule_of::<Never, Never>(cpus, State::Off, seed), "compiled out");
            assert_eq!(expected, schedule_of::<Never, Switch>(cpus, State::On, seed), "pressure alone");
            assert_eq!(expected, schedule_of::<Switch, Never>(cpus, State::On, seed), "schedstats alone");
            assert_ne!(expected, schedule_of::<Never, Never>(cpus, State::Off, seed + 1000), "another seed");
        }
    }
}

#[test]
fn what_is_off_reads_zero_and_run_time_is_always_there() {
    let mut sim: Sim = lively(2, State::Off, 3);
    sim.run(200 * MS);
    assert_eq!(cpu_stats(&sim), [CpuStats::default(); 2]);
    let mut ran = 0;
    for member in &sim.members {
        let stats = sim.machine.stats(&member.task);
        assert_eq!((stats.run_delay, stats.pcount), (0, 0));
        ran += stats.sum_exec_runtime;
    }
    assert!(ran > 0);
    // SAFETY: one thread is all CPUs.
    let irq = unsafe { IrqOff::assert() };
    assert!(sim.machine.sched.cpu_pressure(&irq).is_none());
}

#[test]
fn what_is_compiled_out_has_neither_numbers_nor_room() {
    let mut sim: Sim<Never, Never> = lively(2, State::On, 3);
    sim.run(200 * MS);
    // SAFETY: one thread is all CPUs.
    let irq = unsafe { IrqOff::assert() };
    assert!(sim.machine.sched.cpu_stats(CpuId(0)).is_none());
    assert!(sim.machine.sched.cpu_pressure(&irq).is_none());
    let stats = sim.machine.stats(&sim.members[0].task);
    assert_eq!((stats.run_delay, stats.pcount), (0, 0));
    assert!(stats.sum_exec_runtime > 0);

    // Four counters and the flags of pressure are five words; the mask and its lock leave less than a line before them.
    let (none, all) = (size_of::<SchedTask<Built<Never, Never>>>(), size_of::<SchedTask<Usual>>());
    let (free, words) = (64 - (size_of::<Mask256>() + 8), 5 * size_of::<u64>());
    assert_eq!(all - none, (words - free).next_multiple_of(64), "exactly what the observers keep, in lines");
    assert_eq!(size_of::<SchedTask<Built<Switch, Never>>>() - none, (words - 8 - free).next_multiple_of(64));
    assert!(size_of::<CpuQueue<Built<Never, Never>>>() < size_of::<CpuQueue<Built<Switch, Never>>>());
    assert!(size_of::<CpuQueue<Built<Switch, Never>>>() < size_of::<CpuQueue<Usual>>());
}

#[test]
fn pressure_is_the_time_in_which_somebody_waited() {
    // SAFETY: one thread is all CPUs.
    let irq = unsafe { IrqOff::assert() };
    for (tasks, waiting) in [(1, false), (2, true), (5, true)] {
        let m = Machine::<Switch, Switch>::with_clocks(vec![START], State::On);
        let cpu = m.cpu(0);
        let _tasks: Vec<_> = (0..tasks).map(|_| cpu.spawn("task")).collect();
        cpu.leave_interrupt();
        let before = m.sched.cpu_pressure(&irq).expect("on").total;
        for _ in 0..1000 {
            m.advance(TICK);
            cpu.tick();
            cpu.leave_interrupt();
        }
        let total = m.sched.cpu_pressure(&irq).expect("on").total - before;
        assert_eq!(total, if waiting { 1000 * TICK } else { 0 }, "{tasks} tasks on one CPU");
    }
}

#[test]
fn shares_of_a_cpu_follow_weights() {
    let mut sim: Sim = Sim::new(1, State::On, 1);
    let weights = [(-5, 3121.0), (0, 1024.0), (5, 335.0), (10, 110.0)];
    for (nice, _) in weights {
        let params = TaskParams { nice: Nice::new(nice).unwrap(), ..TaskParams::default() };
        sim.add(0, Spawn { params, ..Spawn::default() }, spin());
    }
    sim.run(20_000 * MS);
    let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
    for ((nice, weight), member) in weights.iter().zip(&sim.members) {
        let share = sim.machine.stats(&member.task).sum_exec_runtime as f64 / sim.now as f64;
        assert!((share / (weight / total) - 1.0).abs() < 0.02, "nice {nice}: share {share}");
    }
}
