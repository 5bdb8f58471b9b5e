//! The command `sim`: exit codes, the line that plays a failure again, and files it writes.

use std::{fs, process::Command};

fn sim(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_sim")).args(arguments).output().expect("the command runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/first.toml");

#[test]
fn a_run_says_how_it_went_and_writes_what_was_asked_for() {
    let folder = std::env::temp_dir().join(format!("sim-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (trace, chrome) = (folder.join("trace"), folder.join("chrome.json"));
    let (code, out, _) =
        sim(&["run", FILE, "--trace", trace.to_str().expect("UTF-8"), "--chrome", chrome.to_str().expect("UTF-8")]);
    assert_eq!(code, Some(0));
    assert!(out.contains("seed=0 status=ok"), "{out}");
    assert!(fs::read_to_string(&trace).expect("written").contains("switch idle (preempted) -> t0"));
    assert!(fs::read_to_string(&chrome).expect("written").contains("traceEvents"));
    fs::remove_dir_all(folder).expect("it was ours");
}

#[test]
fn a_failure_says_how_to_play_it_again() {
    let folder = std::env::temp_dir().join(format!("sim-failing-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (file, small) = (folder.join("impatient.toml"), folder.join("small.toml"));
    let text = "cpus = 1\nms = 100\nwait_bound = \"1ms\"\n[[work]]\nkind = \"spin\"\ncount = 5\n";
    fs::write(&file, text).expect("written");
    let name = file.to_str().expect("UTF-8");
    for arguments in [&["run", name, "--seed", "3"][..], &["run", name, "--seed", "3", "--seeds", "2"]] {
        let (code, out, _) = sim(arguments);
        assert_eq!(code, Some(1), "{out}");
        assert!(out.contains("waits: t"), "{out}");
        assert!(out.contains(&format!("cargo run --release -p tests -- run {name} --seed 3")), "{out}");
    }
    let (code, _, _) = sim(&["shrink", name, "--output", small.to_str().expect("UTF-8")]);
    assert_eq!(code, Some(0));
    let text = fs::read_to_string(&small).expect("written");
    assert_eq!(text.matches("[[task]]").count(), 2, "one waits for the other: {text}");
    let (code, out, _) = sim(&["run", small.to_str().expect("UTF-8")]);
    assert_eq!(code, Some(1), "{out}");
    fs::remove_dir_all(folder).expect("it was ours");
}

#[test]
fn wrong_usage_is_refused_with_two() {
    for (arguments, reason) in [
        (&["run"][..], "required"),
        (&["run", "no such file"], "no such file: "),
        (&["run", "--random", "--cpus", "0"], "1..=1024"),
        (&["run", "--random", "--seeds", "0"], "invalid value '0'"),
        (&["run", FILE, "--seeds", "2", "--trace", "-"], "one seed"),
        (&["run", FILE, "--algorithm", "rr"], "eevdf, cfs"),
        (&["shrink", FILE], "does not fail"),
        (&["dance"], "unrecognized subcommand"),
    ] {
        let (code, _, error) = sim(arguments);
        assert_eq!(code, Some(2), "{arguments:?}");
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
}
