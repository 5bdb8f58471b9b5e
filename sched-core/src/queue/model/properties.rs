//! # What it is
//! Random scripts for [`Twin`]: what a scheduler may ever ask of its queues, in any order.
//!
//! # How it works
//! A script is a list of words. Each word is read as a step that makes sense in the present state,
//! so any script is valid, and a failing one can be cut anywhere while it is shrunk.
//!
//! # Invariants
//! 1. A default run makes more than a million checked operations; `PROPTEST_CASES` asks for more.
//!
//! # Cost
//! About 10 us an operation without optimisation.

#[cfg(test)]
use proptest::prelude::*;
use std::vec::Vec;

use super::{
    Replay,
    twin::{Origins, Twin, USUAL_ORIGINS, WOKEN},
};
use crate::{
    features::Feature,
    params::{Policy, Slice, TaskParams},
    policy::{Arrival, Departure},
    weight::Nice,
};

const BASE_SLICE: u32 = 2_800_000;
const TICK: u32 = 4_000_000;
/// The largest lag limit: 104 ms at weight 3. Each entity that is away, with its lag, has moved the others by that at most.
const LIMIT: i64 = 104_000_000 * 1024 / 3;
const HOUR: u64 = 3_600_000_000_000;

/// What the scripts of one property may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    /// Runs up to some ticks.
    Fair,
    /// Also runs of an hour, and a clock that steps back.
    Storm,
    /// Only the heaviest and the lightest, with the shortest and the longest slices.
    Extremes,
    /// Rules come and go.
    Experiments,
}

/// All of them.
pub(super) const WEATHERS: [Weather; 4] = [Weather::Fair, Weather::Storm, Weather::Extremes, Weather::Experiments];

/// Cuts small numbers out of a word.
struct Word(u64);

impl Word {
    fn take(&mut self, limit: u64) -> u64 {
        let taken = self.0 % limit;
        self.0 /= limit;
        taken
    }
}

fn params(weather: Weather, word: &mut Word) -> TaskParams {
    let policy = match word.take(8) {
        0 | 1 => Policy::Idle,
        2 => Policy::Batch,
        _ => Policy::Normal,
    };
    if weather == Weather::Extremes {
        let nice = if word.take(2) == 0 { Nice::MIN } else { Nice::MAX };
        let slice = if word.take(2) == 0 { Slice::MIN } else { Slice::MAX };
        return TaskParams { nice, policy, slice: Some(slice).filter(|_| word.take(4) != 0) };
    }
    let nice = if word.take(4) == 0 { Nice::ZERO } else { Nice::new(word.take(40) as i32 - 20).unwrap() };
    let slice = match word.take(8) {
        0..=3 => None,
        4 => Some(Slice::MIN),
        5 => Some(Slice::MAX),
        6 => Some(Slice::clamped(3_000_000)),
        _ => Some(Slice::clamped(100_000 * (1 + word.take(1000)))),
    };
    TaskParams { nice, policy, slice }
}

fn run_length(weather: Weather, word: &mut Word) -> u64 {
    match word.take(16) {
        0 | 1 => 0,
        2 | 3 => 1 + word.take(1000),
        4..=7 => word.take(200_000),
        8..=11 => word.take(u64::from(TICK)),
        12 | 13 => u64::from(TICK),
        14 => word.take(50_000_000),
        _ if weather == Weather::Storm => word.take(HOUR),
        _ => 2_800_000,
    }
}

/// Does what `word` says. Who was picked, if somebody was asked for.
fn step(twin: &mut Twin, weather: Weather, word: u64) -> Option<usize> {
    let mut word = Word(word);
    let (kind, q) = (word.take(16), word.take(2) as usize);
    let i = word.take(twin.len() as u64) as usize;
    match kind {
        // A tick: somebody else runs if the queue says so.
        0..=3 => {
            twin.now += run_length(weather, &mut word);
            if twin.charge(q) { twin.reschedule(q) } else { None }
        }
        // Time passes, nobody looks.
        4 => {
            twin.now += run_length(weather, &mut word);
            None
        }
        5 if weather == Weather::Storm => {
            twin.now -= word.take(5_000_000);
            twin.charge(q);
            None
        }
        5 if weather == Weather::Experiments => {
            let feature = Feature::ALL[word.take(Feature::ALL.len() as u64) as usize];
            twin.set_feature(q, feature, word.take(2) == 0);
            None
        }
        5 | 6 => twin.reschedule(q),
        // The running one stops and starts again, which protects it anew.
        7 => {
            twin.charge(q);
            twin.stop(q);
            let picked = twin.pick(q)?;
            twin.start(picked);
            Some(picked)
        }
        8 => {
            twin.yield_running(q);
            twin.reschedule(q)
        }
        9 | 10 => {
            let new = params(weather, &mut word);
            twin.now += run_length(weather, &mut word);
            if word.take(2) == 0 {
                twin.charge(q);
            }
            twin.set_params(i, new);
            None
        }
        // The running one blocks.
        11 => {
            let running = twin.running(q)?;
            twin.now += run_length(weather, &mut word);
            twin.dequeue(running, if word.take(8) == 0 { Departure::Exit } else { Departure::Sleep });
            twin.reschedule(q)
        }
        // It comes, or goes in one of two ways.
        _ => match twin.home[i] {
            None => {
                let arrival = if word.take(4) == 0 { Arrival::Fresh } else { WOKEN };
                if arrival == Arrival::Fresh {
                    twin.forget(i);
                }
                twin.enqueue(i, q, arrival);
                if word.take(4) != 0 && twin.preempts(i, arrival) { twin.reschedule(q) } else { None }
            }
            Some(_) if twin.model[i].delayed => {
                if word.take(4) == 0 {
                    twin.give_up(i);
                    return None;
                }
                twin.undelay(i);
                let q = twin.home[i]?;
                if word.take(4) != 0 && twin.preempts(i, Arrival::Undelayed) { twin.reschedule(q) } else { None }
            }
            Some(from) => {
                if word.take(2) == 0 {
                    twin.dequeue(i, Departure::Sleep);
                    return None;
                }
                twin.dequeue(i, Departure::Move);
                if word.take(4) == 0 {
                    let new = params(weather, &mut word);
                    twin.set_params(i, new);
                }
                twin.enqueue(i, 1 - from, Arrival::Moved);
                None
            }
        },
    }
}

fn twin(weather: Weather, entities: usize, origins: Origins) -> Twin {
    let mut word = Word(0x9e37_79b9_7f4a_7c15);
    let all: Vec<_> = (0..entities)
        .map(|_| {
            word.0 = word.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            params(weather, &mut Word(word.0 >> 16))
        })
        .collect();
    let mut twin = Twin::new(BASE_SLICE, TICK, origins, &all);
    if matches!(weather, Weather::Fair | Weather::Extremes) {
        twin.reach = (entities as i64 + 4) * LIMIT;
    }
    twin
}

/// Plays a script and answers with all picks.
pub(super) fn play(weather: Weather, entities: usize, origins: Origins, script: &[u64]) -> Vec<Option<usize>> {
    let _replay = Replay { kind: weather as u8, entities, steps: script };
    let mut twin = twin(weather, entities, origins);
    script.iter().map(|&word| step(&mut twin, weather, word)).collect()
}

/// Plays random scripts until `steps` are done.
#[cfg(test)]
pub(super) fn long_run(seed: u64, steps: u64, mut progress: impl FnMut(u64)) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut done = 0;
    while done < steps {
        let weather = WEATHERS[dice.usize(..4)];
        let crowd = dice.usize(..50) == 0;
        let (entities, longest) = if crowd { (100, 2_000) } else { (dice.usize(2..12), 20_000) };
        let script: Vec<u64> = (0..dice.usize(1..longest)).map(|_| dice.u64(..)).collect();
        play(weather, entities, USUAL_ORIGINS, &script);
        done += script.len() as u64;
        progress(done);
    }
}

#[cfg(test)]
fn script(longest: usize) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(any::<u64>(), 1..longest)
}

/// `PROPTEST_CASES`, usually 256, divided by `divisor`.
#[cfg(test)]
fn cases(divisor: u32) -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: (usual.cases / divisor).max(1), ..usual }
}

// On average 256 * 1500 steps each, most of them of several operations.
#[cfg(test)]
proptest! {
    #[test]
    fn the_queue_does_what_the_model_says(script in script(3000), entities in 2_usize..12) {
        play(Weather::Fair, entities, USUAL_ORIGINS, &script);
    }

    #[test]
    fn long_runs_and_clocks_that_step_back_are_served_by_the_same_rules(script in script(3000), entities in 2_usize..12) {
        play(Weather::Storm, entities, USUAL_ORIGINS, &script);
    }

    #[test]
    fn rules_that_come_and_go_are_followed(script in script(3000), entities in 2_usize..12) {
        play(Weather::Experiments, entities, USUAL_ORIGINS, &script);
    }

    #[test]
    fn the_heaviest_beside_the_lightest_is_served_by_the_same_rules(script in script(3000), entities in 2_usize..12) {
        play(Weather::Extremes, entities, USUAL_ORIGINS, &script);
    }
}

#[cfg(test)]
proptest! {
    #![proptest_config(cases(8))]

    /// Every start is as good as zero: the usual one shortly before the wrap, the wrap of the signed difference, and others.
    #[test]
    fn the_schedule_does_not_depend_on_where_virtual_time_starts(script in script(1000), entities in 2_usize..12, any in any::<u64>()) {
        let [zero, others @ ..] = [
            [0, 0],
            USUAL_ORIGINS,
            [0u64.wrapping_sub(1_000_000), 0u64.wrapping_sub(1 << 40)],
            [1 << 63, (1 << 63) - 1_000_000],
            [any, !any],
        ]
        .map(|origins| play(Weather::Fair, entities, origins, &script));
        for other in others {
            prop_assert_eq!(&zero, &other);
        }
    }

    /// 2ab99ad7faef in Linux: somebody who read V moved the zero point. Here that changes no decision.
    #[test]
    fn the_zero_point_may_move_at_any_time(script in script(1000), entities in 2_usize..12, moves in any::<u64>()) {
        let still = play(Weather::Fair, entities, USUAL_ORIGINS, &script);
        let mut twin = twin(Weather::Fair, entities, USUAL_ORIGINS);
        let moved: Vec<_> = script.iter().enumerate().map(|(at, &word)| {
            if moves >> (at % 64) & 1 == 1 {
                for side in &mut twin.sides {
                    let running = side.real.members.running_key();
                    side.real.eevdf().waiting.virtual_time(running);
                }
                twin.check();
            }
            step(&mut twin, Weather::Fair, word)
        }).collect();
        prop_assert_eq!(still, moved);
    }
}

#[cfg(test)]
proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn a_thousand_entities_are_served_by_the_same_rules(script in script(400), weather in prop_oneof![Just(Weather::Fair), Just(Weather::Extremes)]) {
        let mut twin = twin(weather, 1000, USUAL_ORIGINS);
        twin.stride = 32;
        for i in 0..twin.len() {
            twin.enqueue_unchecked(i, i % 8 / 7, Arrival::Fresh);
        }
        for &word in &script {
            step(&mut twin, weather, word);
        }
    }
}
