//! Each oracle is shown a machine that is broken in the way it watches for, and a sound one.

use sched_core::Algorithm;
use tests::sim::{MS, Outcome, Scenario, broken::Break, run};

/// Which oracle objects to `scenario`, broken like this.
fn objection(scenario: &str, broken: Option<Break>) -> Option<(String, String)> {
    let scenario = Scenario { broken, ..Scenario::parse(scenario).expect("a scenario") };
    let Outcome { objection, .. } = run(&scenario, 1, false);
    objection.map(|objection| (objection.oracle, objection.what))
}

#[track_caller]
fn caught_by(oracle: &str, scenario: &str, broken: Break) {
    assert_eq!(objection(scenario, None), None, "sound");
    let found = objection(scenario, Some(broken));
    assert_eq!(found.as_ref().map(|(name, _)| &**name), Some(oracle), "{broken:?}: {found:?}");
}

const BUSY: &str = r#"
cpus = 4
ms = 300
[[work]]
kind = "periodic"
count = 12
[[work]]
kind = "spin"
count = 3
"#;

#[test]
fn a_task_on_two_cpus_is_caught() {
    caught_by("one CPU", BUSY, Break::TaskOnTwoCpus(50));
}

#[test]
fn a_task_that_the_scheduler_forgot_is_caught() {
    caught_by("queues", BUSY, Break::ForgottenTask(20));
}

#[test]
fn a_swallowed_wake_up_is_caught() {
    // The queues' oracle is asked first, and knows it too: the task is awake for everybody but the scheduler.
    caught_by("queues", BUSY, Break::SwallowedWakeUp(30));
}

#[test]
fn a_lost_kick_is_caught() {
    caught_by("wake-ups", BUSY, Break::LostKicks(10));
}

#[test]
fn a_clock_that_lies_is_caught() {
    caught_by("time", BUSY, Break::LyingClock(100 * MS));
}

#[test]
fn a_task_that_waits_too_long_is_caught() {
    // Without ticks a spinner is never preempted.
    let pair = |ticks: bool| {
        format!("cpus = 1\nms = 200\nticks = {ticks}\nwait_bound = \"20ms\"\n[[work]]\nkind = \"spin\"\ncount = 2\n")
    };
    assert_eq!(objection(&pair(true), None), None);
    let found = objection(&pair(false), None);
    assert_eq!(found.as_ref().map(|(name, _)| &**name), Some("waits"), "{found:?}");
}

#[test]
fn an_unfair_share_is_caught() {
    let spinners = "cpus = 2\nms = 2000\nfairness_percent = 5.0\n[[work]]\nkind = \"spin\"\ncount = 4\n";
    caught_by("fairness", spinners, Break::SecretNice);
}

#[test]
fn a_machine_that_does_not_balance_is_caught() {
    // Two spinners bound to CPU 0 are set free; without ticks nobody ever looks for the idle CPU.
    let crowd = |ticks: bool| {
        format!(
            r#"
cpus = 2
ms = 200
ticks = {ticks}
idle_bound = "8ms"
[[task]]
steps = ["run 100us", "affinity 1 0-1", "affinity 2 0-1", "exit"]
cpus = "0"
[[task]]
steps = ["run 1s"]
cpus = "0"
count = 2
"#
        )
    };
    assert_eq!(objection(&crowd(true), None), None);
    let found = objection(&crowd(false), None);
    assert_eq!(found.as_ref().map(|(name, _)| &**name), Some("work conservation"), "{found:?}");
}

#[test]
fn a_panic_of_the_scheduler_is_an_objection() {
    // No CPU of the mask is online.
    let scenario = "cpus = 2\nms = 10\n[[task]]\nsteps = [\"run 1ms\"]\ncpus = \"7\"\n";
    let found = objection(scenario, None);
    assert!(found.as_ref().is_some_and(|(name, what)| name == "panic" && what.contains("online")), "{found:?}");
}

#[test]
fn sound_machines_of_odd_sizes_are_not_objected_to() {
    for algorithm in [Algorithm::Eevdf, Algorithm::Cfs] {
        for cpus in [1, 2, 3, 7, 65] {
            for seed in 0..3 {
                let scenario = Scenario { algorithm, ..Scenario::random(cpus, 12 * cpus as usize, 200 * MS) };
                let outcome = run(&scenario, seed, false);
                assert_eq!(outcome.objection, None, "{algorithm:?}, {cpus} CPUs, seed {seed}");
                assert!(outcome.figures.switches > 100);
            }
        }
    }
}
