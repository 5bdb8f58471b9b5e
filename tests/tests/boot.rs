//! Boots under QEMU: what a user does first, and what a user gets wrong.
//!
//! Who: somebody who cloned the repository and types `cargo qemu run`.
//! What must hold: every boot ends by itself with the right exit code, the report is
//! complete, and each mistake is answered by one clear line.
//!
//! Nothing here asserts how long anything took on the host.

use std::path::Path;
use std::time::Duration;

use tests::{Boot, Fields, boot, boot_by_hand, kernel};

/// Workloads that are over soon.
const SHORT: &str = "run=pipe:loops=2000,messaging:groups=2:loops=20";

fn number(fields: &Fields, name: &str) -> f64 {
    let text = fields.get(name).unwrap_or_else(|| panic!("no field {name} in {fields:?}"));
    text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number"))
}

/// The report of a run with the default command line on eight CPUs.
#[track_caller]
fn assert_first_light(boot: &Boot) {
    for workload in ["pipe", "messaging"] {
        let bench = boot.bench(workload);
        assert_eq!(bench["status"], "ok", "{workload}{boot}");
        assert_eq!(bench["smp"], "8", "{workload}{boot}");
        assert!(number(&bench, "ops") > 0.0 && number(&bench, "seconds") > 0.0, "{workload}{boot}");
    }
    assert_schedstat(boot, 8);
    assert!(pressure_total(boot) > 0, "nothing ever waited for a CPU{boot}");
    let end = boot.end();
    assert_eq!([&end["status"], &end["workloads"], &end["failed"], &end["cpus"]], ["ok", "2", "0", "8"], "{boot}");
}

/// `/proc/schedstat` has version 17 and a line of nine numbers for each CPU.
#[track_caller]
fn assert_schedstat(boot: &Boot, cpus: usize) {
    let text = boot.dump("/proc/schedstat").unwrap_or_else(|| panic!("no dump of /proc/schedstat{boot}"));
    assert_eq!(text.lines().next(), Some("version 17"), "{boot}");
    for cpu in 0..cpus {
        let name = format!("cpu{cpu} ");
        let lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(&name)).collect();
        assert_eq!(lines.len(), 1, "lines of cpu{cpu}{boot}");
        let numbers: Vec<u64> = lines[0].split(' ').map(|word| word.parse().expect("a number")).collect();
        assert_eq!(numbers.len(), 9, "numbers of cpu{cpu}{boot}");
    }
    assert!(!text.contains(&format!("cpu{cpus} ")), "a CPU too many{boot}");
}

#[track_caller]
fn pressure_total(boot: &Boot) -> u64 {
    let text = boot.dump("/proc/pressure/cpu").unwrap_or_else(|| panic!("no dump of /proc/pressure/cpu{boot}"));
    let some =
        text.lines().find_map(|line| line.strip_prefix("some ")).unwrap_or_else(|| panic!("no line 'some'{boot}"));
    let total = some.split(' ').find_map(|word| word.strip_prefix("total="));
    total.and_then(|total| total.parse().ok()).unwrap_or_else(|| panic!("no total{boot}"))
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn the_first_command_shows_eight_cpus_two_workloads_and_the_numbers() {
    let boot = boot(&[]);
    assert_first_light(boot.ends_with(0));
    assert!(!boot.console.contains('\r'));
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn the_raw_qemu_line_of_the_readme_ends_by_itself_with_the_same_report() {
    let kernel = kernel();
    let boot = boot_by_hand(
        &[
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-m",
            "512",
            "-smp",
            "8",
            "-kernel",
            kernel.to_str().expect("the path is text"),
            "-append",
            "schedstats=enable psi=1",
            "-nographic",
            "-no-reboot",
        ],
        Duration::from_secs(240),
    );
    assert_first_light(boot.ends_with(0));
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn any_number_of_cpus_and_any_topology_will_do() {
    for (smp, cpus) in
        [("1", "1"), ("2", "2"), ("3", "3"), ("8", "8"), ("32", "32"), ("8,sockets=2,cores=2,threads=2", "8")]
    {
        let boot = boot(&["--smp", smp, "--append", SHORT]);
        let end = boot.ends_with(0).end();
        assert_eq!([&end["status"], &end["cpus"], &end["workloads"]], ["ok", cpus, "2"], "--smp {smp}{boot}");
    }
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn maxcpus_starts_fewer() {
    let boot = boot(&["--smp", "4", "--append", &format!("maxcpus=2 schedstats=enable {SHORT}")]);
    assert_eq!(boot.ends_with(0).end()["cpus"], "2", "{boot}");
    assert_schedstat(&boot, 2);
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn hooks_that_are_off_or_not_built_leave_nothing_behind() {
    for (build, append) in [
        ("all", "schedstats=disable psi=0"),
        ("all", ""),
        ("none", ""),
        ("schedstats", "schedstats=disable"),
        ("psi", "psi=0"),
    ] {
        let boot = boot(&["--build", build, "--append", &format!("{append} {SHORT}")]);
        assert_eq!(boot.ends_with(0).end()["status"], "ok");
        assert!(!boot.console.contains("--- begin"), "--build {build} {append}{boot}");
    }
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn each_hook_can_be_built_and_switched_on_alone() {
    let stats = boot(&["--build", "schedstats", "--append", &format!("schedstats=enable {SHORT}")]);
    assert_schedstat(stats.ends_with(0), 8);
    assert_eq!(stats.dump("/proc/pressure/cpu"), None, "{stats}");

    let psi = boot(&["--build", "psi", "--append", &format!("psi=1 {SHORT}")]);
    assert!(pressure_total(psi.ends_with(0)) > 0, "{psi}");
    assert_eq!(psi.dump("/proc/schedstat"), None, "{psi}");

    let default = boot(&["--build", "psi-default-enabled", "--append", SHORT]);
    assert!(pressure_total(default.ends_with(0)) > 0, "{default}");
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn a_parameter_of_a_hook_that_is_not_built_is_answered_in_one_line() {
    let boot = boot(&["--build", "none", "--append", &format!("psi=1 {SHORT}")]);
    assert_eq!(boot.ends_with(0).end()["status"], "ok");
    assert_eq!(lines_about(&boot, "psi").len(), 1, "{boot}");
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn captured_files_are_what_the_guest_dumped() {
    let dir = std::env::temp_dir().join(format!("sched-core-capture-{}", std::process::id()));
    let boot =
        boot(&["--append", &format!("schedstats=enable psi=1 {SHORT}"), "--capture", dir.to_str().expect("text")]);
    boot.ends_with(0);
    let read = |name: &str| std::fs::read_to_string(Path::new(&dir).join(name)).unwrap_or_default();
    assert_eq!(boot.dump("/proc/schedstat"), Some(read("proc/schedstat").as_str()), "{boot}");
    assert_eq!(boot.dump("/proc/pressure/cpu"), Some(read("proc/pressure/cpu").as_str()), "{boot}");
    std::fs::remove_dir_all(&dir).expect("the folder can be removed");
}

/// Lines about a word that are neither a program's line nor part of a dump or a report.
fn lines_about<'a>(boot: &'a Boot, word: &str) -> Vec<&'a str> {
    boot.lines_with(&[word])
        .into_iter()
        .filter(|line| !line.starts_with("bench ") && !line.contains("cmdline"))
        .collect()
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn unknown_parameters_are_listed_in_one_line_and_the_run_goes_on() {
    let boot = boot(&["--append", &format!("colour=red speed=9 {SHORT}")]);
    assert_eq!(boot.ends_with(0).end()["status"], "ok");
    let lines = lines_about(&boot, "colour");
    assert_eq!(lines.len(), 1, "{boot}");
    assert!(lines[0].contains("speed"), "{boot}");
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn a_bad_value_is_answered_in_one_line_and_the_run_goes_on() {
    for (parameter, value) in [
        ("schedstats", "perhaps"),
        ("psi", "perhaps"),
        ("sched_policy", "lottery"),
        ("schedstat_version", "99"),
        ("maxcpus", "0"),
        ("maxcpus", "99999999999999999999"),
        ("end", "never"),
    ] {
        let boot = boot(&["--smp", "2", "--append", &format!("{parameter}={value} {SHORT}")]);
        assert_eq!(boot.ends_with(0).end()["status"], "ok", "{parameter}={value}{boot}");
        let lines = lines_about(&boot, value);
        assert_eq!(lines.len(), 1, "{parameter}={value}{boot}");
        assert!(lines[0].contains(parameter), "{parameter}={value}{boot}");
    }
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn a_workload_that_cannot_run_fails_the_run_and_the_others_still_run() {
    for (bad, named) in [
        ("juggling", "juggling"),
        ("pipe:colour=red", "colour"),
        ("pipe:loops=0", "loops"),
        ("pipe:loops=many", "many"),
        ("pipe:loops=99999999999999999999", "loops"),
        ("pipe:cpu=77", "cpu"),
        ("messaging:groups=0", "groups"),
        ("messaging:groups=99999999", "groups"),
        ("spin:tasks=0", "tasks"),
        ("spin:nice=77", "nice"),
    ] {
        let boot = boot(&["--smp", "2", "--append", &format!("run={bad},pipe:loops=100")]);
        let end = boot.ends_with(1).end();
        assert_eq!([&end["status"], &end["failed"]], ["failed", "1"], "{bad}{boot}");
        assert!(!lines_about(&boot, named).is_empty(), "{bad}{boot}");
        let good = boot.benches("pipe");
        assert!(good.iter().any(|bench| bench["status"] == "ok" && bench["loops"] == "100"), "{bad}{boot}");
    }
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn a_command_line_of_2047_bytes_arrives_whole() {
    let tail = format!(" {SHORT}");
    let append = format!("x{}{tail}", "=".repeat(2046 - tail.len()));
    assert_eq!(append.len(), 2047);
    let boot = boot(&["--smp", "2", "--append", &append]);
    assert_eq!(boot.ends_with(0).end()["workloads"], "2", "{boot}");
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn little_memory_is_enough_or_is_named() {
    let refused = boot(&["--mem", "16"]);
    refused.ends_with(2);
    assert_eq!((refused.console.as_str(), refused.remarks.lines().count()), ("", 1), "{refused}");

    // Below the launcher's floor a guest by hand must answer by itself.
    let kernel = kernel();
    let kernel = kernel.to_str().expect("the path is text");
    for mib in ["2", "3", "8", "16"] {
        let boot = boot_by_hand(
            &["-accel", "tcg", "-m", mib, "-smp", "2", "-kernel", kernel, "-append", SHORT, "-nographic", "-no-reboot"],
            Duration::from_secs(120),
        );
        assert!(boot.code.is_some(), "-m {mib} hangs{boot}");
    }
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn a_time_limit_ends_a_run_that_takes_longer() {
    let boot = boot(&["--timeout", "5", "--append", "run=pipe:loops=100000000"]);
    boot.ends_with(124);
    assert!(boot.remarks.contains("time limit"), "{boot}");
}
