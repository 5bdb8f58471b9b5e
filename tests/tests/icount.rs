//! Boots that count instructions: what can be claimed to the last digit.
//!
//! Who: somebody who wants numbers that do not depend on how busy the host is.
//! What must hold: shares of one CPU follow weights, and a run can be repeated exactly.

use tests::boots::{Boot, boot};

/// The weights of nice 0 and nice 5.
const WEIGHT_0: f64 = 1024.0;
const WEIGHT_5: f64 = 335.0;
/// How far a share may be from what is due, relative to what is due.
const TOLERANCE: f64 = 0.01;

/// The CPU time, in milliseconds, of each thread of the only `spin` workload.
#[track_caller]
fn cpu_ms(boot: &Boot) -> Vec<f64> {
    let rows = boot.console.lines().filter(|line| line.starts_with("spin-"));
    rows.map(|row| row.split_whitespace().nth(3).and_then(|word| word.parse().ok()))
        .collect::<Option<Vec<f64>>>()
        .unwrap_or_else(|| panic!("a row of the table has no time{boot}"))
}

#[track_caller]
fn assert_shares(policy: &str, spin: &str, ms: f64, weights: &[f64]) {
    let boot = boot(&["--icount", "--append", &format!("sched_policy={policy} run=spin:{spin}:cpu=0:ms={ms}")]);
    boot.says_once(&[&format!("sched: {policy}, ")]);
    assert_eq!(boot.ends_with(0).bench("spin")["status"], "ok", "{boot}");
    let ran = cpu_ms(&boot);
    assert_eq!(ran.len(), weights.len(), "{boot}");
    let (all_ran, all_weights): (f64, f64) = (ran.iter().sum(), weights.iter().sum());
    assert!(all_ran > 0.95 * ms && all_ran < 1.05 * ms, "{ms} ms of guest time were asked for{boot}");
    for (ran, weight) in ran.iter().zip(weights) {
        let (share, due) = (ran / all_ran, weight / all_weights);
        assert!((share / due - 1.0).abs() <= TOLERANCE, "{share} of the CPU, {due} is due{boot}");
    }
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn two_tasks_share_a_cpu_by_their_weights() {
    assert_shares("eevdf", "tasks=2:nice=0+5", 2000.0, &[WEIGHT_0, WEIGHT_5]);
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn two_tasks_share_a_cpu_by_their_weights_under_cfs() {
    // Turns are longer than EEVDF's, so it takes longer until a share is exact.
    assert_shares("cfs", "tasks=2:nice=0+5", 10_000.0, &[WEIGHT_0, WEIGHT_5]);
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn eight_equal_tasks_get_an_eighth_each() {
    // A turn is a tick, 4 ms: in 4 s an eighth is exact to 0.8 %.
    assert_shares("eevdf", "tasks=8", 4000.0, &[WEIGHT_0; 8]);
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn a_counted_run_can_be_repeated_to_the_last_digit() {
    let run = || boot(&["--icount", "--append", "schedstats=enable psi=1 run=pipe:loops=2000:cpu=0"]);
    let (first, second) = (run(), run());
    assert_eq!(first.ends_with(0).bench("pipe")["status"], "ok", "{first}");
    assert_eq!(first.console, second.console, "the runs differ{first}{second}");
}
