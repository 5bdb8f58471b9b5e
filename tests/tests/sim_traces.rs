//! The same seed gives the same run, in every build, and a failing script can be made small.

use std::{fs, path::Path};

use tests::sim::{MS, Scenario, broken::Break, run, shrink::shrink};

fn file(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[test]
fn two_runs_of_one_seed_are_the_same_and_two_seeds_are_not() {
    let scenario = Scenario::random(8, 60, 100 * MS);
    let text = |seed| run(&scenario, seed, true).trace.expect("asked for").to_string();
    assert!(text(1) == text(1));
    assert!(text(1) != text(2));
}

/// The golden file is the same in debug and release, so equal traces of both builds follow.
/// After a change that is meant: `BLESS=1 cargo test -p tests --test sim_traces`, and look at the difference.
#[test]
fn the_trace_is_the_golden_one() {
    let scenario = Scenario::read(&file("scenarios/first.toml")).expect("a scenario");
    let outcome = run(&scenario, 7, true);
    assert_eq!(outcome.objection, None);
    let (text, golden) = (outcome.trace.expect("asked for").to_string(), file("golden/first.trace"));
    if std::env::var_os("BLESS").is_some() {
        fs::write(&golden, &text).expect("the golden file can be written");
    }
    let expected = fs::read_to_string(&golden).expect("a golden file");
    for (line, (was, is)) in expected.lines().zip(text.lines()).enumerate() {
        assert_eq!(was, is, "line {}", line + 1);
    }
    assert_eq!(expected.lines().count(), text.lines().count());
}

#[test]
fn the_trace_for_viewers_has_every_stretch() {
    let scenario = Scenario::read(&file("scenarios/first.toml")).expect("a scenario");
    let trace = run(&scenario, 7, true).trace.expect("asked for");
    let json: serde_json::Value = serde_json::from_str(&trace.to_chrome(scenario.cpus, scenario.length)).expect("JSON");
    let events = json["traceEvents"].as_array().expect("a list");
    let count = |kind: &str| events.iter().filter(|event| event["ph"] == kind).count();
    let text = trace.to_string();
    let lines = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    assert_eq!(count("M"), scenario.cpus as usize);
    assert_eq!(count("i"), lines("wake t") + lines("spawn t"));
    assert_eq!(count("X"), lines("switch") - lines("-> idle"));
    assert!(events.iter().filter(|event| event["ph"] == "X").all(|event| event["dur"].as_f64() >= Some(0.0)));
}

#[test]
fn a_script_that_fails_becomes_small_and_fails_as_a_file() {
    let broken = Some(Break::LostKicks(1));
    let scenario = Scenario { broken, ..Scenario::random(4, 60, 200 * MS) };
    let small = shrink(&scenario, 3, |_| {}).expect("it fails");
    let tasks = small.scenario.tasks.iter().filter(|task| !task.steps.is_empty()).count();
    assert!(tasks <= 2, "{tasks} tasks are left");
    assert_eq!(small.objection.oracle, "wake-ups");
    let text = small.scenario.to_toml(3);
    let again = Scenario { broken, ..Scenario::parse(&text).expect("what was written can be read") };
    let objection = run(&again, 3, false).objection.expect("it fails as before");
    assert_eq!(objection.oracle, "wake-ups", "{objection:?}\n{text}");
}

#[test]
fn a_scenario_that_does_not_fail_is_not_made_small() {
    assert!(shrink(&Scenario::random(2, 10, 20 * MS), 1, |_| {}).is_none());
}
