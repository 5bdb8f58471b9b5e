//! Time is conserved, to the nanosecond: what a task was served, what a CPU idled,
//! and, where all clocks agree, how long a task waited.

use super::{Doing, Oracle, State, Verdict};

/// See the module.
pub struct Time;

fn equal(what: std::fmt::Arguments<'_>, books: u64, said: u64) -> Verdict {
    if books == said { Ok(()) } else { Err(format!("{what} {books} ns, and the scheduler says {said} ns")) }
}

impl Oracle for Time {
    fn name(&self) -> &'static str {
        "time"
    }

    fn everything(&mut self, state: &State<'_>) -> Verdict {
        let irq = state.on(0);
        let agree = state.scenario.clock_offset == 0 && state.scenario.drift_ppm == 0;
        for (id, member) in state.members.iter().enumerate() {
            let said = state.sched.task_stats(&irq, &member.task);
            equal(format_args!("t{id} ran for"), state.served(id), said.sum_exec_runtime)?;
            // A wait is counted when it is over.
            if agree && (member.waits_since.is_none() || member.doing == Doing::Dead) {
                equal(format_args!("t{id} waited for"), member.waited, said.run_delay)?;
            }
        }
        for (cpu, seat) in state.seats.iter().enumerate().filter(|(_, seat)| seat.stretch > 0 || seat.online) {
            let idles = if seat.runs.is_none() { state.clock(cpu as u32) - seat.since } else { 0 };
            let said = state.sched.task_stats(&irq, &state.idles[cpu]).sum_exec_runtime;
            equal(format_args!("CPU {cpu} idled for"), seat.idled + idles, said)?;
        }
        Ok(())
    }
}
