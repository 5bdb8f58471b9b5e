//! Load tracking against its definition, in floating point: a signal moves towards what its task is at, and halves the distance
//! in 32 periods. Where every task is, is asked of the scheduler; how long it was there is known.

use std::sync::Arc;

use sched_core::{CpuId, Nanos, Signals, TaskParams, TaskState};

use crate::machine::{MS, Machine, TICK, Task, machine, nice};

/// 32 periods of 1024 * 1024 ns.
const HALF_LIFE: f64 = 32.0 * 1024.0 * 1024.0;
/// What an average may change within the period that is not over yet, out of 1024, and some rounding.
const SLACK: f64 = 22.0 + 6.0;

struct Followed {
    task: Arc<Task>,
    /// The CPU whose load it is part of.
    home: CpuId,
    /// As that CPU has it.
    weight: f64,
    /// Queued, runnable and running, of the past, out of 1.
    signals: [f64; 3],
}

struct World {
    machine: Machine,
    all: Vec<Followed>,
    dice: fastrand::Rng,
}

impl World {
    fn spawn(&mut self, cpu: u32, mask: &[u32]) {
        let task = self.machine.cpu(cpu).spawn_on("task", mask);
        let now = self.machine.load_of(&task).expect("queued");
        let weight = f64::from(task.sched.params().weight().get());
        let signals =
            [now.load_avg() as f64 / weight, now.runnable_avg() as f64 / 1024.0, now.util_avg() as f64 / 1024.0];
        self.all.push(Followed { home: task.sched.cpu(), weight, task, signals });
    }

    /// Queued, runnable and running now.
    fn presence(&self, task: &Task) -> [f64; 3] {
        let queued = self.machine.load_of(task).is_some();
        let runs = task.on().is_some();
        [queued, queued && task.state() == TaskState::Runnable, runs].map(|is| f64::from(u8::from(is)))
    }

    fn pass(&mut self, nanos: Nanos) {
        let kept = 0.5_f64.powf(nanos as f64 / HALF_LIFE);
        for i in 0..self.all.len() {
            let presence = self.presence(&self.all[i].task);
            for (signal, is) in self.all[i].signals.iter_mut().zip(presence) {
                *signal = *signal * kept + is * (1.0 - kept);
            }
        }
        self.machine.advance(nanos);
    }

    /// Who is queued is part of the load of that CPU.
    fn settle(&mut self) {
        for followed in &mut self.all {
            if self.machine.load_of(&followed.task).is_some() {
                followed.home = followed.task.sched.cpu();
                followed.weight = f64::from(followed.task.sched.params().weight().get());
            }
        }
    }

    /// What has just had an event has the signals of its past.
    fn check_task(&self, task: &Task) {
        let Some(real) = self.machine.load_of(task) else { return };
        let followed = self.all.iter().find(|followed| std::ptr::eq(&*followed.task, task)).expect("followed");
        let weight = f64::from(task.sched.params().weight().get());
        let slack = [SLACK / 1024.0 * weight + 2.0, SLACK, SLACK];
        compare(&format!("{task:?}"), &real, followed.signals, [weight, 1024.0, 1024.0], slack);
    }

    fn check_queues(&self) {
        for cpu in [0, 1] {
            let (mut sums, mut weights, mut n) = ([0.0; 3], 0.0, 0.0);
            for followed in self.all.iter().filter(|followed| followed.home == CpuId(cpu)) {
                let weight = followed.weight;
                for ((sum, signal), unit) in sums.iter_mut().zip(followed.signals).zip([weight, 1024.0, 1024.0]) {
                    *sum += signal * unit;
                }
                weights += weight;
                n += 1.0;
            }
            // Whoever came and went left its rounding.
            let rounding = 4.0 * n + 16.0;
            let slack = [SLACK / 1024.0 * weights + rounding, SLACK * n + rounding, SLACK + rounding];
            compare(&format!("CPU {cpu}"), &self.machine.load(CpuId(cpu)), sums, [1.0; 3], slack);
        }
    }
}

fn compare(whose: &str, real: &Signals, expected: [f64; 3], units: [f64; 3], slack: [f64; 3]) {
    let real = [real.load_avg(), real.runnable_avg(), real.util_avg()].map(|avg| avg as f64);
    for i in 0..3 {
        let expected = expected[i] * units[i];
        let name = ["load", "runnable", "util"][i];
        assert!(
            (real[i] - expected).abs() <= slack[i],
            "{whose}: {name} {} for {expected:.0} (within {:.0})",
            real[i],
            slack[i]
        );
    }
}

fn follow(seed: u64, steps: u32) {
    let mut world = World { machine: machine(2), all: Vec::new(), dice: fastrand::Rng::with_seed(seed) };
    for i in 0..5 {
        world.spawn(i % 2, if i == 4 { &[0, 1] } else { &[[0], [1]][i as usize % 2] });
    }
    for _ in 0..steps {
        let passes = [0, 300_000, TICK, 3 * TICK][world.dice.usize(0..4)];
        let passes = passes + world.dice.u64(0..MS);
        world.pass(passes);
        let cpu_number = world.dice.u32(0..2);
        let i = world.dice.usize(0..world.all.len());
        let task = world.all[i].task.clone();
        let kind = world.dice.u32(0..12);
        let m = &world.machine;
        let cpu = m.cpu(cpu_number);
        let running = world.all.iter().map(|followed| followed.task.clone()).find(|task| cpu.runs(task));
        match kind {
            0..=3 => {
                cpu.tick();
                if let Some(running) = &running {
                    world.check_task(running);
                }
            }
            4 | 5 => {
                if let Some(running) = &running {
                    cpu.block();
                    world.check_task(running);
                }
            }
            6..=8 if matches!(task.state(), TaskState::Blocked(_)) => {
                if m.load_of(&task).is_none() {
                    // Who leaves a queue without its lock is aged to the last time somebody looked.
                    m.load(world.all[i].home);
                }
                cpu.wake(&task);
                world.check_task(&task);
            }
            9 | 10 => {
                let params = TaskParams { ..nice(world.dice.i32(-5..6)) };
                let changes = params.weight() != task.sched.params().weight();
                cpu.set_params(&task, params).unwrap();
                if changes {
                    world.check_task(&task);
                }
            }
            11 => {
                let mask: &[u32] = [&[0][..], &[1], &[0, 1]][world.dice.usize(0..3)];
                cpu.set_affinity(&task, mask).unwrap();
            }
            _ => {}
        }
        world.settle();
        for cpu in world.machine.cpus() {
            cpu.leave_interrupt();
        }
        world.settle();
        if world.dice.u32(0..4) == 0 {
            world.check_queues();
        }
    }
}

#[test]
fn tasks_and_queues_have_the_load_of_their_past() {
    for seed in 0..40 {
        follow(seed, 400);
    }
}
