//! Nobody who wants to run waits longer than a bound, whatever else goes on.

use super::{Oracle, State, Verdict};
use crate::sim::{MS, Nanos, Scenario};

/// See the module.
pub struct Waits {
    bound: Option<Nanos>,
    worst: Nanos,
}

impl Waits {
    /// Judges by the scenario's bound, if it has one.
    pub fn new(scenario: &Scenario) -> Self {
        Self { bound: scenario.wait_bound, worst: 0 }
    }

    fn look(&mut self, state: &State<'_>, id: usize) -> Verdict {
        let Some(since) = state.members[id].waits_since else { return Ok(()) };
        let waited = state.now - since;
        self.worst = self.worst.max(waited);
        if self.bound.is_some_and(|bound| waited > bound) {
            let cpu = state.members[id].task.sched.cpu().0;
            let runs = state.seats[cpu as usize].runs.map_or("nobody".into(), |id| format!("t{id}"));
            return Err(format!("t{id} has waited for {waited} ns for CPU {cpu}, which runs {runs}"));
        }
        Ok(())
    }
}

impl Oracle for Waits {
    fn name(&self) -> &'static str {
        "waits"
    }

    fn switches(&mut self, state: &State<'_>, _cpu: u32, next: Option<usize>) -> Verdict {
        next.map_or(Ok(()), |id| self.look(state, id))
    }

    fn everything(&mut self, state: &State<'_>) -> Verdict {
        (0..state.members.len()).try_for_each(|id| self.look(state, id))
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        vec![("wait_ms", self.worst as f64 / MS as f64)]
    }
}
