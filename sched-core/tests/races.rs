//! The front door under `loom`, which plays every schedule with at most two preemptions (`LOOM_MAX_PREEMPTIONS=4` for more),
//! knows what each ordering promises, and reports every access to a guarded field that nothing orders after the last one.
//! Small cases of two CPUs; larger ones are `interleavings.rs`, which plays as if memory were sequentially consistent.

#[path = "races/machine.rs"]
mod machine;

#[path = "races/balance.rs"]
mod balance;
#[path = "races/delayed.rs"]
mod delayed;
#[path = "races/exiting.rs"]
mod exiting;
#[path = "races/handover.rs"]
mod handover;
#[path = "races/hotplug.rs"]
mod hotplug;
#[path = "races/idle.rs"]
mod idle;
#[path = "races/params.rs"]
mod params;
#[path = "races/sleeping.rs"]
mod sleeping;
#[path = "races/wake_list.rs"]
mod wake_list;

/// Plays `scenario` under every schedule with at most so many preemptions.
fn check(scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 1_000_000;
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(scenario);
}

/// Two CPUs at once: `one` is the calling thread.
fn at_once(one: impl FnOnce(), other: impl FnOnce() + 'static) {
    let other = loom::thread::spawn(other);
    one();
    other.join().expect("no failure");
}
