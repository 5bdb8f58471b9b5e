//! Tests of the scheduler's pressure: the worked examples of the reference, pauses, and a model in plain arithmetic.

use super::{record::tests::Ends, *};
use crate::{stats::Prev, sync::Spin};
use proptest::prelude::*;
use std::{
    format,
    string::String,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel},
    thread,
    vec::Vec,
};

const MILLI: Nanos = 1_000_000;
const HZ: u32 = 250;
const TICK: Nanos = 4 * MILLI;
const PERIOD: Nanos = 501 * TICK;

type Record = PsiCpu<Spin>;

fn records(count: usize) -> Vec<Record> {
    (0..count).map(|_| Record::default()).collect()
}

fn read(psi: &Psi<Spin>, records: &[Record], now: Nanos) -> Pressure {
    psi.read(now, records.iter(), |_| now)
}

fn update(psi: &Psi<Spin>, records: &[Record], now: Nanos) {
    psi.try_update(now, records.iter(), |_| now);
}

fn text(pressure: Pressure) -> String {
    let Pressure { avg10, avg60, avg300, .. } = pressure;
    format!("{avg10} {avg60} {avg300}")
}

fn raw(pressure: Pressure) -> [u32; 3] {
    [pressure.avg10, pressure.avg60, pressure.avg300].map(Average::raw)
}

#[test]
fn a_period_is_two_seconds_and_a_tick() {
    for (hz, period) in [(100, 2010 * MILLI), (250, 2004 * MILLI), (1000, 2001 * MILLI)] {
        let psi = Psi::<Spin>::new(7, hz);
        assert!(!psi.due(7 + period - 1), "HZ {hz}");
        assert!(psi.due(7 + period), "HZ {hz}");
    }
    // Absurd rates make absurd periods, and no panic.
    assert!(!Psi::<Spin>::new(0, 0).due(3_000 * MILLI - 1));
    assert!(Psi::<Spin>::new(0, u32::MAX).due(3_000 * MILLI));
}

#[test]
fn a_waiting_task_drives_the_averages_as_in_the_reference() {
    let psi = Psi::<Spin>::new(0, HZ);
    let cpus = records(1);
    let task = PsiTask::default();
    cpus[0].queued(&task, || 0);
    for (period, printed) in
        (1..).zip(["18.11 3.27 0.68", "32.94 6.43 1.36", "45.09 9.49 2.03", "55.04 12.45 2.70", "63.18 15.32 3.37"])
    {
        let now = period * PERIOD;
        update(&psi, &cpus, now);
        let pressure = read(&psi, &cpus, now);
        assert_eq!(text(pressure), printed);
        assert_eq!(pressure.total, now);
    }
    cpus[0].switched(None, Some(&task), Prev::Gone, || 5 * PERIOD);
    for (period, printed) in (6..).zip(["51.73 14.82 3.34", "42.36 14.33 3.32", "34.69 13.86 3.30"]) {
        let pressure = read(&psi, &cpus, period * PERIOD);
        assert_eq!(text(pressure), printed);
        assert_eq!(pressure.total, 5 * PERIOD);
    }
}

#[test]
fn an_idle_pause_decays_by_the_periods_nobody_saw() {
    let psi = Psi::<Spin>::new(0, HZ);
    let cpus = records(1);
    let task = PsiTask::default();
    cpus[0].queued(&task, || 0);
    for period in 1..=5 {
        update(&psi, &cpus, period * PERIOD);
    }
    cpus[0].unqueued(&task, || 5 * PERIOD);
    // Nine periods end unseen; the look comes late in the eleventh.
    let late = 15 * PERIOD + PERIOD / 3;
    let pressure = read(&psi, &cpus, late);
    assert_eq!(raw(pressure), [17488, 22512, 6447]);
    assert_eq!(text(pressure), "8.53 10.99 3.14");
    // The rhythm is that of the first period, not that of the look.
    assert!(!psi.due(16 * PERIOD - 1));
    assert!(psi.due(16 * PERIOD));
}

#[test]
fn the_time_a_sample_stands_for_ends_at_the_look() {
    let psi = Psi::<Spin>::new(0, HZ);
    let cpus = records(1);
    let task = PsiTask::default();
    // A wait of half a period, looked at half a period late: a third of 1.5 periods.
    cpus[0].queued(&task, || PERIOD);
    let first = read(&psi, &cpus, PERIOD + PERIOD / 2);
    assert_eq!(first.avg10, Average::default().after(33, Decay::TEN_SECONDS));
    // The next period starts at that look: a wait of all of the remaining half.
    let second = read(&psi, &cpus, 2 * PERIOD);
    assert_eq!(second.avg10, first.avg10.after(100, Decay::TEN_SECONDS));
}

#[test]
fn a_share_below_one_percent_counts_as_nothing() {
    let psi = Psi::<Spin>::new(0, HZ);
    let cpus = records(1);
    let (task, other) = (PsiTask::default(), PsiTask::default());
    cpus[0].queued(&task, || 0);
    cpus[0].switched(None, Some(&task), Prev::Gone, || 0);
    cpus[0].queued(&other, || 100);
    cpus[0].unqueued(&other, || 100 + PERIOD / 100 - 1);
    let pressure = read(&psi, &cpus, PERIOD);
    assert_eq!(raw(pressure), [0; 3]);
    assert_eq!(pressure.total, PERIOD / 100 - 1);
    cpus[0].queued(&other, || PERIOD);
    cpus[0].unqueued(&other, || PERIOD + PERIOD / 100);
    assert_eq!(text(read(&psi, &cpus, 2 * PERIOD)), "0.18 0.03 0.00");
}

#[test]
fn what_a_sample_cannot_hold_is_part_of_the_next() {
    let psi = Psi::<Spin>::new(0, HZ);
    let cpus = records(1);
    let task = PsiTask::default();
    cpus[0].queued(&task, || 0);
    // Three periods of waiting, looked at once: the last one makes the sample, two are left.
    assert_eq!(text(read(&psi, &cpus, 3 * PERIOD)), "18.11 3.27 0.68");
    cpus[0].unqueued(&task, || 3 * PERIOD);
    assert_eq!(text(read(&psi, &cpus, 4 * PERIOD)), "32.94 6.43 1.36");
    assert_eq!(text(read(&psi, &cpus, 5 * PERIOD)), "45.09 9.49 2.03");
    let end = read(&psi, &cpus, 6 * PERIOD);
    assert!(end.avg10.raw() < 92356);
    assert_eq!(end.total, 3 * PERIOD);
}

/// A CPU that was not idle from 0 to `nonidle`, and under pressure for the first `some` of it.
fn busy(record: &Record, some: Nanos, nonidle: Nanos) {
    let task = PsiTask::default();
    record.queued(&task, || 0);
    record.switched(None, Some(&task), Prev::Gone, || some);
    record.switched(Some(&task), None, Prev::Gone, || nonidle);
}

#[test]
fn cpus_count_by_their_busy_ticks_as_in_the_example_of_the_reference() {
    let psi = Psi::<Spin>::new(0, HZ);
    let cpus = records(2);
    busy(&cpus[0], 500 * MILLI, 1000 * MILLI);
    busy(&cpus[1], 250 * MILLI, 250 * MILLI);
    assert_eq!(read(&psi, &cpus, 1000 * MILLI).total, 450_320_512);
}

#[test]
fn idle_cpus_do_not_dilute_pressure_and_busy_ones_do() {
    let psi = Psi::<Spin>::new(0, HZ);
    let cpus = records(8);
    cpus[..4].iter().for_each(|cpu| busy(cpu, PERIOD, PERIOD));
    assert_eq!(read(&psi, &cpus, PERIOD).total, PERIOD);

    let psi = Psi::<Spin>::new(0, HZ);
    let cpus = records(2);
    busy(&cpus[0], PERIOD, PERIOD);
    busy(&cpus[1], 0, PERIOD);
    let pressure = read(&psi, &cpus, PERIOD);
    assert_eq!(pressure.total, PERIOD / 2);
    assert_eq!(pressure.avg10, Average::default().after(50, Decay::TEN_SECONDS));
}

#[test]
fn less_than_a_tick_has_no_weight() {
    let psi = Psi::<Spin>::new(0, HZ);
    let cpus = records(2);
    busy(&cpus[0], TICK - 1, TICK - 1);
    assert_eq!(read(&psi, &cpus, TICK).total, 0);
    let psi = Psi::<Spin>::new(0, HZ);
    busy(&cpus[1], TICK / 2, TICK);
    assert_eq!(read(&psi, &cpus, 2 * TICK).total, TICK / 2);
}

#[test]
fn each_cpu_is_read_by_its_own_clock() {
    let psi = Psi::<Spin>::new(0, HZ);
    let cpus = records(2);
    let tasks: [PsiTask<Spin>; 2] = core::array::from_fn(|_| PsiTask::default());
    cpus[0].queued(&tasks[0], || 0);
    cpus[1].queued(&tasks[1], || 500 * TICK);
    let clocks = [100 * TICK, 700 * TICK];
    let pressure = psi.read(100 * TICK, cpus.iter(), |cpu| clocks[cpu]);
    assert_eq!(pressure.total, (100 * 100 + 200 * 200) * TICK / 300);
}

#[test]
fn a_reader_that_paused_for_a_year_gets_it_all() {
    const YEAR: Nanos = 365 * 86_400 * 1_000 * MILLI;
    let psi = Psi::<Spin>::new(0, HZ);
    let cpus = records(64);
    let tasks: Vec<PsiTask<Spin>> = (0..64).map(|_| PsiTask::default()).collect();
    for (cpu, task) in cpus.iter().zip(&tasks) {
        cpu.queued(task, || 0);
    }
    let pressure = read(&psi, &cpus, YEAR);
    assert_eq!(pressure.total, YEAR);
    assert_eq!(text(pressure), "18.11 3.27 0.68");
    let next = YEAR.next_multiple_of(PERIOD);
    assert!(!psi.due(next - 1) && psi.due(next));
}

#[test]
fn a_scheduler_that_starts_late_in_an_uptime_has_no_past() {
    const UPTIME: Nanos = 1 << 56;
    let psi = Psi::<Spin>::new(UPTIME, HZ);
    let cpus = records(1);
    assert_eq!(read(&psi, &cpus, UPTIME), Pressure::default());
    cpus[0].queued(&PsiTask::default(), || UPTIME);
    let pressure = read(&psi, &cpus, UPTIME + PERIOD);
    assert_eq!((pressure.total, text(pressure).as_str()), (PERIOD, "18.11 3.27 0.68"));
}

#[test]
fn a_tick_before_its_time_or_behind_another_looks_at_nothing() {
    let psi = Psi::<Spin>::new(0, HZ);
    let nothing = || core::iter::from_fn(|| unreachable!("not due"));
    psi.try_update(PERIOD - 1, nothing(), |_| 0);
    let cpus = records(1);
    update(&psi, &cpus, PERIOD);
    psi.try_update(PERIOD, nothing(), |_| 0);
    psi.try_update(2 * PERIOD - 1, nothing(), |_| 0);
}

#[test]
fn a_tick_that_finds_the_lock_taken_leaves_the_work_to_its_holder() {
    let psi = Psi::<Spin>::new(0, HZ);
    let held = psi.averages.lock();
    psi.try_update(PERIOD, core::iter::from_fn(|| unreachable!("locked")), |_| 0);
    drop(held);
    assert!(psi.due(PERIOD));
}

#[test]
fn a_read_within_a_period_moves_the_total_and_no_average() {
    let psi = Psi::<Spin>::new(0, HZ);
    let cpus = records(1);
    let task = PsiTask::default();
    cpus[0].queued(&task, || 0);
    let early = read(&psi, &cpus, 100 * TICK);
    assert_eq!((early.total, raw(early)), (100 * TICK, [0; 3]));
    assert_eq!(text(read(&psi, &cpus, PERIOD)), "18.11 3.27 0.68");
    assert_eq!(text(read(&psi, &cpus, PERIOD)), "18.11 3.27 0.68");
}

/// What the reference says, in wide plain numbers: intervals of one CPU, then totals, then averages.
struct Model {
    hz: u128,
    last: u128,
    next: u128,
    total: u128,
    sampled: u128,
    averages: [u128; 3],
}

impl Model {
    fn look(&mut self, now: u128, grown: &[(u128, u128)]) {
        let tick = 1_000_000_000 / self.hz;
        let period = (2 * self.hz + 1) * tick;
        let weights: u128 = grown.iter().map(|(_, nonidle)| nonidle / tick).sum();
        let sum: u128 = grown.iter().map(|(some, nonidle)| some * (nonidle / tick)).sum();
        self.total += sum.checked_div(weights).unwrap_or(0);
        if now < self.next {
            return;
        }
        let mut missed = 0;
        while now >= self.next + period {
            self.next += period;
            missed += 1;
        }
        self.next += period;
        let real = now - self.last - missed * period;
        self.last = now;
        let sample = (self.total - self.sampled).min(real);
        self.sampled += sample;
        for (average, decay) in self.averages.iter_mut().zip([1677u128, 1981, 2034]) {
            let mut left = 2048;
            let (mut power, mut n) = (decay, missed);
            while n > 0 {
                if n % 2 == 1 {
                    left = (left * power + 1024) / 2048;
                }
                power = (power * power + 1024) / 2048;
                n /= 2;
            }
            // Towards nothing: rounded up only where there is nothing to decay.
            *average = *average * left / 2048;
            let active = sample * 100 / real * 2048;
            let up = if active >= *average { 2047 } else { 0 };
            *average = (*average * decay + active * (2048 - decay) + up) / 2048;
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Pass(Nanos),
    Queue { cpu: usize },
    Run { cpu: usize },
    Leave { cpu: usize },
    Tick,
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..300 * MILLI).prop_map(Step::Pass),
        1 => (0..7 * PERIOD).prop_map(Step::Pass),
        2 => (0usize..3).prop_map(|cpu| Step::Queue { cpu }),
        2 => (0usize..3).prop_map(|cpu| Step::Run { cpu }),
        2 => (0usize..3).prop_map(|cpu| Step::Leave { cpu }),
        3 => Just(Step::Tick),
        1 => Just(Step::Read),
    ]
}

proptest! {
    /// Two tasks on each of three CPUs. The first may run; the second only waits, after the first.
    #[test]
    fn pressure_agrees_with_the_model(
        hz in prop::sample::select(std::vec![100u32, 250, 300, 1000]),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let psi = Psi::<Spin>::new(0, hz);
        let cpus = records(3);
        let tasks: Vec<[PsiTask<Spin>; 2]> = (0..3).map(|_| Default::default()).collect();
        let mut state = [(false, false, false); 3]; // first waits, first runs, second waits
        let mut grown = [(0u128, 0u128); 3];
        let mut now: Nanos = 0;
        let mut model = Model {
            hz: u128::from(hz),
            last: 0,
            next: u128::from((2 * u64::from(hz) + 1) * (NANOS_PER_SECOND / u64::from(hz))),
            total: 0,
            sampled: 0,
            averages: [0; 3],
        };
        let (mut seen, mut seen_at) = (0, 0);
        for step in steps {
            match step {
                Step::Pass(nanos) => {
                    now += nanos;
                    for ((waits, runs, second), (some, nonidle)) in state.iter().zip(&mut grown) {
                        *some += u128::from(nanos) * u128::from(*waits || *second);
                        *nonidle += u128::from(nanos) * u128::from(*waits || *second || *runs);
                    }
                }
                Step::Queue { cpu } => {
                    let at = &mut state[cpu];
                    if !at.0 && !at.1 {
                        cpus[cpu].queued(&tasks[cpu][0], || now);
                        at.0 = true;
                    } else if !at.2 {
                        cpus[cpu].queued(&tasks[cpu][1], || now);
                        at.2 = true;
                    }
                }
                Step::Run { cpu } => {
                    if core::mem::replace(&mut state[cpu].0, false) {
                        cpus[cpu].switched(None, Some(&tasks[cpu][0]), Prev::Gone, || now);
                        state[cpu].1 = true;
                    }
                }
                Step::Leave { cpu } => {
                    let at = &mut state[cpu];
                    if core::mem::replace(&mut at.1, false) {
                        cpus[cpu].switched(Some(&tasks[cpu][0]), None, Prev::Gone, || now);
                    } else if core::mem::replace(&mut at.2, false) {
                        cpus[cpu].unqueued(&tasks[cpu][1], || now);
                    }
                }
                Step::Tick => {
                    if u128::from(now) >= model.next {
                        model.look(now.into(), &grown);
                        grown = [(0, 0); 3];
                    }
                    update(&psi, &cpus, now);
                }
                Step::Read => {
                    model.look(now.into(), &grown);
                    grown = [(0, 0); 3];
                    let pressure = read(&psi, &cpus, now);
                    prop_assert_eq!(u128::from(pressure.total), model.total);
                    prop_assert_eq!(raw(pressure).map(u128::from), model.averages);
                    prop_assert!(pressure.total >= seen);
                    prop_assert!(pressure.total - seen <= now - seen_at);
                    prop_assert!(raw(pressure).iter().all(|&raw| raw <= 204_800));
                    (seen, seen_at) = (pressure.total, now);
                }
            }
            prop_assert_eq!(psi.due(now), u128::from(now) >= model.next);
        }
    }
}

/// Two CPUs write, two threads read and tick: no total falls, none grows faster than time.
#[test]
fn totals_hold_while_others_write_and_read() {
    const ROUNDS: usize = 20_000;
    let hz = 1_000_000; // A tick of 1000 readings: many periods fit into the test.
    let cpus = records(2);
    let clock = AtomicU64::new(1);
    let tick = || clock.fetch_add(1, AcqRel);
    let psi = Psi::<Spin>::new(0, hz);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let ends = Ends(&done);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let (mut before, mut reads) = (0, 0u64);
                    while !done.load(Relaxed) || reads == 0 {
                        psi.try_update(tick(), cpus.iter(), |_| tick());
                        let total = psi.read(tick(), cpus.iter(), |_| tick()).total;
                        let now = clock.load(Relaxed);
                        assert!(total >= before, "the total fell from {before} to {total}");
                        assert!(total <= now, "{total} ns under pressure in {now} ns");
                        (before, reads) = (total, reads + 1);
                    }
                    reads
                })
            })
            .collect();
        let writers: Vec<_> = cpus
            .iter()
            .map(|cpu| {
                scope.spawn(|| {
                    let task = PsiTask::default();
                    for round in 0..ROUNDS {
                        cpu.queued(&task, tick);
                        cpu.switched(None, Some(&task), Prev::Gone, tick);
                        cpu.switched(Some(&task), None, Prev::Gone, tick);
                        if round % 64 == 0 {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        drop(ends);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
    assert!(cpus.iter().all(|cpu| cpu.inconsistencies() == 0));
}
