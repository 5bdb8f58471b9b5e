//! The texts, to the byte, and as programs that read Linux's would read them.
//!
//! The golden files say what is written. That it is read elsewhere is shown by a parser from crates.io,
//! and by the patterns of the Go library behind most dashboards.

use procfs_core::{CpuPressure, FromBufRead, FromRead, process::Schedstat};
use proptest::prelude::*;
use regex::Regex;
use sched_core::{
    CpuId, CpuStats, Pressure, PressureAverage, TaskStats,
    text::{
        jiffies, pressure,
        schedstat::{self, Version},
    },
};

fn pressure_text(some: &Pressure) -> String {
    let mut text = String::new();
    pressure::write_cpu(&mut text, some).expect("a string takes everything");
    text
}

fn schedstat_text(jiffies: u64, cpus: &[(CpuId, CpuStats)]) -> String {
    let mut text = String::new();
    schedstat::write(&mut text, Version::V17, jiffies, cpus.iter().copied()).expect("a string takes everything");
    text
}

fn task_text(stats: &TaskStats) -> String {
    let mut text = String::new();
    schedstat::write_task(&mut text, stats).expect("a string takes everything");
    text
}

/// How the Go library reads a pressure file: lines of other kinds are skipped, a bad line spoils the file.
/// Its scanning stops after the last field; that nothing follows is asked here in addition.
fn scan_pressure(text: &str) -> Option<Vec<(String, [f64; 3], u64)>> {
    let rest = Regex::new(r"^avg10=([0-9.]+) avg60=([0-9.]+) avg300=([0-9.]+) total=([0-9]+)$").unwrap();
    let mut lines = Vec::new();
    for line in text.lines() {
        let kind = line.split(' ').next()?;
        if kind != "some" && kind != "full" {
            continue;
        }
        let fields = rest.captures(line.strip_prefix(kind)?.strip_prefix(' ')?)?;
        let number = |place: usize| fields[place].parse::<f64>().ok();
        lines.push((kind.to_owned(), [number(1)?, number(2)?, number(3)?], fields[4].parse().ok()?));
    }
    Some(lines)
}

/// How the Go library reads `/proc/schedstat`: nine numbers after `cpuN` anywhere in a line, of which it keeps the last
/// three. A line with fewer is dropped without a word.
fn scan_schedstat(text: &str) -> Vec<(String, [u64; 3])> {
    let cpu = Regex::new(r"cpu(\d+) (\d+) (\d+) (\d+) (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)").unwrap();
    text.lines()
        .filter_map(|line| cpu.captures(line))
        .map(|fields| (fields[1].to_owned(), [8, 9, 10].map(|place| fields[place].parse().unwrap())))
        .collect()
}

/// How the Go library reads `/proc/<pid>/schedstat`.
fn scan_task(text: &str) -> Option<[u64; 3]> {
    let fields = Regex::new(r"(\d+) (\d+) (\d+)").unwrap().captures(text)?;
    Some([1, 2, 3].map(|place| fields[place].parse().unwrap()))
}

/// What holds for every text: lines end in a line feed and in no blank, and blanks are single.
fn well_formed(text: &str) -> bool {
    text.ends_with('\n')
        && !text.contains("  ")
        && !text.contains(" \n")
        && !text.contains('\t')
        && !text.starts_with(' ')
        && text.lines().all(|line| !line.is_empty())
}

fn busy() -> Pressure {
    Pressure {
        avg10: PressureAverage::from_raw(129_406),
        avg60: PressureAverage::from_raw(31_380),
        avg300: PressureAverage::from_raw(6_907),
        total: 10_020_000_999,
    }
}

fn cpu0() -> CpuStats {
    CpuStats {
        yld_count: 3,
        sched_count: 812,
        sched_goidle: 97,
        ttwu_count: 240,
        ttwu_local: 118,
        rq_cpu_time: 51_200_345,
        run_delay: 7_340_021,
        pcount: 655,
    }
}

#[test]
fn pressure_is_written_as_in_the_golden_files() {
    assert_eq!(pressure_text(&busy()), include_str!("golden/pressure_cpu.txt"));
    assert_eq!(pressure_text(&Pressure::default()), include_str!("golden/pressure_cpu_idle.txt"));
    let steady = Pressure {
        avg10: PressureAverage::from_raw(100 * 2048),
        avg60: PressureAverage::from_raw(50 * 2048),
        avg300: PressureAverage::from_raw(150),
        total: u64::MAX,
    };
    assert_eq!(pressure_text(&steady), include_str!("golden/pressure_cpu_steady.txt"));
}

#[test]
fn schedstat_is_written_as_in_the_golden_files() {
    let wide = CpuStats {
        yld_count: u32::MAX.into(),
        sched_count: 1 << 32,
        sched_goidle: (1 << 32) + 1,
        ttwu_count: (7 << 32) + 2,
        ttwu_local: u64::MAX - 1,
        rq_cpu_time: u64::MAX,
        run_delay: 1 << 32,
        pcount: (1 << 32) + 1,
    };
    let counting = CpuStats {
        yld_count: 1,
        sched_count: 2,
        sched_goidle: 3,
        ttwu_count: 4,
        ttwu_local: 5,
        rq_cpu_time: 6,
        run_delay: 7,
        pcount: 8,
    };
    let cpus = [(CpuId(0), cpu0()), (CpuId(1), CpuStats::default()), (CpuId(7), wide), (CpuId(12), counting)];
    assert_eq!(schedstat_text(4_294_901_234, &cpus), include_str!("golden/schedstat_v17.txt"));
    assert_eq!(schedstat_text(jiffies(0, 250), &[]), include_str!("golden/schedstat_v17_no_cpu.txt"));
    let task = TaskStats { sum_exec_runtime: 3_143_759, run_delay: 221_586, pcount: 11 };
    assert_eq!(task_text(&task), include_str!("golden/pid_schedstat.txt"));
}

#[test]
fn writers_take_a_writer_behind_a_reference() {
    let mut text = String::new();
    let writer: &mut dyn core::fmt::Write = &mut text;
    pressure::write_cpu(writer, &Pressure::default()).unwrap();
    schedstat::write(writer, Version::V17, 0, [(CpuId(0), CpuStats::default())]).unwrap();
    schedstat::write_task(writer, &TaskStats::default()).unwrap();
    assert!(text.ends_with("\nversion 17\ntimestamp 0\ncpu0 0 0 0 0 0 0 0 0 0\n0 0 0\n"));
}

/// A writer that has room for so many bytes.
struct Room(usize);

impl core::fmt::Write for Room {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.0 = self.0.checked_sub(text.len()).ok_or(core::fmt::Error)?;
        Ok(())
    }
}

#[test]
fn a_writer_that_is_full_is_reported() {
    let some = busy();
    let whole = pressure_text(&some).len();
    assert!(pressure::write_cpu(&mut Room(whole), &some).is_ok());
    assert!((0..whole).all(|room| pressure::write_cpu(&mut Room(room), &some).is_err()));
    let cpus = [(CpuId(0), cpu0()), (CpuId(1), cpu0())];
    let whole = schedstat_text(1, &cpus).len();
    assert!(schedstat::write(&mut Room(whole), Version::V17, 1, cpus).is_ok());
    assert!((0..whole).all(|room| schedstat::write(&mut Room(room), Version::V17, 1, cpus).is_err()));
}

#[test]
fn ticks_start_five_minutes_before_32_bits_wrap() {
    assert_eq!(jiffies(0, 250), 4_294_892_296);
    assert_eq!(jiffies(3_999_999, 250), 4_294_892_296);
    assert_eq!(jiffies(4_000_000, 250), 4_294_892_297);
    assert_eq!(jiffies(0, 100), 4_294_937_296);
    assert_eq!(jiffies(0, 1000), 4_294_667_296);
    for hz in [100, 250, 1000] {
        assert_eq!(jiffies(300_000_000_000, hz), 1 << 32, "HZ {hz}");
        assert_eq!(jiffies(300_000_000_000 - 1, hz), (1 << 32) - 1, "HZ {hz}");
    }
    // No rate makes it panic.
    for hz in [0, 300, 1_000_000_000, u32::MAX] {
        let _ = jiffies(u64::MAX / 2, hz);
    }
}

#[test]
fn the_scanners_see_what_is_wrong() {
    let good = include_str!("golden/pressure_cpu.txt");
    assert_eq!(scan_pressure(good).map(|lines| lines.len()), Some(2));
    for (old, new) in [("avg60", "avg70"), (" total=0", ""), (" avg300", "  avg300")] {
        assert_eq!(scan_pressure(&good.replace(old, new)), None, "{old} -> {new}");
    }
    // After a TAB the kind is another word, and the line is skipped.
    assert_eq!(scan_pressure(&good.replace(" avg10", "\tavg10")), Some(Vec::new()));
    let good = include_str!("golden/schedstat_v17.txt");
    assert_eq!(scan_schedstat(good).len(), 4);
    assert_eq!(scan_schedstat(&good.replace(" 655\n", "\n")).len(), 3);
    assert_eq!(scan_schedstat(&good.replace("cpu0 3", "cpu0  3")).len(), 3);
    assert_eq!(scan_task("1 2\n"), None);
}

/// `/proc/schedstat` and `/proc/pressure/cpu` of other systems have these shapes: the scanners must take them.
#[test]
fn the_scanners_take_texts_of_other_systems() {
    let other = "version 15\ntimestamp 4294896000\n\
        cpu0 0 0 2180 111 399 274 80635799 81371979 4509\n\
        domain0 f 7 7 1 2 1 0 0 7 4 3 3 6 3 0 0 3 4 2 9 4 1 0 0 2 0 0 0 0 0 0 0 0 0 1 1 0\n\
        cpu1 0 0 255 97 143 24 84508161 88712835 1584\n";
    let cpus = [("0".to_owned(), [80_635_799, 81_371_979, 4_509]), ("1".to_owned(), [84_508_161, 88_712_835, 1_584])];
    assert_eq!(scan_schedstat(other), cpus);
    let other = "some avg10=1.69 avg60=3.40 avg300=0.70 total=2470\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
    let lines = scan_pressure(other).unwrap();
    assert_eq!(lines[0], ("some".to_owned(), [1.69, 3.4, 0.7], 2470));
    assert_eq!(scan_task("31008433 19459 10\n"), Some([31_008_433, 19_459, 10]));
}

fn cpu_stats() -> impl Strategy<Value = CpuStats> {
    (any::<[u64; 5]>(), any::<[u64; 3]>()).prop_map(|(events, rest)| CpuStats {
        yld_count: events[0],
        sched_count: events[1],
        sched_goidle: events[2],
        ttwu_count: events[3],
        ttwu_local: events[4],
        rq_cpu_time: rest[0],
        run_delay: rest[1],
        pcount: rest[2],
    })
}

proptest! {
    #[test]
    fn pressure_is_read_as_it_was_written(raw in any::<[u32; 3]>(), total in any::<u64>()) {
        let raw = raw.map(|raw| raw % (100 * 2048 + 1));
        let [avg10, avg60, avg300] = raw.map(PressureAverage::from_raw);
        let text = pressure_text(&Pressure { avg10, avg60, avg300, total });
        prop_assert!(well_formed(&text));

        let read = CpuPressure::from_buf_read(text.as_bytes()).unwrap();
        prop_assert_eq!(read.some.total, total / 1000);
        let full = &read.full;
        prop_assert_eq!((full.avg10, full.avg60, full.avg300, full.total), (0.0, 0.0, 0.0, 0));

        let lines = scan_pressure(&text).unwrap();
        prop_assert_eq!(lines.len(), 2);
        let (kind, averages, micros) = &lines[0];
        prop_assert_eq!((kind.as_str(), *micros), ("some", total / 1000));
        prop_assert_eq!(&lines[1], &("full".to_owned(), [0.0; 3], 0));

        let read = [read.some.avg10, read.some.avg60, read.some.avg300];
        for ((raw, scanned), read) in raw.into_iter().zip(averages).zip(read) {
            let exact = f64::from(raw) / 2048.0;
            for seen in [*scanned, f64::from(read)] {
                prop_assert!(seen <= exact + 1e-5 && exact < seen + 0.01 + 1e-5, "{} for {}", seen, exact);
            }
        }
    }

    #[test]
    fn schedstat_is_read_as_it_was_written(now in any::<u32>(), cpus in prop::collection::vec((0u32..1024, cpu_stats()), 0..20)) {
        let cpus: Vec<_> = cpus.into_iter().map(|(number, stats)| (CpuId(number), stats)).collect();
        let ticks = jiffies(now.into(), 250);
        let text = schedstat_text(ticks, &cpus);
        prop_assert!(well_formed(&text));
        let head = format!("version 17\ntimestamp {ticks}\n");
        prop_assert!(text.starts_with(&head));
        prop_assert_eq!(text.lines().count(), 2 + cpus.len());

        let kept: Vec<_> = cpus
            .iter()
            .map(|(CpuId(number), stats)| (number.to_string(), [stats.rq_cpu_time, stats.run_delay, stats.pcount]))
            .collect();
        prop_assert_eq!(scan_schedstat(&text), kept);

        for (line, (_, stats)) in text.lines().skip(2).zip(&cpus) {
            let numbers: Vec<u64> = line.split(' ').skip(1).map(|number| number.parse().unwrap()).collect();
            let wrap = |count: u64| count % (1 << 32);
            prop_assert_eq!(numbers, [
                wrap(stats.yld_count), 0, wrap(stats.sched_count), wrap(stats.sched_goidle),
                wrap(stats.ttwu_count), wrap(stats.ttwu_local),
                stats.rq_cpu_time, stats.run_delay, stats.pcount,
            ]);
        }
    }

    #[test]
    fn a_task_is_read_as_it_was_written(sum_exec_runtime in any::<u64>(), run_delay in any::<u64>(), pcount in any::<u64>()) {
        let text = task_text(&TaskStats { sum_exec_runtime, run_delay, pcount });
        prop_assert!(well_formed(&text));
        prop_assert_eq!(text.lines().count(), 1);
        let read = Schedstat::from_read(text.as_bytes()).unwrap();
        let expected = [sum_exec_runtime, run_delay, pcount];
        prop_assert_eq!([read.sum_exec_runtime, read.run_delay, read.pcount], expected);
        prop_assert_eq!(scan_task(&text), Some(expected));
    }
}
