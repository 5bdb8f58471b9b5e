//! No wake-up is lost: a wakee is not asleep, and a CPU that has a reason to decide is about to.

use sched_core::{CpuId, TaskState};

use super::{Oracle, State, Verdict};

/// See the module.
pub struct WakeUps;

impl WakeUps {
    /// A CPU with a request, or one that idles with tasks in its queue, is in the middle of a switch, or a kick is on its way.
    fn check(state: &State<'_>, cpu: u32) -> Verdict {
        let seat = &state.seats[cpu as usize];
        let waiting = state.sched.nr_running(CpuId(cpu));
        if !seat.online && waiting > 0 {
            return Err(format!("CPU {cpu} is offline, and {waiting} tasks wait for it"));
        }
        if seat.switching || seat.kicks > 0 || !seat.online {
            return Ok(());
        }
        if seat.runs.is_none() && waiting > 0 {
            return Err(format!("CPU {cpu} idles with {waiting} tasks in its queue, and no kick is on its way"));
        }
        if state.sched.need_resched(&state.on(cpu)) {
            return Err(format!("CPU {cpu} was asked to decide, and no kick is on its way"));
        }
        Ok(())
    }
}

impl Oracle for WakeUps {
    fn name(&self) -> &'static str {
        "wake-ups"
    }

    fn woken(&mut self, state: &State<'_>, id: usize) -> Verdict {
        match state.state(id) {
            TaskState::Blocked(_) => Err(format!("t{id} was woken and sleeps on")),
            _ => Ok(()),
        }
    }

    fn after(&mut self, state: &State<'_>, cpu: u32) -> Verdict {
        Self::check(state, cpu)
    }

    fn sample(&mut self, state: &State<'_>) -> Verdict {
        // Who was woken for an idle CPU says where only when it is there.
        self.everything(state)
    }

    fn everything(&mut self, state: &State<'_>) -> Verdict {
        (0..state.seats.len() as u32).try_for_each(|cpu| Self::check(state, cpu))
    }
}
