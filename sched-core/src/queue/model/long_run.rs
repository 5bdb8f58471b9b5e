//! # What it is
//! Millions of random steps of both policies beside their models, in one command:
//! `cargo test --release -p sched-core --lib long_run -- --ignored --nocapture`.
//!
//! # How it works
//! Two threads, one a policy, each with its own seed. `STEPS` (10 000 000, shared between the two) and `SEED` (the time) are
//! taken from the environment. The seed is printed first, and plays the same steps again.
//!
//! # Invariants
//! 1. Those of the models, after every step.
//!
//! # Cost
//! Some microseconds a step.

use std::{env, eprintln, thread, time};

use super::{cfs, properties};

fn asked(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

#[test]
#[ignore = "takes minutes"]
fn long_run() {
    let steps = asked("STEPS").unwrap_or(10_000_000) / 2;
    let clock = || time::SystemTime::now().duration_since(time::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let seed = asked("SEED").unwrap_or_else(clock);
    eprintln!("{steps} steps a policy; to play them again: SEED={seed}");
    let report = move |name: &'static str| {
        let mut next = 0;
        move |done: u64| {
            if done >= next {
                eprintln!("{name}: {done} steps");
                next = done + steps / 10;
            }
        }
    };
    let eevdf = thread::spawn(move || properties::long_run(seed, steps, report("eevdf")));
    let cfs = thread::spawn(move || cfs::long_run(seed, steps, report("cfs")));
    for thread in [eevdf, cfs] {
        thread.join().expect("the queue does what the model says");
    }
    eprintln!("{} steps done", 2 * steps);
}
