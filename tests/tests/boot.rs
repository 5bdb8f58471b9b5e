//! Boots under QEMU: what a user does first, and what a user gets wrong.
//!
//! Who: somebody who cloned the repository and types `cargo qemu run`.
//! What must hold: every boot ends by itself with the right exit code, the report is
//! complete, and each mistake is answered by one clear line.
//!
//! Nothing here asserts how long anything took on the host.

use std::path::Path;
use std::time::Duration;

use tests::boots::{Boot, Fields, boot, boot_by_hand, kernel};

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
    let kernel = kernel("all");
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
