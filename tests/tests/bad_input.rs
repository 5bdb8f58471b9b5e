//! Boots with mistakes: what a user gets wrong.
//!
//! Who: somebody who mistypes a parameter, asks for too much, or gives too little.
//! What must hold: each mistake is answered by one clear line and the right exit code,
//! what is right still runs, and nothing hangs.

use std::time::Duration;

use tests::boots::{Boot, boot, boot_by_hand, kernel};

/// Workloads that are over soon.
const SHORT: &str = "run=pipe:loops=200,messaging:groups=1:loops=5";

/// The kernel's complaints, which must be exactly one.
#[track_caller]
fn complaint(boot: &Boot) -> &str {
    let is_complaint = |line: &&str| ["param: ", "run: ", "dump: "].iter().any(|start| line.starts_with(start));
    let complaints: Vec<_> = boot.console.lines().filter(is_complaint).collect();
    assert_eq!(complaints.len(), 1, "not one complaint: {complaints:?}{boot}");
    complaints[0]
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn a_parameter_of_a_hook_that_is_not_built_is_answered_in_one_line() {
    let boot = boot(&["--build", "none", "--append", &format!("psi=1 {SHORT}")]);
    assert_eq!(boot.ends_with(0).end()["status"], "ok");
    assert!(complaint(&boot).contains("psi"), "{boot}");
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn features_without_a_debug_build_are_answered_in_one_line() {
    let boot = boot(&["--append", &format!("sched_features=NEXT_BUDDY,NO_NO_X,, {SHORT}")]);
    assert_eq!(boot.ends_with(0).end()["status"], "ok");
    let complaint = complaint(&boot);
    assert!(["sched_features", "--build", "debug"].iter().all(|part| complaint.contains(part)), "{boot}");
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn each_bad_feature_is_answered_in_one_line_and_the_others_are_changed() {
    let long = "Y".repeat(64);
    let features = format!("NO_NO_NEXT_BUDDY,next_buddy,,NEXT_BUDDY,NEXT_BUDY,{long},NO_DELAY_ZERO");
    let boot = boot(&["--smp", "2", "--build", "all,debug", "--append", &format!("sched-features={features} {SHORT}")]);
    assert_eq!(boot.ends_with(0).end()["status"], "ok");
    assert_eq!(boot.lines_with(&["param: "]).len(), 5, "{boot}");
    let cut = format!("'{}...'", "Y".repeat(48));
    for (item, why) in [
        ("'NO_NO_NEXT_BUDDY'", "no such feature"),
        ("'next_buddy'", "no such feature"),
        ("''", "no feature is named"),
        ("'NEXT_BUDY'", "no such feature"),
        (cut.as_str(), "more than 63 bytes"),
    ] {
        boot.says_once(&["sched_features", item, "ignored", why, "accepted: NAME or NO_NAME", "PLACE_LAG"]);
    }
    let dumped = boot.dump("/sys/kernel/debug/sched/features").unwrap_or_default();
    assert!(dumped.contains(" NEXT_BUDDY ") && dumped.contains(" NO_DELAY_ZERO "), "{boot}");
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn unknown_parameters_are_listed_in_one_line_and_the_run_goes_on() {
    let boot = boot(&["--append", &format!("colour=red speed=9 {SHORT}")]);
    assert_eq!(boot.ends_with(0).end()["status"], "ok");
    let complaint = complaint(&boot);
    assert!(complaint.contains("colour") && complaint.contains("speed"), "{boot}");
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
        ("dump", "/proc/nothing"),
    ] {
        let boot = boot(&["--smp", "2", "--append", &format!("{parameter}={value} {SHORT}")]);
        assert_eq!(boot.ends_with(0).end()["status"], "ok", "{parameter}={value}{boot}");
        let complaint = complaint(&boot);
        assert!(complaint.contains(parameter) && complaint.contains(value), "{boot}");
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
        assert!(complaint(&boot).contains(named), "{bad}{boot}");
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

    // The launcher's floor is far above the kernel's; a guest by hand answers by itself.
    let kernel = kernel("all");
    let kernel = kernel.to_str().expect("the path is text");
    let with = |mib| {
        let machine = ["-accel", "tcg", "-m", mib, "-smp", "2", "-nographic", "-no-reboot"];
        boot_by_hand(&[&machine[..], &["-kernel", kernel, "-append", SHORT]].concat(), Duration::from_secs(120))
    };
    with("4").ends_with(0).says_once(&["too little memory", "4096 KiB are needed"]);
    assert_eq!(with("16").ends_with(0).end()["status"], "ok");
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn a_time_limit_ends_a_run_that_takes_longer() {
    let boot = boot(&["--timeout", "5", "--append", "run=pipe:loops=100000000"]);
    boot.ends_with(124);
    assert!(boot.remarks.contains("time limit"), "{boot}");
}
