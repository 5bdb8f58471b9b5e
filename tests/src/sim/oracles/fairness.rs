//! Each task is served as by the ideal fluid machine, which shares its CPUs among all who are awake at every moment.
//!
//! Judged are tasks that never sleep: what others get depends on when they sleep, and that depends on what they got.

use super::{Doing, Oracle, State, Verdict};
use crate::sim::{MS, Nanos, Scenario, fluid};

/// See the module.
pub struct Fairness {
    percent: Option<f64>,
    /// When the present rates began.
    since: Nanos,
    /// What each task should be served a nanosecond, and should have been served before.
    rates: Vec<f64>,
    due: Vec<f64>,
    worst: f64,
    /// The masks are too many to tell.
    gave_up: bool,
}

impl Fairness {
    /// Judges by the scenario's bound, if it has one.
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            percent: scenario.fairness_percent,
            since: 0,
            rates: Vec::new(),
            due: Vec::new(),
            worst: 0.0,
            gave_up: scenario.fairness_percent.is_none(),
        }
    }

    fn advance(&mut self, state: &State<'_>) {
        let passed = (state.now - self.since) as f64;
        self.since = state.now;
        self.due.resize(state.members.len(), 0.0);
        for (due, rate) in self.due.iter_mut().zip(&self.rates) {
            *due += rate * passed;
        }
    }
}

impl Oracle for Fairness {
    fn name(&self) -> &'static str {
        "fairness"
    }

    fn changes(&mut self, state: &State<'_>) {
        if self.gave_up {
            return;
        }
        self.advance(state);
        let online =
            (0..state.seats.len()).filter(|cpu| state.seats[*cpu].online).map(|cpu| sched_core::CpuId(cpu as u32));
        let online = online.collect();
        let awake = state.members.iter().map(|member| {
            let (weight, mask) = (member.params.weight(), member.task.sched.affinity());
            (member.doing == Doing::Awake).then(|| (f64::from(weight.get()), mask))
        });
        match fluid::rates(&awake.collect::<Vec<_>>(), &online) {
            Some(rates) => self.rates = rates,
            None => self.gave_up = true,
        }
    }

    fn end(&mut self, state: &State<'_>) -> Verdict {
        if self.gave_up {
            return match self.percent {
                Some(_) => Err(format!("more than {} different masks: no ideal to compare with", fluid::MOST_MASKS)),
                None => Ok(()),
            };
        }
        self.advance(state);
        for (id, member) in state.members.iter().enumerate() {
            if !state.plans[member.plan].is_hog() || self.due[id] < MS as f64 {
                continue;
            }
            let (served, due) = (state.served(id) as f64, self.due[id]);
            let off = (served / due - 1.0).abs() * 100.0;
            self.worst = self.worst.max(off);
            if self.percent.is_some_and(|percent| off > percent) {
                return Err(format!(
                    "t{id} was served {:.1} ms, {:.1} ms were due: {off:.1} % off",
                    served / MS as f64,
                    due / MS as f64
                ));
            }
        }
        Ok(())
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        if self.gave_up { Vec::new() } else { vec![("unfair_percent", self.worst)] }
    }
}
