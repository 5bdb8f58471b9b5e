//! At most one CPU runs a task, from the decision that picks it until that CPU has arrived at another one.

use super::{Oracle, State, Verdict};

/// See the module.
pub struct OneCpu;

impl Oracle for OneCpu {
    fn name(&self) -> &'static str {
        "one CPU"
    }

    fn switches(&mut self, state: &State<'_>, cpu: u32, next: Option<usize>) -> Verdict {
        let Some(next) = next else { return Ok(()) };
        match state.members[next].on {
            Some(other) => Err(format!("CPU {cpu} continues t{next}, which CPU {other} has not left")),
            None => Ok(()),
        }
    }
}
