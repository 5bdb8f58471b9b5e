//! Random events on 1 to 8 CPUs, against a model that only knows where each task should be.
//!
//! Every event is one call; a switch is two, and the other CPUs go on in between.
//! A CPU that is idle does nothing until it is kicked, so a kick that is missing leaves a task waiting for ever.

use std::sync::Arc;

use proptest::prelude::*;
use sched_core::{CpuId, Faults, IrqOff, Reason, Sleep, SleepKind, Spawn, TaskState, Woken};

use crate::machine::{Machine, TICK, Task, Usual, machine, mask, nice};

/// What happens on a CPU. Numbers are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
enum Op {
    Arrive,
    /// A kick arrives.
    Kick,
    Tick,
    Spawn(u8),
    Prepare,
    Cancel,
    Block,
    Yield,
    Exit,
    Wake(usize),
    Affinity(usize, u8),
    Nice(usize, i32),
    Advance(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => Just(Op::Arrive),
        3 => Just(Op::Kick),
        2 => Just(Op::Tick),
        2 => any::<u8>().prop_map(Op::Spawn),
        2 => Just(Op::Prepare),
        1 => Just(Op::Cancel),
        4 => Just(Op::Block),
        1 => Just(Op::Yield),
        1 => Just(Op::Exit),
        6 => any::<usize>().prop_map(Op::Wake),
        3 => (any::<usize>(), any::<u8>()).prop_map(|(task, mask)| Op::Affinity(task, mask)),
        1 => (any::<usize>(), -20..20).prop_map(|(task, nice)| Op::Nice(task, nice)),
        2 => (0..2 * TICK).prop_map(Op::Advance),
    ]
}

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// On the queue of the CPU it names, running or waiting.
    Queue,
    Asleep,
    /// On no queue; the CPU that is leaving it will place it.
    HandedOver,
    /// In the wake list of an idle CPU.
    Listed,
    Dead,
}

struct Member {
    task: Arc<Task>,
    at: At,
    /// About to sleep, and not woken since.
    prepared: bool,
    sleep: Option<Sleep<Usual>>,
}

struct World {
    m: Machine,
    members: Vec<Member>,
    /// The member each CPU is leaving.
    leaving: Vec<Option<usize>>,
    /// Kicks on their way.
    kicks: Vec<u32>,
}

impl World {
    fn new(cpus: u32) -> Self {
        Self {
            m: machine(cpus),
            members: Vec::new(),
            leaving: vec![None; cpus as usize],
            kicks: vec![0; cpus as usize],
        }
    }

    fn cpus(&self) -> u32 {
        self.leaving.len() as u32
    }

    /// The CPUs of a random mask that is not empty.
    fn some_cpus(&self, bits: u8) -> Vec<u32> {
        let cpus: Vec<_> = (0..self.cpus()).filter(|cpu| bits & 1 << cpu != 0).collect();
        if cpus.is_empty() { vec![u32::from(bits) % self.cpus()] } else { cpus }
    }

    fn running(&self, cpu: u32) -> Option<usize> {
        self.members.iter().position(|member| self.m.cpu(cpu).runs(&member.task))
    }

    fn decide(&mut self, cpu: u32, reason: Reason<Usual>) {
        let prev = self.running(cpu);
        let then = match (&reason, prev) {
            (Reason::Exit, _) => At::Dead,
            (Reason::Block(_), Some(id)) if self.members[id].prepared => At::Asleep,
            (Reason::Preempt | Reason::Yield, Some(id))
                if !self.members[id].task.sched.affinity().contains(CpuId(cpu)) =>
            {
                At::HandedOver
            }
            _ => At::Queue,
        };
        let left = self.m.cpu(cpu).leave(reason);
        assert!(left || then == At::Queue, "stays, though it should be {then:?}");
        if let Some(id) = prev {
            self.members[id].at = then;
            self.members[id].prepared &= !matches!(then, At::Asleep | At::Dead);
            if left {
                self.leaving[cpu as usize] = prev;
            }
        }
    }

    fn apply(&mut self, cpu: u32, op: Op) {
        let count = self.members.len();
        let here = self.m.cpu(cpu);
        if let Op::Advance(nanos) = op {
            return here.advance(nanos);
        }
        if here.is_leaving() {
            if let Op::Arrive = op {
                let left = self.leaving[cpu as usize].take();
                assert_eq!(here.arrive().is_some(), left.is_some_and(|id| self.members[id].at == At::Dead));
                if let Some(id) = left.filter(|&id| self.members[id].at == At::HandedOver) {
                    self.members[id].at = At::Queue;
                }
            }
        } else {
            match op {
                Op::Arrive | Op::Advance(_) => {}
                Op::Kick => self.kicks[cpu as usize] = self.kicks[cpu as usize].saturating_sub(1),
                Op::Tick if here.is_idle() => {}
                Op::Tick => here.tick(),
                Op::Spawn(_) if count >= 12 => {}
                Op::Spawn(bits) => {
                    let spawn = Spawn { affinity: mask(&self.some_cpus(bits)), ..Spawn::default() };
                    let task = here.spawn_with(&format!("t{count}"), spawn);
                    self.members.push(Member { task, at: At::Queue, prepared: false, sleep: None });
                }
                Op::Prepare | Op::Cancel | Op::Block | Op::Exit => {
                    if let Some(id) = self.running(cpu) {
                        self.act(cpu, id, op);
                    }
                }
                Op::Yield => self.decide(cpu, Reason::Yield),
                Op::Wake(_) | Op::Affinity(..) | Op::Nice(..) if count == 0 => {}
                Op::Wake(id) => self.wake(cpu, id % count),
                Op::Affinity(id, bits) => self.set_affinity(cpu, id % count, bits),
                Op::Nice(id, value) => here.set_params(&self.members[id % count].task, nice(value)).unwrap(),
            }
        }
        for kicked in self.m.kicks() {
            self.kicks[kicked as usize] += 1;
        }
        self.look_at_wake_lists();
        let here = self.m.cpu(cpu);
        if !here.is_leaving() && here.need_resched() && (!here.is_idle() || !matches!(op, Op::Advance(_))) {
            self.decide(cpu, Reason::Preempt);
        }
        // A decision may pass on who was woken for this CPU and may no longer run here.
        for kicked in self.m.kicks() {
            self.kicks[kicked as usize] += 1;
        }
        self.look_at_wake_lists();
    }

    /// Who was woken for an idle CPU is on its queue once that CPU has taken it in.
    fn look_at_wake_lists(&mut self) {
        for member in self.members.iter_mut().filter(|member| matches!(member.at, At::Queue | At::Listed)) {
            member.at = if member.task.state() == TaskState::Waking { At::Listed } else { At::Queue };
        }
    }

    /// The running member `id` of `cpu` does something.
    fn act(&mut self, cpu: u32, id: usize, op: Op) {
        match op {
            Op::Prepare if self.members[id].sleep.is_none() => {
                self.members[id].sleep = Some(self.m.cpu(cpu).prepare_as(SleepKind::Uninterruptible));
                self.members[id].prepared = true;
            }
            Op::Cancel => {
                self.members[id].sleep = None;
                self.members[id].prepared = false;
            }
            Op::Block => {
                let sleep = self.members[id].sleep.take().unwrap_or_else(|| {
                    self.members[id].prepared = true;
                    self.m.cpu(cpu).prepare()
                });
                self.decide(cpu, Reason::Block(sleep));
            }
            Op::Exit => {
                // It stays on the stack of the dead task.
                std::mem::forget(self.members[id].sleep.take());
                self.members[id].prepared = false;
                self.decide(cpu, Reason::Exit);
            }
            _ => {}
        }
    }

    fn wake(&mut self, cpu: u32, id: usize) {
        let left = self.leaving.contains(&Some(id));
        let member = &mut self.members[id];
        let expected = if member.at == At::Asleep || member.prepared { Woken::Yes } else { Woken::No };
        assert_eq!(self.m.cpu(cpu).wake(&member.task), expected, "{:?}, {:?}", member.task, member.at);
        member.prepared = false;
        if member.at == At::Asleep {
            member.at = if left { At::HandedOver } else { At::Queue };
        }
    }

    fn set_affinity(&mut self, cpu: u32, id: usize, bits: u8) {
        let cpus = self.some_cpus(bits);
        let left = self.leaving.contains(&Some(id));
        let member = &mut self.members[id];
        let was = member.task.sched.cpu().0;
        self.m.cpu(cpu).set_affinity(&member.task, &cpus).unwrap();
        if member.at == At::Queue && left && !cpus.contains(&was) {
            member.at = At::HandedOver;
        }
    }

    fn check(&self) {
        let count = |cpu: CpuId| {
            self.members.iter().filter(|member| member.at == At::Queue && member.task.sched.cpu() == cpu).count() as u64
        };
        // SAFETY: one thread is all CPUs.
        let irq = unsafe { IrqOff::assert() };
        let listed = self.members.iter().filter(|member| member.at == At::Listed).count();
        let mut lists = 0;
        for cpu in self.m.cpus() {
            let load = self.m.sched.nr_running(cpu.id);
            let asked = cpu.need_resched();
            // Those that were woken for this CPU and not taken in count as one, and it was asked to take them in.
            let list = load - count(cpu.id);
            assert!(list == 0 || list == 1 && (asked || cpu.is_leaving()), "{list} more than runnable on {:?}", cpu.id);
            lists += list as usize;
            assert!(!cpu.is_idle() || load == 0 || asked, "{:?} idles beside {load} tasks", cpu.id);
            let kicked = self.kicks[cpu.id.index()] > 0;
            assert!(!asked || kicked || cpu.is_leaving(), "{:?} was asked and not kicked", cpu.id);
            assert_eq!(self.m.sched.faults(&irq, cpu.id), Faults::default());
        }
        assert!(lists <= listed && (lists > 0 || listed == 0), "{listed} woken for idle CPUs, in {lists} lists");
        for (id, member) in self.members.iter().enumerate() {
            let (state, task) = (member.task.state(), &member.task);
            let fits = match member.at {
                At::Queue if member.prepared => state == TaskState::Prepared,
                At::Queue => state == TaskState::Runnable,
                At::Asleep => matches!(state, TaskState::Blocked(_)),
                At::Listed => state == TaskState::Waking,
                At::HandedOver => matches!(state, TaskState::Waking | TaskState::Runnable | TaskState::Prepared),
                At::Dead => state == TaskState::Dead,
            };
            assert!(fits, "{task:?} should be {:?}", member.at);
            let owned = member.at != At::Dead || self.leaving.contains(&Some(id));
            assert_eq!(Arc::strong_count(task), 1 + usize::from(owned), "{task:?}");
            let waits = member.at == At::Queue && task.on().is_none();
            assert!(!waits || task.sched.affinity().contains(task.sched.cpu()), "{task:?} waits where it may not run");
        }
    }

    /// Everybody is woken, and exits as soon as it runs. A CPU that is idle waits for its kick.
    fn drain(mut self) {
        for id in 0..self.members.len() {
            while let Some(cpu) = (0..self.cpus()).find(|&cpu| self.m.cpu(cpu).is_leaving()) {
                self.apply(cpu, Op::Arrive);
            }
            self.apply(id as u32 % self.cpus(), Op::Wake(id));
        }
        for _ in 0..200 {
            if self.members.iter().all(|member| member.at == At::Dead) && self.leaving.iter().all(Option::is_none) {
                break;
            }
            for cpu in 0..self.cpus() {
                self.apply(cpu, Op::Arrive);
                if self.kicks[cpu as usize] > 0 {
                    self.apply(cpu, Op::Kick);
                }
                self.apply(cpu, Op::Exit);
                self.check();
            }
        }
        for member in &self.members {
            assert_eq!(member.at, At::Dead, "never came to run: {:?}", member.task);
            assert_eq!(Arc::strong_count(&member.task), 1, "not given back: {:?}", member.task);
        }
        assert_eq!(self.m.loads(), vec![0; self.cpus() as usize]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_event_at_any_moment_loses_or_doubles_a_task(
        cpus in 1..=8_u32,
        ops in proptest::collection::vec((any::<u32>(), op()), 0..400),
    ) {
        let mut world = World::new(cpus);
        for (cpu, op) in ops {
            world.apply(cpu % cpus, op);
            world.check();
        }
        world.drain();
    }
}
