//! Boots with another algorithm, and with the rules of the algorithms turned round.
//!
//! Who: somebody who compares EEVDF with CFS, or wants to know what one rule of them does.
//! What must hold: every workload ends well under either, the report says which it was,
//! the features file says what the command line asked for, and a kernel that cannot
//! change a feature does not carry the code of one that is off.

use std::fs;

use object::{Object, ObjectSymbol};
use tests::boots::{Boot, boot, kernel};

/// Workloads that are over soon.
const SHORT: &str = "run=pipe:loops=2000,messaging:groups=2:loops=20,spin:tasks=4:ms=200";
/// The features and which of them are on.
const FEATURES: &str = "/sys/kernel/debug/sched/features";
/// The function that only the rule NEXT_BUDDY, which is off by default, calls.
const ONLY_OF_NEXT_BUDDY: &str = "prefer_sooner";

#[track_caller]
fn assert_ok(boot: &Boot) {
    assert_eq!(boot.ends_with(0).end()["status"], "ok", "{boot}");
}

#[track_caller]
fn features(boot: &Boot) -> Vec<&str> {
    let text = boot.dump(FEATURES).unwrap_or_else(|| panic!("no dump of {FEATURES}{boot}"));
    let words = text.strip_suffix(" \n").unwrap_or_else(|| panic!("each name has a blank after it{boot}"));
    words.split(' ').collect()
}

/// The other state of a feature.
fn turned(word: &str) -> String {
    word.strip_prefix("NO_").map_or_else(|| format!("NO_{word}"), str::to_owned)
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn every_workload_ends_well_under_cfs_and_the_report_says_so() {
    let hooks = boot(&["--append", "sched_policy=cfs schedstats=enable psi=1 run=pipe,messaging,spin"]);
    assert_ok(&hooks);
    hooks.says_once(&["sched: cfs, latency 24.000 ms, granularity 3.000 ms, wake-up 4.000 ms"]);
    assert_eq!(hooks.end()["workloads"], "3", "{hooks}");
    for (smp, build) in [("1", "none"), ("2", "psi")] {
        let boot = boot(&["--smp", smp, "--build", build, "--append", &format!("sched-policy=cfs {SHORT}")]);
        assert_ok(&boot);
        boot.says_once(&["sched: cfs, latency "]);
    }
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn the_default_is_eevdf_and_the_last_choice_wins() {
    for append in ["", "sched_policy=eevdf", "sched_policy=cfs sched_policy=eevdf"] {
        let boot = boot(&["--append", &format!("{append} {SHORT}")]);
        assert_ok(&boot);
        assert_eq!(boot.lines_with(&["sched: "]), ["sched: eevdf, base slice 2.800 ms"], "{append}{boot}");
    }
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn the_thread_layer_stands_storms_under_cfs() {
    for name in ["threads", "pipes", "preemption", "affinity", "exitstorm", "wakestorm"] {
        let boot = boot(&["--append", &format!("sched_policy=cfs selftest={name}")]);
        boot.ends_with(0).says_once(&["selftest", name, "status=ok"]).says_once(&["sched: cfs, "]);
    }
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn features_are_shown_in_every_build_and_changed_in_a_debug_build() {
    let constant = boot(&["--build", "none", "--append", &format!("dump={FEATURES} {SHORT}")]);
    assert_ok(&constant);
    let defaults = features(&constant);
    assert!(defaults.contains(&"NO_NEXT_BUDDY") && defaults.contains(&"RUN_TO_PARITY"), "{constant}");

    let debug = |append: &str| boot(&["--build", "all,debug", "--append", &format!("{append} {SHORT}")]);
    let unchanged = debug("dump=all");
    assert_ok(&unchanged);
    assert_eq!(features(&unchanged), defaults, "{unchanged}");
    assert_eq!(unchanged.bench("pipe")["build"], "all,debug", "{unchanged}");
    let silent = debug("");
    assert_eq!(silent.ends_with(0).dump(FEATURES), None, "{silent}");

    // A change is dumped without being asked for; of two changes of one feature the later holds.
    let asked = ["NEXT_BUDDY", "NO_RUN_TO_PARITY", "NO_DELAY_DEQUEUE"];
    let changed = debug(&format!("sched_features=NO_DELAY_ZERO,{},DELAY_ZERO", asked.join(",")));
    assert_ok(&changed);
    let expected: Vec<String> = defaults
        .iter()
        .map(|word| if asked.contains(&turned(word).as_str()) { turned(word) } else { (*word).to_owned() })
        .collect();
    assert_eq!(features(&changed), expected, "{changed}");
}

#[test]
#[ignore = "needs QEMU: cargo qemu test"]
fn threads_pass_messages_with_every_feature_turned_round() {
    let constant = boot(&["--smp", "1", "--append", &format!("dump={FEATURES} run=none")]);
    let all: Vec<String> = features(constant.ends_with(0)).iter().map(|word| turned(word)).collect();
    let run = "schedstats=enable psi=1 run=messaging:groups=2:loops=50,pipe:loops=2000:cpu=0,spin:tasks=4:ms=200:cpu=0";
    for policy in ["eevdf", "cfs"] {
        for turned in all.iter().chain([&all.join(",")]) {
            let append = format!("sched_policy={policy} sched_features={turned} {run}");
            let boot = boot(&["--smp", "4", "--build", "all,debug", "--append", &append]);
            assert_ok(&boot);
            assert_eq!(boot.lines_with(&["param: "]), [""; 0], "{boot}");
            let shown = features(&boot);
            assert!(turned.split(',').all(|word| shown.contains(&word)), "{turned}{boot}");
        }
    }
}

#[test]
#[ignore = "needs a kernel: cargo qemu test"]
fn the_code_of_a_feature_that_is_off_is_not_there_unless_it_can_be_turned_on() {
    for (build, expected) in [("none", false), ("all", false), ("all,debug", true), ("none,debug", true)] {
        let elf = fs::read(kernel(build)).expect("the kernel can be read");
        let file = object::File::parse(&*elf).expect("it is an ELF file");
        let names: Vec<_> = file.symbols().filter_map(|symbol| symbol.name().ok()).collect();
        // Else a kernel without a symbol table would pass.
        assert!(names.iter().any(|name| name.contains("kernel_main")), "--build {build}: no symbols");
        let is_there = names.iter().any(|name| name.contains(ONLY_OF_NEXT_BUDDY));
        assert_eq!(is_there, expected, "--build {build}: {ONLY_OF_NEXT_BUDDY}");
    }
}
