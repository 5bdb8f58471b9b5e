//! Every task that is awake is on exactly one queue, every queued task is awake, and nobody runs where it must not;
//! sleepers that a queue keeps until they have paid are told apart.

use sched_core::{CpuId, TaskState};

use super::{Doing, Oracle, State, Verdict};

/// See the module.
#[derive(Default)]
pub struct Queues {
    delayed: usize,
}

impl Queues {
    fn check(state: &State<'_>, id: usize) -> Verdict {
        let (member, said) = (&state.members[id], state.state(id));
        let agrees = match member.doing {
            // Waking: its placement is left to the CPU that is leaving it, or to the idle CPU it was woken for.
            Doing::Awake => matches!(said, TaskState::Runnable | TaskState::Waking),
            Doing::Asleep => matches!(said, TaskState::Blocked(_)),
            Doing::Dead => said == TaskState::Dead,
        };
        if agrees { Ok(()) } else { Err(format!("t{id} is {:?}, and the scheduler says {said:?}", member.doing)) }
    }
}

impl Oracle for Queues {
    fn name(&self) -> &'static str {
        "queues"
    }

    fn switches(&mut self, state: &State<'_>, cpu: u32, next: Option<usize>) -> Verdict {
        let Some(next) = next else { return Ok(()) };
        let member = &state.members[next];
        if member.doing != Doing::Awake {
            return Err(format!("CPU {cpu} continues t{next}, which is {:?}", member.doing));
        }
        let mask = member.task.sched.affinity();
        let homeless = !(0..).zip(&state.seats).any(|(cpu, seat)| seat.online && mask.contains(CpuId(cpu)));
        if !mask.contains(CpuId(cpu)) && !homeless {
            return Err(format!("CPU {cpu} continues t{next}, which may not run there"));
        }
        Ok(())
    }

    fn woken(&mut self, state: &State<'_>, id: usize) -> Verdict {
        Self::check(state, id)
    }

    fn after(&mut self, state: &State<'_>, cpu: u32) -> Verdict {
        let seat = &state.seats[cpu as usize];
        seat.runs.into_iter().chain(seat.leaving).try_for_each(|id| Self::check(state, id))
    }

    fn everything(&mut self, state: &State<'_>) -> Verdict {
        let mut awake = vec![0u64; state.seats.len()];
        let (mut listed, mut lists) = (0, 0);
        self.delayed = 0;
        let irq = state.on(0);
        for (id, member) in state.members.iter().enumerate() {
            Self::check(state, id)?;
            let queued = state.sched.task_load(&irq, &member.task).is_some();
            match member.doing {
                // Its queue still keeps it for its debt, and will know that it is awake when its CPU has left it.
                Doing::Awake if state.state(id) == TaskState::Waking => {
                    self.delayed += usize::from(queued);
                    listed += usize::from(member.on.is_none());
                }
                Doing::Awake if queued => awake[member.task.sched.cpu().index()] += 1,
                Doing::Awake if member.on.is_none() => return Err(format!("t{id} is awake and on no queue")),
                Doing::Asleep => self.delayed += usize::from(queued),
                Doing::Dead if queued => return Err(format!("t{id} is dead and on a queue")),
                _ => {}
            }
        }
        for (cpu, awake) in awake.iter().enumerate() {
            let said = state.sched.nr_running(CpuId(cpu as u32));
            // Those that were woken for it and wait to be taken in count as one.
            match said.checked_sub(*awake) {
                Some(list @ (0 | 1)) => lists += list as usize,
                _ => return Err(format!("CPU {cpu} has {awake} tasks that are awake and says it has {said}")),
            }
        }
        if lists > listed || lists == 0 && listed > 0 {
            return Err(format!("{listed} tasks were woken for idle CPUs, and are in {lists} lists"));
        }
        Ok(())
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        vec![("delayed_at_end", self.delayed as f64)]
    }
}
