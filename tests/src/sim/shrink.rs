//! Makes a script that fails smaller, as long as it fails in the same way.
//!
//! # What it is
//! [`shrink`]: fewer tasks, then fewer steps, a shorter run, fewer CPUs.
//!
//! # How it works
//! Delta debugging: halves, then quarters, and so on down to single ones are left out; what fails without them stays without them.
//! A run fails in the same way if the same oracle objects.
//!
//! # Invariants
//! 1. What is returned fails.
//!
//! # Cost
//! A run for each attempt; at most [`ATTEMPTS`].

use std::sync::Arc;

use super::{
    Scenario,
    engine::{Objection, play},
    script::Task,
};

/// The most runs.
pub const ATTEMPTS: usize = 2_000;

/// A script that fails, and how.
#[derive(Clone, Debug)]
pub struct Failing {
    /// The machine, with the tasks and without workloads.
    pub scenario: Scenario,
    /// What was objected.
    pub objection: Objection,
    /// How many runs it took.
    pub attempts: usize,
}

/// The smallest script found that fails as `scenario` does from `seed`; nothing if it does not fail.
/// `progress` is told of each success.
pub fn shrink(scenario: &Scenario, seed: u64, mut progress: impl FnMut(&Failing)) -> Option<Failing> {
    let tasks = scenario.expand(seed).ok()?;
    let start = Scenario { tasks, work: Vec::new(), ..scenario.clone() };
    let objection = play(&start, seed, start.tasks.clone(), false).objection?;
    let mut best = Failing { scenario: start, objection, attempts: 1 };
    let mut attempts = 1;
    let mut fails = |best: &mut Failing, scenario: Scenario| {
        if attempts >= ATTEMPTS {
            return false;
        }
        attempts += 1;
        let objection = play(&scenario, seed, scenario.tasks.clone(), false).objection;
        let Some(objection) = objection.filter(|new| new.oracle == best.objection.oracle) else { return false };
        *best = Failing { scenario, objection, attempts };
        progress(best);
        true
    };
    loop {
        let before = best.scenario.clone();
        // Nothing after the objection matters.
        let length = best.objection.at + 1;
        if length < best.scenario.length {
            let shorter = Scenario { length, ..best.scenario.clone() };
            fails(&mut best, shorter);
        }
        let kept: Vec<usize> = started(&best.scenario.tasks);
        without(kept, |left_out| {
            let mut scenario = best.scenario.clone();
            left_out.iter().for_each(|task| scenario.tasks[*task].steps = Arc::from([]));
            fails(&mut best, scenario)
        });
        for task in started(&best.scenario.tasks) {
            let steps: Vec<usize> = (0..best.scenario.tasks[task].steps.len()).collect();
            if steps.len() < 2 {
                continue;
            }
            // Steps move up when others go, so they are named by what they were.
            let mut alive = steps.clone();
            without(steps, |left_out| {
                let left: Vec<usize> = alive.iter().copied().filter(|step| !left_out.contains(step)).collect();
                if left.is_empty() {
                    return false;
                }
                let mut scenario = best.scenario.clone();
                let old = &best.scenario.tasks[task].steps;
                let place = |step: &usize| alive.iter().position(|other| other == step).expect("it is alive");
                scenario.tasks[task].steps = left.iter().map(|step| old[place(step)]).collect();
                let failed = fails(&mut best, scenario);
                if failed {
                    alive = left;
                }
                failed
            });
        }
        for cpus in [best.scenario.cpus / 2, best.scenario.cpus - 1] {
            if cpus >= 1 {
                let late_from = best.scenario.late_from.min(cpus);
                let away = best.scenario.away.iter().copied().filter(|away| away.cpu < cpus).collect();
                let fewer = Scenario { cpus, late_from, away, ..best.scenario.clone() };
                fails(&mut best, fewer);
            }
        }
        if best.scenario == before {
            return Some(best);
        }
    }
}

fn started(tasks: &[Task]) -> Vec<usize> {
    (0..tasks.len()).filter(|task| !tasks[*task].steps.is_empty()).collect()
}

/// Leaves out halves, quarters, ... of `items` while `fails` without them.
fn without(mut items: Vec<usize>, mut fails: impl FnMut(&[usize]) -> bool) {
    let mut size = items.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < items.len() {
            let end = (at + size).min(items.len());
            if fails(&items[at..end]) {
                items.drain(at..end);
            } else {
                at = end;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
}
