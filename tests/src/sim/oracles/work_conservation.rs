//! No CPU idles longer than a bound while a task that may run there waits for another one.
//!
//! | domain of the idle CPU and the one waited for | bound |
//! |---|---|
//! | any, up to 64 CPUs in the machine | 2 ticks |
//! | any, in a larger machine | 1 tick more for each further 64 CPUs |
//!
//! The next tick of the CPU on which a task waits gives it away (see `sched-core/src/scheduler/balance.rs`), to whichever domain;
//! another tick is for ticks that come late because of a switch, and for a task that was taken by somebody else.
//! Where tasks have masks of their own, more ticks may pass, since a tick does not ask all tasks about all CPUs.

use sched_core::CpuId;

use super::{Oracle, State, Verdict};
use crate::sim::{MS, Nanos, Scenario};

const TICK: Nanos = 4 * MS;

/// The bound of a machine of `cpus` CPUs whose tasks may run anywhere.
pub fn bound_of(cpus: u32) -> Nanos {
    TICK * (1 + u64::from(cpus.div_ceil(64)))
}

/// See the module.
pub struct WorkConservation {
    bound: Option<Nanos>,
    worst: Nanos,
}

impl WorkConservation {
    /// Judges by the scenario's bound, if it has one.
    pub fn new(scenario: &Scenario) -> Self {
        Self { bound: scenario.idle_bound, worst: 0 }
    }
}

impl Oracle for WorkConservation {
    fn name(&self) -> &'static str {
        "work conservation"
    }

    fn sample(&mut self, state: &State<'_>) -> Verdict {
        let idle: Vec<(u32, Nanos)> = (0..)
            .zip(&state.seats)
            .filter(|(_, seat)| seat.online && seat.runs.is_none())
            .map(|(cpu, seat)| (cpu, state.now - seat.idle_since))
            .collect();
        let longest = idle.iter().map(|(_, idled)| *idled).max().unwrap_or(0);
        if longest <= self.worst {
            return Ok(());
        }
        for (id, member) in state.members.iter().enumerate() {
            let Some(waited) = member.waits_since.map(|since| state.now - since).filter(|waited| *waited > self.worst)
            else {
                continue;
            };
            let (mask, waits_on) = (member.task.sched.affinity(), member.task.sched.cpu());
            for (cpu, idled) in idle.iter().filter(|(cpu, _)| CpuId(*cpu) != waits_on && mask.contains(CpuId(*cpu))) {
                let both = waited.min(*idled);
                self.worst = self.worst.max(both);
                if self.bound.is_some_and(|bound| both > bound) {
                    return Err(format!("CPU {cpu} has idled for {both} ns while t{id} waits for CPU {}", waits_on.0));
                }
            }
        }
        Ok(())
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        vec![("idle_while_waiting_ms", self.worst as f64 / MS as f64)]
    }
}
