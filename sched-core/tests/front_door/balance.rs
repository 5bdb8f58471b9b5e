//! Tasks that wait go where a CPU has nothing to do, and where none has, the load is shared out.

use std::sync::Arc;

use sched_core::{CpuId, Nice, Place, Policy, Spawn, State, Switch, TaskParams};

use crate::machine::{
    MS, Machine, TICK, Task, machine, mask, nice,
    sim::{Script, Sim, Step, spin},
};

type Tasks = Vec<Arc<Task>>;

/// On CPU 0 one task runs and `waiting` wait, all other CPUs idle; all of them may run on the CPUs of `cpus`.
fn crowd(m: &Machine, waiting: usize, cpus: &[u32]) -> Tasks {
    let tasks: Tasks = (0..=waiting).map(|at| m.cpu(0).spawn_on(&format!("t{at}"), &[0])).collect();
    m.cpu(0).leave_interrupt();
    for task in &tasks {
        m.cpu(0).set_affinity(task, cpus).expect("CPU 0 is online");
    }
    m.kicks();
    tasks
}

#[test]
fn a_tick_gives_a_task_that_waits_to_an_idle_cpu() {
    let m = machine(3);
    let tasks = crowd(&m, 1, &[0, 2]);
    m.advance(TICK);
    m.cpu(0).tick();
    assert_eq!(m.kicks(), [2], "the one idle CPU of the mask");
    assert_eq!(m.loads(), [1, 0, 1]);
    m.cpu(2).leave_interrupt();
    let moved = tasks.iter().find(|task| m.cpu(2).runs(task)).expect("one of them");
    assert!(!m.cpu(0).runs(moved));
    m.cpu(0).tick();
    assert_eq!(m.loads(), [1, 0, 1], "nobody waits any more");
}

#[test]
fn a_cpu_that_goes_idle_pulls_a_task_that_waits_elsewhere() {
    let m = machine(2);
    let brief = m.cpu(0).spawn_on("brief", &[1]);
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&brief));
    let tasks = crowd(&m, 2, &[0, 1]);
    m.cpu(1).block();
    assert_eq!(m.loads(), [2, 1]);
    assert!(tasks.iter().any(|task| m.cpu(1).runs(task)), "without a tick, a kick, or a turn of the idle task");
    assert_eq!(m.kicks(), []);
}

#[test]
fn nobody_is_pulled_from_a_cpu_that_has_only_one() {
    let m = machine(3);
    let tasks = crowd(&m, 1, &[0, 1, 2]);
    let brief = m.cpu(0).spawn_on("brief", &[1]);
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&brief));
    m.cpu(1).block();
    assert_eq!(m.loads(), [1, 1, 0]);
    m.cpu(1).block();
    assert!(m.cpu(1).is_idle(), "{:?} run on CPU 0 or sleep", tasks);
}

#[test]
fn a_mask_holds_for_a_pull_and_for_a_gift() {
    let m = machine(2);
    crowd(&m, 3, &[0]);
    let brief = m.cpu(0).spawn_on("brief", &[1]);
    m.cpu(1).leave_interrupt();
    m.cpu(1).block();
    assert!(m.cpu(1).is_idle(), "{brief:?}");
    for _ in 0..40 {
        m.advance(TICK);
        m.cpu(0).tick();
        m.cpu(0).leave_interrupt();
    }
    assert_eq!(m.loads(), [4, 0]);
}

/// DragonOS#571: the balancer moved the running task, and two CPUs were on one stack.
#[test]
fn a_task_that_runs_or_is_still_being_left_is_not_moved() {
    let m = machine(2);
    let brief = m.cpu(0).spawn_on("brief", &[1]);
    m.cpu(1).leave_interrupt();
    let tasks = crowd(&m, 1, &[0, 1]);
    let first = tasks.iter().find(|task| m.cpu(0).runs(task)).expect("one runs");
    // CPU 0 is on its way to the other task; the one it leaves waits already.
    m.advance(20 * MS);
    m.cpu(0).tick();
    assert!(m.cpu(0).leave(sched_core::Reason::Yield));
    assert!(m.cpu(0).is_leaving());
    m.cpu(1).block();
    assert!(m.cpu(1).is_idle(), "{brief:?} sleeps, {first:?} is being left, and the other one runs");
    m.cpu(0).arrive();
    m.advance(TICK);
    m.cpu(0).tick();
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(first), "it can move once it has been left");
}

#[test]
fn who_sleeps_in_debt_is_not_moved() {
    let m = machine(2);
    let tasks = crowd(&m, 2, &[0, 1]);
    m.advance(3 * MS);
    assert!(m.cpu(0).block());
    let debtor = tasks.iter().find(|task| m.load_of(task).is_some() && m.loads()[0] == 2).expect("it waits on");
    for _ in 0..10 {
        m.advance(TICK);
        m.cpu(0).tick();
        m.cpu(1).leave_interrupt();
    }
    assert_eq!(m.loads(), [1, 1], "{debtor:?} is on CPU 0, asleep");
}

/// CPU 1 runs a task of the idle policy.
fn idle_policy_on_cpu_1(m: &Machine) -> Arc<Task> {
    let params = TaskParams { policy: Policy::Idle, ..TaskParams::default() };
    let idler = m.cpu(0).spawn_with("idler", Spawn { params, affinity: mask(&[1]) });
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&idler));
    idler
}

#[test]
fn a_cpu_that_runs_the_idle_policy_only_is_as_good_as_idle_for_a_normal_task() {
    let m = machine(2);
    let idler = idle_policy_on_cpu_1(&m);
    let tasks = crowd(&m, 1, &[0, 1]);
    m.advance(TICK);
    m.cpu(0).tick();
    assert_eq!((m.loads(), m.kicks()), (vec![1, 2], vec![1]));
    m.cpu(1).leave_interrupt();
    assert!(tasks.iter().any(|task| m.cpu(1).runs(task)), "{idler:?} gives way");
}

#[test]
fn a_wake_up_takes_a_cpu_that_runs_the_idle_policy_only() {
    let m = machine(2);
    let sleeper = m.cpu(0).spawn_on("sleeper", &[0]);
    m.cpu(0).leave_interrupt();
    m.cpu(0).block();
    m.cpu(0).set_affinity(&sleeper, &[0, 1]).expect("online");
    let _busy = m.cpu(0).spawn_on("busy", &[0]);
    m.cpu(0).leave_interrupt();
    let idler = idle_policy_on_cpu_1(&m);
    m.cpu(0).wake(&sleeper);
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).runs(&sleeper), "{idler:?} gives way");
}

#[test]
fn tasks_of_the_idle_policy_do_not_make_way_for_each_other() {
    let m = machine(2);
    let _idler = idle_policy_on_cpu_1(&m);
    let idle = TaskParams { policy: Policy::Idle, ..TaskParams::default() };
    for task in crowd(&m, 1, &[0, 1]) {
        m.cpu(0).set_params(&task, idle).expect("fair");
    }
    m.kicks();
    m.advance(TICK);
    m.cpu(0).tick();
    assert_eq!((m.loads(), m.kicks()), (vec![2, 1], vec![]));
}

#[test]
fn near_idle_cpus_come_first() {
    // Two nodes of two caches of two CPUs each.
    let m = Machine::<Switch, Switch>::placed(8, |cpu| Place { core: cpu.0, cache: cpu.0 / 2, node: cpu.0 / 4 });
    crowd(&m, 7, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let mut order = Vec::new();
    for _ in 0..7 {
        m.advance(TICK);
        m.cpu(0).tick();
        order.extend(m.kicks());
    }
    assert_eq!(order, [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_wake_up_prefers_a_core_that_is_quiet() {
    // CPUs 0 and 4 are threads of one core, and so on.
    let m = Machine::<Switch, Switch>::placed(8, |cpu| Place { core: cpu.0 % 4, cache: 0, node: 0 });
    let sleeper = m.cpu(0).spawn_on("sleeper", &[1]);
    m.cpu(1).leave_interrupt();
    assert!(m.cpu(1).block());
    for cpu in [1, 2, 3, 4] {
        m.cpu(0).spawn_on("busy", &[cpu]);
        m.cpu(cpu).leave_interrupt();
    }
    // Idle are 0, 5, 6 and 7, each beside a busy one.
    m.cpu(4).block();
    m.kicks();
    m.cpu(1).set_affinity(&sleeper, &[0, 1, 4, 5, 6, 7]).expect("online");
    m.cpu(2).wake(&sleeper);
    m.cpu(4).leave_interrupt();
    assert_eq!(sleeper.sched.cpu(), CpuId(4), "CPUs 4 and 0 are one core with nothing to do");
    let fresh = m.cpu(2).spawn("fresh");
    assert_eq!(fresh.sched.cpu(), CpuId(5), "every core has something to do now, and this thread has not");
}

#[test]
fn in_a_large_machine_each_tick_looks_at_another_part() {
    let m = machine(200);
    // The only CPU that is idle and allowed is far away in every order.
    let tasks = crowd(&m, 1, &[0, 190]);
    for cpu in 1..190 {
        m.cpu(0).spawn_on("busy", &[cpu]);
        m.cpu(cpu).leave_interrupt();
    }
    let ticks = (1..).find(|_| {
        m.advance(TICK);
        m.cpu(0).tick();
        m.loads()[190] == 1
    });
    assert!(ticks <= Some(4), "found after {ticks:?} ticks, {tasks:?}");
}

/// The shares of a CPU that spinners with the nice values of `nices` get on `cpus` CPUs in 10 s.
fn shares(cpus: u32, nices: &[i32], seed: u64) -> Vec<f64> {
    let mut sim = Sim::<Switch, Switch>::on(machine(cpus), seed);
    for &value in nices {
        sim.add(0, Spawn { params: nice(value), affinity: mask(&(0..cpus).collect::<Vec<_>>()) }, spin());
    }
    let span = 10_000 * MS;
    sim.run(span);
    sim.members.iter().map(|m| sim.machine.stats(&m.task).sum_exec_runtime as f64 / span as f64).collect()
}

fn assert_near(shares: &[f64], ideal: &[f64], percent: f64) {
    for (share, ideal) in shares.iter().zip(ideal) {
        assert!((share / ideal - 1.0).abs() * 100.0 <= percent, "{shares:?} should be {ideal:?}");
    }
}

#[test]
fn nine_spinners_on_eight_cpus_get_eight_ninths_of_a_cpu_each() {
    for seed in 0..4 {
        assert_near(&shares(8, &[0; 9], seed), &[8.0 / 9.0; 9], 5.0);
    }
}

#[test]
fn three_spinners_on_two_cpus_get_two_thirds_each() {
    assert_near(&shares(2, &[0; 3], 1), &[2.0 / 3.0; 3], 5.0);
}

#[test]
fn a_heavy_task_has_its_cpu_alone_and_the_light_ones_share_the_rest() {
    assert_near(&shares(2, &[-20, 0, 0, 0], 1), &[1.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0], 5.0);
    assert_near(&shares(3, &[-5, 0, 0, 0], 1), &[1.0, 2.0 / 3.0, 2.0 / 3.0, 2.0 / 3.0], 5.0);
}

#[test]
fn tasks_of_different_weight_that_can_be_divided_are() {
    // 1024 + 335 + 335 on one CPU, 1024 + 335 + 335 on the other.
    let (one, third) = (1024.0 / 1694.0, 335.0 / 1694.0);
    assert_near(&shares(2, &[0, 5, 5, 0, 5, 5], 1), &[one, third, third, one, third, third], 5.0);
}

/// A script that computes for `run` and sleeps for `sleep`.
fn periodic(run: u64, sleep: u64) -> Script {
    let mut runs = false;
    Box::new(move |_, _| {
        runs = !runs;
        if runs { Step::Run(run) } else { Step::Sleep(sleep) }
    })
}

/// wastedcores (2016): ready threads waited while cores idled for long.
#[test]
fn no_cpu_idles_for_two_ticks_while_somebody_waits() {
    for seed in 0..8 {
        let mut sim = Sim::<Switch, Switch>::on(machine(4), seed);
        sim.machine.sched.set_idle_bound(2 * TICK);
        for at in 0..9 {
            let params = TaskParams { nice: Nice::new([0, -5, 5][at % 3]).expect("in range"), ..TaskParams::default() };
            let script = if at < 3 { spin() } else { periodic((1 + at as u64) * MS, (12 - at as u64) * MS) };
            sim.add(at as u32 % 4, Spawn { params, ..Spawn::default() }, script);
        }
        sim.run(3_000 * MS);
        let report = sim.machine.sched.watch_report().expect("on");
        assert_eq!(report.violations, 0, "seed {seed}: {report:?}");
    }
}

#[test]
fn a_watch_of_half_a_tick_sees_that_there_was_something_to_see() {
    let m = Machine::<Switch, Switch>::new(2, State::On);
    m.sched.set_idle_bound(TICK / 2);
    crowd(&m, 1, &[0, 1]);
    m.advance(TICK);
    m.cpu(0).tick();
    assert_eq!(m.sched.watch_report().expect("on").violations, 1);
}
