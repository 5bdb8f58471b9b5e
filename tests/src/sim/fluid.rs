//! The ideal machine: at every moment everybody who is awake is served in proportion to weight, as far as masks allow.
//!
//! # What it is
//! [`rates`]: the weighted max-min fair shares of some CPUs.
//!
//! # How it works
//! A level rises from 0. A task is served at weight times level, and never faster than one CPU can.
//! By Hall's theorem such rates can be had if no set of masks asks for more than the CPUs in their union.
//! Where a set asks for all it can get, its tasks stay at their rates, and the level goes on rising for the others.
//!
//! # Invariants
//! 1. No task is served faster than a CPU, no set of CPUs serves more than their number.
//! 2. A task that is served less than weight times level shares CPUs that have nothing left.
//!
//! # Cost
//! Two to the power of different masks, hence at most [`MOST_MASKS`] of them; tasks times logarithm for each.

use sched_core::Mask1024;

/// How many different masks there may be.
pub const MOST_MASKS: usize = 8;

/// What each task is served a unit of time; `None` for a task that sleeps. Nothing where there are too many masks.
pub fn rates(tasks: &[Option<(f64, Mask1024)>], online: &Mask1024) -> Option<Vec<f64>> {
    let mut masks: Vec<Mask1024> = Vec::new();
    for (_, mask) in tasks.iter().flatten() {
        if !masks.contains(mask) {
            masks.push(*mask);
        }
    }
    if masks.len() > MOST_MASKS {
        return None;
    }
    let group = |mask: &Mask1024| masks.iter().position(|other| other == mask).expect("it was listed");
    let mut rates: Vec<Option<f64>> = tasks.iter().map(|task| if task.is_some() { None } else { Some(0.0) }).collect();
    // Sets of masks, as bits: all tasks of a set, and the CPUs of its union.
    let sets: Vec<(usize, f64)> = (1..1usize << masks.len())
        .map(|set| {
            let within = |mask: &Mask1024| (0..masks.len()).any(|at| set & 1 << at != 0 && masks[at] == *mask);
            let cpus = online.iter().filter(|cpu| masks.iter().any(|mask| within(mask) && mask.contains(*cpu))).count();
            (set, cpus as f64)
        })
        .collect();
    while rates.iter().any(Option::is_none) {
        let tightest = sets
            .iter()
            .filter_map(|(set, cpus)| {
                let mut left = *cpus;
                let mut weights = Vec::new();
                for (task, rate) in tasks.iter().zip(&rates) {
                    if let Some((weight, mask)) = task
                        && set & 1 << group(mask) != 0
                    {
                        match rate {
                            Some(rate) => left -= rate,
                            None => weights.push(*weight),
                        }
                    }
                }
                (!weights.is_empty()).then(|| (level(&mut weights, left.max(0.0)), *set))
            })
            .min_by(|(a, _), (b, _)| a.total_cmp(b));
        let (level, set) = tightest?;
        for (task, rate) in tasks.iter().zip(&mut rates) {
            if let (Some((weight, mask)), None) = (task, &rate)
                && (set & 1 << group(mask) != 0 || level.is_infinite())
            {
                *rate = Some((weight * level).min(1.0));
            }
        }
    }
    rates.into_iter().collect()
}

/// The level at which tasks of these weights, none faster than one CPU, are served by `cpus` CPUs; no limit if there are enough.
fn level(weights: &mut [f64], cpus: f64) -> f64 {
    if weights.len() as f64 <= cpus {
        return f64::INFINITY;
    }
    // The heaviest reach the speed of a CPU first.
    weights.sort_by(|a, b| b.total_cmp(a));
    let mut rest: f64 = weights.iter().sum();
    for (full, weight) in weights.iter().enumerate() {
        let level = (cpus - full as f64) / rest;
        if weight * level <= 1.0 {
            return level.max(0.0);
        }
        rest -= weight;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::script::cpus;

    fn shares(tasks: &[(f64, &str)], online: &str) -> Vec<f64> {
        let tasks: Vec<_> = tasks.iter().map(|(weight, list)| Some((*weight, cpus(list).expect("a list")))).collect();
        let shares = rates(&tasks, &cpus(online).expect("a list")).expect("few masks");
        shares.into_iter().map(|share| (share * 1e6).round() / 1e6).collect()
    }

    #[test]
    fn equal_tasks_share_equally() {
        assert_eq!(shares(&[(1.0, "0-1"); 3], "0-1"), [0.666667; 3]);
        assert_eq!(shares(&[(1.0, "0-7"); 2], "0-7"), [1.0; 2]);
    }

    #[test]
    fn nobody_is_faster_than_a_cpu() {
        assert_eq!(shares(&[(100.0, "0-1"), (1.0, "0-1"), (1.0, "0-1"), (2.0, "0-1")], "0-1"), [1.0, 0.25, 0.25, 0.5]);
    }

    #[test]
    fn masks_hold() {
        // Two are bound to CPU 0; the third has CPU 1 for itself.
        assert_eq!(shares(&[(1.0, "0"), (1.0, "0"), (1.0, "0-1")], "0-1"), [0.5, 0.5, 1.0]);
        // CPUs that are offline serve nobody.
        assert_eq!(shares(&[(1.0, "0-3"), (3.0, "0-3")], "0"), [0.25, 0.75]);
        // A chain: the level rises on for those beyond the tight set.
        assert_eq!(
            shares(&[(1.0, "0"), (1.0, "0"), (1.0, "0-1"), (1.0, "1-2"), (1.0, "2")], "0-2"),
            [0.5, 0.5, 0.666667, 0.666667, 0.666667]
        );
    }

    #[test]
    fn a_sleeper_gets_nothing() {
        let all = cpus("0").expect("a list");
        assert_eq!(rates(&[None, Some((1.0, all))], &all), Some(vec![0.0, 1.0]));
        let many: Vec<_> = (0..9).map(|cpu| Some((1.0, cpus(&cpu.to_string()).expect("a list")))).collect();
        assert_eq!(rates(&many, &cpus("0-8").expect("a list")), None);
    }
}
