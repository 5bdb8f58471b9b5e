//! Every scenario file holds, and a file that is wrong is refused with one line that says why.

use std::{fs, path::Path};

use sched_core::Algorithm;
use tests::sim::{Scenario, run};

#[test]
fn every_scenario_holds_under_both_algorithms() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<_> = fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path()).collect();
    files.sort();
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        let scenario = Scenario::read(&file).unwrap_or_else(|error| panic!("{error}"));
        for algorithm in [Algorithm::Eevdf, Algorithm::Cfs] {
            // More seeds in a release build: see the check `simulator` of `cargo qemu test`.
            let outcome = run(&Scenario { algorithm, ..scenario.clone() }, 0, false);
            assert_eq!(outcome.objection, None, "{}, {algorithm:?}", file.display());
        }
        let text = fs::read_to_string(&file).expect("a text");
        let head: Vec<&str> = text.lines().take(3).collect();
        let says = ["# Seen: ", "# What: ", "# Must hold: "];
        assert!(head.iter().zip(says).all(|(line, says)| line.starts_with(says)), "{}: {head:?}", file.display());
    }
}

#[test]
fn a_wrong_file_is_refused_with_a_reason() {
    let task = |line: &str| format!("cpus = 1\nms = 1\n[[task]]\n{line}\n");
    let wrong = [
        ("".into(), "cpus"),
        ("cpus = 0\nms = 1".into(), "1 to 1024 accepted"),
        ("cpus = 1025\nms = 1".into(), "1 to 1024 accepted"),
        ("cpus = 1\nms = 0".into(), "accepted"),
        ("cpus = 1\nms = 1\ncolour = 3".into(), "unknown field `colour`"),
        ("cpus = 1\nms = 1\nalgorithm = \"rr\"".into(), "eevdf or cfs accepted"),
        ("cpus = 1\nms = 1\nkick = \"5\"".into(), "number and ns, us, ms or s"),
        ("cpus = 1\nms = 1\nfeatures = [\"NO_NO_X\"]".into(), "NO_NO_X"),
        ("cpus = 4\nms = 1\ntopology = { threads = 2, cache = 3 }".into(), "whole cores"),
        ("cpus = 1\nms = 1\n[[work]]\nkind = \"dance\"".into(), "unknown variant `dance`"),
        ("cpus = 1\nms = 1\n[[work]]\nkind = \"spin\"\nnice = [20]".into(), "-20 to 19 accepted"),
        (task("steps = [\"jump\"]"), "accepted: run TIME"),
        (task("steps = [\"run 1ms\"]\ncount = 99999999999"), "1 to 1000000 accepted"),
        (task("steps = [\"run 1ms\"]\ncount = 0"), "1 to 1000000 accepted"),
        (
            "cpus = 1\nms = 1\n[[work]]\nkind = \"messaging\"\ncount = 1000000\nfds = 1000000".into(),
            "1 to 1000000 accepted",
        ),
        (task("steps = [\"run 1ms\", \"fork 0\"]"), "no template"),
        (task("steps = [\"run 1ms\"]\nslice_us = 99"), "100 to 100000 accepted"),
        (task("steps = [\"run 1ms\"]\npolicy = \"fifo\""), "normal, batch or idle accepted"),
        (task("steps = [\"run 1ms\"]\ncpus = \"0-\""), "list of CPUs"),
    ];
    for (text, reason) in wrong {
        let error = Scenario::parse(&text).expect_err(&text);
        assert!(error.contains(reason), "{text:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
