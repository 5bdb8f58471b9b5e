use super::*;
use crate::plan::works;
use proptest::prelude::*;
use sched_core::{CpuId, IdleWhileWaiting};

fn work(item: &str) -> Work {
    works(item.as_bytes(), 8).next().unwrap().unwrap()
}

fn spin() -> Spin {
    Spin { cpu: Some(CpuId(0)), ..Spin::default() }
}

fn task(nice: i32, cpu_nanos: u64) -> SpinTask {
    SpinTask { nice: Nice::new(nice).unwrap(), policy: Policy::Normal, cpu_nanos }
}

#[test]
fn the_pipe_text_is_perf_s() {
    let pipe = Pipe { loops: 20_000, ..Pipe::default() };
    let measured = Measured { nanos: 286_252_000, ops: 20_000 };
    assert_eq!(
        pipe_text(&pipe, measured).to_string(),
        "# Running 'sched/pipe' benchmark:\n\
         # Executed 20000 pipe operations between two threads\n\
         \n     Total time: 0.286 [sec]\n\
         \n      14.312600 usecs/op\n          69868 ops/sec\n"
    );
}

#[test]
fn the_messaging_text_is_perf_s() {
    let messaging = Messaging { groups: 2, ..Messaging::default() };
    assert_eq!(
        messaging_text(&messaging, Measured { nanos: 59_999_999, ops: 80_000 }).to_string(),
        "# Running 'sched/messaging' benchmark:\n\
         # 20 sender and receiver threads per group\n\
         # 2 groups == 80 threads run\n\
         \n     Total time: 0.059 [sec]\n"
    );
}

#[test]
fn the_bench_line_is_the_interface_s() {
    let machine = Machine { cpus: 8, build: "all", cmdline: b"schedstats=enable psi=1" };
    let line = BenchLine {
        work: &work("pipe:cpu=0"),
        machine: &machine,
        measured: Measured { nanos: 1_234_567_890, ops: 100_000 },
        worst_share: None,
        status: Status::Ok,
    };
    assert_eq!(
        line.to_string(),
        "bench workload=pipe loops=100000 cpu=0 size=4 smp=8 build=all cmdline=\"schedstats=enable psi=1\" clock=tsc \
         seconds=1.234567890 ops=100000 ops_per_s=81000.0 usecs_per_op=12.345679 status=ok"
    );
}

#[test]
fn a_command_line_cannot_break_out_of_its_quotes() {
    let machine = Machine { cpus: 1, build: "none", cmdline: b"a=\"b c\" status=ok\n\\\xff" };
    let line = BenchLine {
        work: &work("messaging"),
        machine: &machine,
        measured: Measured::default(),
        worst_share: None,
        status: Status::Failed,
    };
    assert_eq!(
        line.to_string(),
        "bench workload=messaging groups=10 fds=20 loops=100 size=100 via=pipe smp=1 build=none \
         cmdline=\"a=\\x22b c\\x22 status=ok\\x0a\\x5c\\xff\" clock=tsc \
         seconds=0.000000000 ops=0 ops_per_s=0.0 usecs_per_op=0.000000 status=failed"
    );
}

#[test]
fn the_last_line_is_the_interface_s() {
    let good = Summary { workloads: 2, failed: 0, cpus: 8, faults: 0 };
    assert_eq!(good.to_string(), "end status=ok workloads=2 failed=0 cpus=8");
    let unsound = Summary { faults: 1, ..good };
    assert_eq!(unsound.to_string(), "end status=failed workloads=2 failed=0 cpus=8");
    let bad = Summary { failed: 1, ..good };
    assert_eq!(bad.to_string(), "end status=failed workloads=2 failed=1 cpus=8");
}

#[test]
fn shares_are_shown_against_what_weights_say() {
    // 1024 : 335.
    let tasks = [task(0, 1_024_000_000), task(5, 335_000_000)];
    let table = SpinTable { spin: &spin(), nanos: 1_359_000_000, sharing: Sharing::OneCpu, tasks: &tasks };
    assert_eq!(table.worst_share().unwrap().to_string(), "0.000");
    let text = table.to_string();
    let rows: Vec<_> = text.lines().skip(4).collect();
    assert_eq!(
        rows,
        [
            "task            nice policy       cpu [ms]  share [%]    due [%]",
            "spin-0             0 normal    1024.000000    75.3495    75.3495",
            "spin-1             5 normal     335.000000    24.6505    24.6505",
        ]
    );
    assert!(text.contains("# 2 threads for 1.359 s, all on CPU 0\n"));
}

#[test]
fn the_worst_share_is_relative_to_what_is_due() {
    // The light one has 10 % more than its 335 / 1359; the heavy one 3.27 % less.
    let tasks = [task(0, 1_359_000_000 - 368_500_000), task(5, 368_500_000)];
    let table = SpinTable { spin: &spin(), nanos: 1, sharing: Sharing::OneCpu, tasks: &tasks };
    assert_eq!(table.worst_share().unwrap().to_string(), "10.000");
    let several = SpinTable { sharing: Sharing::Several, ..table };
    assert_eq!(several.worst_share(), None);
    assert!(several.to_string().lines().last().unwrap().ends_with(" -"));
}

#[test]
fn threads_that_never_ran_are_no_division_by_zero() {
    let tasks = [task(0, 0), task(19, 0)];
    let table = SpinTable { spin: &spin(), nanos: 0, sharing: Sharing::OneCpu, tasks: &tasks };
    assert_eq!(table.worst_share().unwrap().to_string(), "0.000");
    assert!(table.to_string().contains("for 0.000 s"));
}

#[test]
fn the_watch_says_what_it_saw() {
    let nothing = WatchReport { bound: 10_000_000, violations: 0, worst: None };
    assert_eq!(WatchLine(nothing).to_string(), "watch bound_ms=10 violations=0 worst_ms=0.000");
    let worst = IdleWhileWaiting { idle: CpuId(3), waits_on: CpuId(0), nanos: 12_345_678 };
    let two = WatchReport { violations: 2, worst: Some(worst), ..nothing };
    assert_eq!(WatchLine(two).to_string(), "watch bound_ms=10 violations=2 worst_ms=12.346 idle_cpu=3 waits_on_cpu=0");
}

#[test]
fn quotients_are_rounded_to_the_nearest() {
    for (numerator, denominator, decimals, text) in [
        (1, 3, 3, "0.333"),
        (2, 3, 3, "0.667"),
        (1, 2, 0, "1"),
        (999_999, 1_000_000, 3, "1.000"),
        (5, 0, 2, "0.00"),
        (u128::MAX, 1, 0, "340282366920938463463374607431768211455"),
    ] {
        assert_eq!(Decimal::quotient(numerator, denominator, decimals).to_string(), text);
    }
}

proptest! {
    #[test]
    fn figures_agree_with_floating_point(nanos in 1_u64..1 << 50, ops in 1_u64..1 << 40) {
        let measured = Measured { nanos, ops };
        let close = |text: String, expected: f64, unit: f64| (text.parse::<f64>().unwrap() - expected).abs() <= unit.max(expected * 1e-12);
        prop_assert!(close(measured.seconds().to_string(), nanos as f64 / 1e9, 1e-9));
        prop_assert!(close(measured.ops_per_second(1).to_string(), ops as f64 / nanos as f64 * 1e9, 0.051));
        prop_assert!(close(measured.usecs_per_op().to_string(), nanos as f64 / ops as f64 / 1e3, 0.51e-6));
    }

    #[test]
    fn no_figures_panic(nanos: u64, ops: u64, cpu_nanos in proptest::collection::vec(any::<u64>(), 0..20)) {
        let measured = Measured { nanos, ops };
        let tasks: Vec<_> = cpu_nanos.iter().map(|&nanos| task((nanos % 40) as i32 - 20, nanos)).collect();
        let table = SpinTable { spin: &spin(), nanos, sharing: Sharing::OneCpu, tasks: &tasks };
        let lines = format!("{table}{:?}", table.worst_share()).lines().count();
        prop_assert_eq!(lines, 5 + tasks.len() + 1);
        let machine = Machine { cpus: 8, build: "all", cmdline: b"" };
        let line = BenchLine { work: &work("spin"), machine: &machine, measured, worst_share: table.worst_share(), status: Status::Ok };
        prop_assert_eq!(line.to_string().lines().count(), 1);
        prop_assert_eq!(pipe_text(&Pipe::default(), measured).to_string().lines().count(), 7);
    }
}
