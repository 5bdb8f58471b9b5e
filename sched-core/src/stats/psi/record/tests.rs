//! Tests of one CPU's record: stories with known answers, a model that counts every nanosecond, and real threads.

use super::*;
use proptest::prelude::*;
use std::{
    boxed::Box,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::AcqRel},
    thread,
    vec::Vec,
};

const MILLI: Nanos = 1_000_000;

fn flags(task: &PsiTask<Spin>) -> u64 {
    task.flags.load(Relaxed)
}

fn some_and_nonidle(cpu: &PsiCpu<Spin>, now: Nanos) -> (Nanos, Nanos) {
    let times = cpu.times(|| now);
    (times[State::CpuSome as usize], times[State::NonIdle as usize])
}

#[test]
fn flags_follow_a_task_from_birth_through_preemption_and_sleep() {
    let cpu = PsiCpu::<Spin>::default();
    let task = PsiTask::default();
    let mut seen = Vec::new();
    cpu.queued(&task, || 0);
    seen.push(flags(&task));
    cpu.switched(None, Some(&task), Prev::Gone, || 1);
    seen.push(flags(&task));
    cpu.switched(Some(&task), None, Prev::Queued, || 2);
    seen.push(flags(&task));
    cpu.switched(None, Some(&task), Prev::Gone, || 3);
    seen.push(flags(&task));
    cpu.switched(Some(&task), None, Prev::Gone, || 4);
    seen.push(flags(&task));
    cpu.queued(&task, || 5);
    seen.push(flags(&task));
    assert_eq!(seen, [0x4, 0x14, 0x4, 0x14, 0x0, 0x4]);
    assert_eq!(cpu.inconsistencies(), 0);
}

#[test]
fn flags_of_a_moved_task_belong_to_one_cpu_at_a_time() {
    let (a, b) = (PsiCpu::<Spin>::default(), PsiCpu::<Spin>::default());
    let task = PsiTask::default();
    a.queued(&task, || 10);
    a.unqueued(&task, || 20);
    assert_eq!(flags(&task), 0);
    assert_eq!((a.counts(), b.counts()), ((0, false), (0, false)));
    b.queued(&task, || 20);
    assert_eq!(flags(&task), 0x4);
    assert_eq!((a.counts(), b.counts()), ((0, false), (1, false)));
    assert_eq!(some_and_nonidle(&a, 100), (10, 10));
    assert_eq!(some_and_nonidle(&b, 100), (80, 80));
}

#[test]
fn a_task_woken_between_its_dequeue_and_its_switch_is_only_switched() {
    let cpu = PsiCpu::<Spin>::default();
    let task = PsiTask::default();
    cpu.queued(&task, || 0);
    cpu.switched(None, Some(&task), Prev::Gone, || 0);
    // It went off the queue to sleep and was woken again: neither is told.
    assert_eq!(flags(&task), 0x14);
    cpu.switched(Some(&task), None, Prev::Queued, || 5);
    assert_eq!(flags(&task), 0x4);
    assert_eq!(cpu.counts(), (1, false));
    assert_eq!(cpu.inconsistencies(), 0);
}

#[test]
fn the_mask_follows_the_conditions_of_the_reference() {
    let some = State::CpuSome.bit();
    let nonidle = State::NonIdle.bit();
    for (running, oncpu, expected) in [
        (0, false, 0),
        (1, true, nonidle | ONCPU_BIT),
        (1, false, some | nonidle),
        (2, true, some | nonidle | ONCPU_BIT),
        (2, false, some | nonidle),
    ] {
        assert_eq!(mask_of(running, oncpu), expected, "{running} {oncpu}");
    }
}

#[test]
fn one_cpu_reads_as_in_the_example_of_the_reference() {
    let cpu = PsiCpu::<Spin>::default();
    let (a, b) = (PsiTask::default(), PsiTask::default());
    // A alone for 100 ms, both runnable for 100 ms, both asleep for 50 ms, A alone for 50 ms.
    cpu.queued(&a, || 0);
    cpu.switched(None, Some(&a), Prev::Gone, || 0);
    cpu.queued(&b, || 100 * MILLI);
    cpu.switched(Some(&a), Some(&b), Prev::Queued, || 150 * MILLI);
    cpu.switched(Some(&b), Some(&a), Prev::Gone, || 200 * MILLI);
    cpu.switched(Some(&a), None, Prev::Gone, || 200 * MILLI);
    cpu.queued(&a, || 250 * MILLI);
    cpu.switched(None, Some(&a), Prev::Gone, || 250 * MILLI);
    assert_eq!(some_and_nonidle(&cpu, 300 * MILLI), (100 * MILLI, 250 * MILLI));
}

#[test]
fn a_switch_between_two_tasks_of_one_kind_reads_no_clock() {
    let cpu = PsiCpu::<Spin>::default();
    let (a, b, c) = (PsiTask::default(), PsiTask::default(), PsiTask::default());
    cpu.queued(&a, || 0);
    cpu.switched(None, Some(&a), Prev::Gone, || 0);
    cpu.queued(&b, || 0);
    let never = || unreachable!("no state begins or ends");
    cpu.switched(Some(&a), Some(&b), Prev::Queued, never);
    cpu.queued(&c, never);
    cpu.switched(Some(&b), Some(&c), Prev::Gone, never);
    assert_eq!(cpu.counts(), (2, true));
    assert_eq!([&a, &b, &c].map(flags), [0x4, 0, 0x14]);
    assert_eq!(some_and_nonidle(&cpu, 70), (70, 70));
}

#[test]
fn a_whole_switch_is_one_change() {
    let cpu = PsiCpu::<Spin>::default();
    let (a, b) = (PsiTask::default(), PsiTask::default());
    cpu.queued(&a, || 0);
    cpu.switched(None, Some(&a), Prev::Gone, || 0);
    cpu.queued(&b, || 10);
    let before = cpu.sequence.load(Relaxed);
    let readings = Cell::new(0);
    cpu.switched(Some(&a), Some(&b), Prev::Gone, || {
        readings.set(readings.get() + 1);
        30
    });
    assert_eq!(readings.get(), 1);
    assert_eq!(cpu.sequence.load(Relaxed), before + 2);
    assert_eq!(some_and_nonidle(&cpu, 50), (20, 50));
}

/// Stalls of 4.29 s out of nowhere were the symptom where the clock was read first (Linux 3840cbe2).
#[test]
fn the_clock_is_read_inside_the_sequence() {
    let cpu = PsiCpu::<Spin>::default();
    let task = PsiTask::default();
    let odd = |now| {
        let cpu = &cpu;
        move || {
            assert_eq!(cpu.sequence.load(Relaxed) & 1, 1);
            now
        }
    };
    cpu.queued(&task, odd(1));
    assert_eq!(cpu.sequence.load(Relaxed) & 1, 0);
    cpu.switched(None, Some(&task), Prev::Gone, odd(2));
    cpu.switched(Some(&task), None, Prev::Queued, odd(3));
    cpu.unqueued(&task, odd(4));
    assert_eq!(cpu.sequence.load(Relaxed) & 1, 0);
    assert_eq!(some_and_nonidle(&cpu, 9), (2, 3));
}

#[test]
fn a_reader_starts_again_if_the_record_changed_under_it() {
    let cpu = PsiCpu::<Spin>::default();
    let task = PsiTask::default();
    cpu.queued(&task, || 0);
    let round = Cell::new(0);
    let times = cpu.times(|| {
        round.set(round.get() + 1);
        if round.get() == 1 {
            // While this reader has copied "one waits", that task gets the CPU.
            cpu.switched(None, Some(&task), Prev::Gone, || 40);
        }
        100
    });
    assert_eq!(round.get(), 2);
    assert_eq!(times, [40, 100]);
}

#[test]
fn a_reader_takes_nothing_while_a_change_is_written() {
    let cpu = PsiCpu::<Spin>::default();
    let task = PsiTask::default();
    let started = AtomicBool::new(false);
    let attempts = AtomicUsize::new(0);
    thread::scope(|scope| {
        let mut reader = None;
        cpu.queued(&task, || {
            reader = Some(scope.spawn(|| {
                started.store(true, Release);
                cpu.times(|| {
                    attempts.fetch_add(1, Relaxed);
                    30
                })
            }));
            while !started.load(Acquire) {
                thread::yield_now();
            }
            for _ in 0..2000 {
                thread::yield_now();
            }
            assert_eq!(attempts.load(Relaxed), 0);
            10
        });
        assert_eq!(reader.unwrap().join().unwrap(), [20, 20]);
    });
    assert_eq!(attempts.load(Relaxed), 1);
}

#[test]
fn a_clock_that_goes_back_adds_nothing_and_counts_nothing_twice() {
    let cpu = PsiCpu::<Spin>::default();
    let task = PsiTask::default();
    cpu.queued(&task, || 100);
    cpu.switched(None, Some(&task), Prev::Gone, || 200);
    cpu.switched(Some(&task), None, Prev::Queued, || 150);
    assert_eq!(some_and_nonidle(&cpu, 120), (100, 100));
    cpu.unqueued(&task, || 210);
    assert_eq!(some_and_nonidle(&cpu, 300), (110, 110));
}

#[test]
fn a_reader_whose_clock_runs_ahead_takes_no_time_twice() {
    let cpu = PsiCpu::<Spin>::default();
    let task = PsiTask::default();
    cpu.queued(&task, || 0);
    assert_eq!(cpu.take(|| 130), [130, 130]);
    // The CPU itself says that the wait ended before the reader looked.
    cpu.switched(None, Some(&task), Prev::Gone, || 100);
    assert_eq!(cpu.take(|| 110), [0, 0]);
    assert_eq!(cpu.take(|| 200), [0, 70]);
    cpu.switched(Some(&task), None, Prev::Queued, || 200);
    assert_eq!(cpu.take(|| 250), [20, 50]);
}

/// Makes a call that contradicts the record: it panics where debug assertions are on, and counts once in any case.
fn contradict(cpu: &PsiCpu<Spin>, call: impl FnOnce()) {
    let before = cpu.inconsistencies();
    let result = catch_unwind(AssertUnwindSafe(call));
    assert_eq!(result.is_err(), cfg!(debug_assertions));
    assert_eq!(cpu.inconsistencies(), before + 1);
    assert_eq!(cpu.sequence.load(Relaxed) & 1, 0);
}

#[test]
fn contradictions_are_counted_and_nothing_falls_below_zero() {
    let cpu = PsiCpu::<Spin>::default();
    let (a, b) = (PsiTask::default(), PsiTask::default());

    contradict(&cpu, || cpu.unqueued(&a, || 1));
    assert_eq!((cpu.counts(), flags(&a)), ((0, false), 0));

    contradict(&cpu, || {
        cpu.switched(Some(&a), None, Prev::Gone, || 2);
    });
    assert_eq!((cpu.counts(), flags(&a)), ((0, false), 0));

    cpu.queued(&a, || 3);
    contradict(&cpu, || cpu.queued(&a, || 4));
    assert_eq!((cpu.counts(), flags(&a)), ((2, false), 0x4));

    cpu.switched(None, Some(&a), Prev::Gone, || 5);
    // Two current tasks on one CPU.
    cpu.queued(&b, || 6);
    contradict(&cpu, || {
        cpu.switched(None, Some(&b), Prev::Gone, || 7);
    });
    // The current task is told to have left while it waits.
    contradict(&cpu, || cpu.unqueued(&b, || 8));
    assert_eq!(flags(&b), 0);

    // A task that nobody counts gets the CPU.
    let (other, uncounted) = (PsiCpu::<Spin>::default(), PsiTask::default());
    contradict(&other, || {
        other.switched(None, Some(&uncounted), Prev::Gone, || 9);
    });
    // Its leaving fits its flags, and only the count knows better.
    contradict(&other, || {
        other.switched(Some(&uncounted), None, Prev::Gone, || 10);
    });
    assert_eq!((other.counts(), flags(&uncounted)), ((0, false), 0));

    // So does the leaving of a task that waits on another CPU.
    let (here, there) = (PsiCpu::<Spin>::default(), PsiCpu::<Spin>::default());
    let task = PsiTask::default();
    there.queued(&task, || 11);
    contradict(&here, || here.unqueued(&task, || 12));
    assert_eq!((here.counts(), there.counts()), ((0, false), (1, false)));
}

/// Where the model has a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Asleep,
    Waits(usize),
    Runs(usize),
}

/// What may happen. Tasks and CPUs are numbers that are reduced to those there are.
#[derive(Clone, Copy, Debug)]
enum Event {
    Pass(u64),
    Wake { task: usize, cpu: usize },
    Migrate { task: usize, cpu: usize },
    Switch { cpu: usize, next: usize, prev: Leaves },
}

#[derive(Clone, Copy, Debug)]
enum Leaves {
    StaysQueued,
    Sleeps,
    GoesTo(usize),
}

const CPUS: usize = 3;
const TASKS: usize = 7;

fn event() -> impl Strategy<Value = Event> {
    let leaves = prop_oneof![
        2 => Just(Leaves::StaysQueued),
        2 => Just(Leaves::Sleeps),
        1 => (0..CPUS).prop_map(Leaves::GoesTo),
    ];
    prop_oneof![
        3 => (0u64..60).prop_map(Event::Pass),
        3 => (0..TASKS, 0..CPUS).prop_map(|(task, cpu)| Event::Wake { task, cpu }),
        1 => (0..TASKS, 0..CPUS).prop_map(|(task, cpu)| Event::Migrate { task, cpu }),
        4 => (0..CPUS, 0..=TASKS, leaves)
            .prop_map(|(cpu, next, prev)| Event::Switch { cpu, next, prev }),
    ]
}

/// The records, and beside them the definition: nanosecond by nanosecond, over every task.
struct Beside {
    now: Nanos,
    cpus: [PsiCpu<Spin>; CPUS],
    tasks: [PsiTask<Spin>; TASKS],
    places: [Place; TASKS],
    some: [Nanos; CPUS],
    nonidle: [Nanos; CPUS],
}

impl Beside {
    fn new() -> Self {
        Self {
            now: 0,
            cpus: array::from_fn(|_| PsiCpu::default()),
            tasks: array::from_fn(|_| PsiTask::default()),
            places: [Place::Asleep; TASKS],
            some: [0; CPUS],
            nonidle: [0; CPUS],
        }
    }

    fn pass(&mut self, nanos: Nanos) {
        for _ in 0..nanos {
            for cpu in 0..CPUS {
                let waits = self.places.contains(&Place::Waits(cpu));
                let runs = self.places.contains(&Place::Runs(cpu));
                self.some[cpu] += Nanos::from(waits);
                self.nonidle[cpu] += Nanos::from(waits || runs);
            }
        }
        self.now += nanos;
    }

    fn apply(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Pass(nanos) => self.pass(nanos),
            Event::Wake { task, cpu } => {
                if self.places[task] == Place::Asleep {
                    self.cpus[cpu].queued(&self.tasks[task], || now);
                    self.places[task] = Place::Waits(cpu);
                }
            }
            Event::Migrate { task, cpu } => {
                if let Place::Waits(from) = self.places[task] {
                    self.cpus[from].unqueued(&self.tasks[task], || now);
                    self.cpus[cpu].queued(&self.tasks[task], || now);
                    self.places[task] = Place::Waits(cpu);
                }
            }
            Event::Switch { cpu, next, prev } => self.switch(cpu, next, prev),
        }
    }

    fn switch(&mut self, cpu: usize, next: usize, leaves: Leaves) {
        let now = self.now;
        let running = self.places.iter().position(|&at| at == Place::Runs(cpu));
        let next = (next..TASKS).find(|&task| self.places[task] == Place::Waits(cpu));
        if running.is_none() && next.is_none() {
            return;
        }
        let prev_is = match leaves {
            Leaves::StaysQueued => Prev::Queued,
            Leaves::Sleeps | Leaves::GoesTo(_) => Prev::Gone,
        };
        self.cpus[cpu].switched(
            running.map(|task| &self.tasks[task]),
            next.map(|task| &self.tasks[task]),
            prev_is,
            || now,
        );
        if let Some(task) = next {
            self.places[task] = Place::Runs(cpu);
        }
        if let Some(task) = running {
            self.places[task] = match leaves {
                Leaves::StaysQueued => Place::Waits(cpu),
                Leaves::Sleeps => Place::Asleep,
                Leaves::GoesTo(other) => {
                    self.cpus[other].queued(&self.tasks[task], || now);
                    Place::Waits(other)
                }
            };
        }
    }

    fn check(&self) {
        for (task, place) in self.places.iter().enumerate() {
            let expected = match place {
                Place::Asleep => TaskFlags::empty().bits(),
                Place::Waits(_) => TaskFlags::RUNNING.bits(),
                Place::Runs(_) => (TaskFlags::RUNNING | TaskFlags::ONCPU).bits(),
            };
            assert_eq!(flags(&self.tasks[task]), expected);
        }
        for (number, cpu) in self.cpus.iter().enumerate() {
            let here = |&&at: &&Place| at == Place::Waits(number) || at == Place::Runs(number);
            let running = self.places.iter().filter(here).count() as u64;
            let oncpu = self.places.contains(&Place::Runs(number));
            assert_eq!(cpu.counts(), (running, oncpu));
            assert_eq!(cpu.inconsistencies(), 0);
            let (some, nonidle) = some_and_nonidle(cpu, self.now);
            assert_eq!((some, nonidle), (self.some[number], self.nonidle[number]));
            assert!(some <= nonidle && nonidle <= self.now);
        }
    }
}

proptest! {
    #[test]
    fn records_agree_with_the_definition(events in prop::collection::vec(event(), 1..300)) {
        let mut beside = Beside::new();
        for event in events {
            beside.apply(event);
            beside.check();
        }
    }

    #[test]
    fn what_is_taken_sums_up_to_what_passed(events in prop::collection::vec((event(), any::<bool>()), 1..200)) {
        let mut beside = Beside::new();
        let mut taken = [[0; State::COUNT]; CPUS];
        for (event, take) in events {
            beside.apply(event);
            if take {
                for (cpu, sum) in beside.cpus.iter().zip(&mut taken) {
                    let grown = cpu.take(|| beside.now);
                    prop_assert!(grown[0] <= grown[1]);
                    for (sum, grown) in sum.iter_mut().zip(grown) {
                        *sum += grown;
                    }
                    prop_assert_eq!(*sum, cpu.times(|| beside.now));
                }
            }
        }
    }
}

/// Tells the readers that the writer is done, also if it fails: a test that fails must not hang.
pub(in super::super) struct Ends<'a>(pub(in super::super) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Readers on other threads see only times that were true at the moment they read the clock.
#[test]
fn readers_never_see_time_that_is_impossible() {
    const ROUNDS: usize = 60_000;
    let cpu = PsiCpu::<Spin>::default();
    let tasks: Box<[PsiTask<Spin>]> = (0..3).map(|_| PsiTask::default()).collect();
    // One clock for all: every reading is a moment of its own, and orders what was done before it.
    let clock = AtomicU64::new(1);
    let tick = || clock.fetch_add(1, AcqRel);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let ends = Ends(&done);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut last = ([0; State::COUNT], 0);
                    let mut reads = 0u64;
                    while !done.load(Relaxed) || reads == 0 {
                        let at = Cell::new(0);
                        let times = cpu.times(|| {
                            at.set(tick());
                            at.get()
                        });
                        let passed = at.get() - last.1;
                        for (time, before) in times.into_iter().zip(last.0) {
                            let grown = time.checked_sub(before).expect("time ran backwards");
                            assert!(grown <= passed, "{grown} ns in {passed} ns");
                        }
                        assert!(times[0] <= times[1]);
                        last = (times, at.get());
                        reads += 1;
                    }
                    reads
                })
            })
            .collect();
        for round in 0..ROUNDS {
            let task = &tasks[round % tasks.len()];
            cpu.queued(task, tick);
            cpu.switched(None, Some(task), Prev::Gone, tick);
            cpu.switched(Some(task), None, Prev::Queued, tick);
            cpu.switched(None, Some(task), Prev::Gone, tick);
            cpu.switched(Some(task), None, Prev::Gone, tick);
            if round % 64 == 0 {
                thread::yield_now();
            }
        }
        drop(ends);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
    assert_eq!(cpu.inconsistencies(), 0);
    let (some, nonidle) = some_and_nonidle(&cpu, clock.load(Relaxed));
    // Two waits and two runs in each round, of at least one reading each.
    assert!(some >= 2 * ROUNDS as u64);
    assert!(nonidle >= some + 2 * ROUNDS as u64);
    assert!(nonidle < clock.load(Relaxed));
}
