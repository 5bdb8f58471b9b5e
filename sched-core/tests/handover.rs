//! The hand-over under real concurrency: host threads as CPUs, with accidents at every access.
//!
//! One round takes about a second. `HANDOVER_ROUNDS=100 cargo test --release --test handover` plays a hundred of each.
//!
//! Orderings that are too weak show under a nightly compiler's thread sanitiser, which sees the queues' own cells:
//! `RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" cargo +nightly test --target x86_64-unknown-linux-gnu --test handover`.
//! What it then reports of `RawVec::drop` is the end of the scope, as the standard library is not instrumented;
//! a report that names a file of this crate is a fault.
//!
//! More tasks than CPUs, and fewer: redox-os/redox#542 hung above full subscription, AlessandroSangiuliano/Uros#355 only below it.

#[path = "handover/jitter.rs"]
mod jitter;
#[path = "handover/kernel.rs"]
mod kernel;
#[path = "handover/plain.rs"]
mod plain;
#[path = "handover/world.rs"]
mod world;

use jitter::Jitter;
use sched_core::{Family, Spin};
use world::{Plan, play};

fn rounds<F: Family>(cpus: u32, tasks: usize, most: usize, steps: u64) {
    let rounds = std::env::var("HANDOVER_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    for seed in 0..rounds {
        play::<F>(Plan { cpus, tasks, most, steps, seed });
    }
}

#[test]
fn no_task_is_lost_or_doubled_with_more_tasks_than_cpus() {
    rounds::<Jitter>(4, 12, 400, 120_000);
}

#[test]
fn no_task_is_lost_or_doubled_with_fewer_tasks_than_cpus() {
    rounds::<Jitter>(4, 2, 20, 60_000);
}

#[test]
fn no_task_is_lost_or_doubled_with_two_cpus() {
    rounds::<Jitter>(2, 3, 80, 100_000);
}

#[test]
fn no_task_is_lost_or_doubled_with_the_family_of_kernels() {
    rounds::<Spin>(3, 8, 400, 150_000);
}

#[test]
fn a_plain_store_before_a_wake_up_is_never_missed() {
    plain::ping_pong::<Spin>(50_000);
}
