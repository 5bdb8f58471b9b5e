//! What tasks do, as lists of steps.
//!
//! # What it is
//! [`Task`]: parameters, and [`Op`]s to be done in order, once or over and over. It is read and written as text: `run 100us`, `send 3`.
//!
//! # How it works
//! Pipes are numbered from 0 and hold [`PIPE_ROOM`] messages. A task is named by its place in the list;
//! a task that is a template is started by others (`fork 7`), as often as they like.
//!
//! # Invariants
//! 1. What is written can be read back as the same.
//!
//! # Cost
//! None that counts.

use std::{fmt, str::FromStr, sync::Arc};

use sched_core::{CpuId, Mask1024, Nice, Policy, Slice, TaskParams};

use super::{Nanos, time::Span};

/// How many messages a pipe holds.
pub const PIPE_ROOM: u32 = 16;

/// Who is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The task at this place of the list.
    Task(usize),
    /// Anybody, by chance.
    Any,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Computes.
    Run(Span),
    /// Sleeps; a timer wakes it.
    Sleep(Span),
    /// Puts a message into a pipe; sleeps while it is full.
    Send(usize),
    /// Takes a message out of a pipe; sleeps while it is empty.
    Receive(usize),
    /// Lets others go first.
    Yield,
    /// Gives a task a nice value; by chance if there is none.
    Nice(Whom, Option<i32>),
    /// Says where a task may run; by chance if there is no set.
    Affinity(Whom, Option<Mask1024>),
    /// Starts another task with the steps of a template.
    Fork(usize),
    /// Ends.
    Exit,
}

/// A task of a script.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// When it is started.
    pub at: Nanos,
    /// What it is started with.
    pub params: TaskParams,
    /// Where it may run; anywhere if there is no set.
    pub cpus: Option<Mask1024>,
    /// What it does. A task without steps is never started.
    pub steps: Arc<[Op]>,
    /// How often it does it before it exits; 0: for ever.
    pub times: u64,
    /// Whether it is only started by others.
    pub template: bool,
}

impl Task {
    /// A task with default parameters that does `steps` for ever.
    pub fn new(steps: impl Into<Arc<[Op]>>) -> Self {
        Self { at: 0, params: TaskParams::default(), cpus: None, steps: steps.into(), times: 0, template: false }
    }

    /// Whether it never sleeps, so that its share can be compared with an ideal one.
    pub fn is_hog(&self) -> bool {
        self.times == 0 && !self.steps.is_empty() && self.steps.iter().all(|op| matches!(op, Op::Run(_)))
    }
}

/// A nice value in range.
pub fn nice(value: i32) -> Result<Nice, String> {
    Nice::new(value).map_err(|_| format!("nice {value}: -20 to 19 accepted"))
}

/// `normal`, `batch` or `idle`.
pub fn policy(text: &str) -> Result<Policy, String> {
    match text {
        "normal" => Ok(Policy::Normal),
        "batch" => Ok(Policy::Batch),
        "idle" => Ok(Policy::Idle),
        _ => Err(format!("policy `{text}`: normal, batch or idle accepted")),
    }
}

/// A slice in microseconds.
pub fn slice(micros: u64) -> Result<Slice, String> {
    let nanos = micros.saturating_mul(1000);
    let slice = Slice::clamped(nanos);
    if u64::from(slice.nanos()) == nanos {
        Ok(slice)
    } else {
        Err(format!("slice_us {micros}: 100 to 100000 accepted"))
    }
}

/// A number of tasks, pairs or groups, from 1 to a million.
pub fn count(what: &str, value: usize) -> Result<(), String> {
    if (1..=1_000_000).contains(&value) { Ok(()) } else { Err(format!("{what} {value}: 1 to 1000000 accepted")) }
}

/// A list such as `0-3,8`.
pub fn cpus(text: &str) -> Result<Mask1024, String> {
    let wrong = || format!("`{text}` is no list of CPUs below 1024, such as 0-3,8");
    let mut mask = Mask1024::EMPTY;
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.parse::<u32>().map_err(|_| wrong())?, to.parse::<u32>().map_err(|_| wrong())?);
        if from > to || to >= 1024 {
            return Err(wrong());
        }
        mask = (from..=to).map(CpuId).fold(mask, Mask1024::with);
    }
    Ok(mask)
}

/// The list that [`cpus`] reads.
pub fn cpu_list(mask: &Mask1024) -> String {
    let cpus: Vec<u32> = mask.iter().map(|cpu| cpu.0).collect();
    let runs = cpus.chunk_by(|a, b| a + 1 == *b);
    let parts = runs.map(|run| match (run[0], run[run.len() - 1]) {
        (from, to) if from == to => from.to_string(),
        (from, to) => format!("{from}-{to}"),
    });
    parts.collect::<Vec<_>>().join(",")
}

const STEPS: &str = "run TIME, sleep TIME, send PIPE, receive PIPE, yield, nice TASK|any [VALUE], affinity TASK|any [CPUS], fork TASK, exit";

impl FromStr for Op {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str| word.parse::<usize>().map_err(|_| format!("step `{text}`: `{word}` is no number"));
        let whom = |word: &str| if word == "any" { Ok(Whom::Any) } else { number(word).map(Whom::Task) };
        match words[..] {
            ["run", time] => Ok(Self::Run(time.parse()?)),
            ["sleep", time] => Ok(Self::Sleep(time.parse()?)),
            ["send", pipe] => Ok(Self::Send(number(pipe)?)),
            ["receive", pipe] => Ok(Self::Receive(number(pipe)?)),
            ["yield"] => Ok(Self::Yield),
            ["nice", task] => Ok(Self::Nice(whom(task)?, None)),
            ["nice", task, value] => {
                let value = value.parse().map_err(|_| format!("step `{text}`: `{value}` is no number"))?;
                nice(value)?;
                Ok(Self::Nice(whom(task)?, Some(value)))
            }
            ["affinity", task] => Ok(Self::Affinity(whom(task)?, None)),
            ["affinity", task, list] => Ok(Self::Affinity(whom(task)?, Some(cpus(list)?))),
            ["fork", task] => Ok(Self::Fork(number(task)?)),
            ["exit"] => Ok(Self::Exit),
            _ => Err(format!("step `{text}` is unknown; accepted: {STEPS}")),
        }
    }
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(task) => write!(f, "{task}"),
            Self::Any => f.write_str("any"),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(time) => write!(f, "run {time}"),
            Self::Sleep(time) => write!(f, "sleep {time}"),
            Self::Send(pipe) => write!(f, "send {pipe}"),
            Self::Receive(pipe) => write!(f, "receive {pipe}"),
            Self::Yield => f.write_str("yield"),
            Self::Nice(whom, None) => write!(f, "nice {whom}"),
            Self::Nice(whom, Some(value)) => write!(f, "nice {whom} {value}"),
            Self::Affinity(whom, None) => write!(f, "affinity {whom}"),
            Self::Affinity(whom, Some(mask)) => write!(f, "affinity {whom} {}", cpu_list(mask)),
            Self::Fork(task) => write!(f, "fork {task}"),
            Self::Exit => f.write_str("exit"),
        }
    }
}

/// The tasks that have steps, renumbered; steps about tasks that are gone go, too.
pub fn compact(tasks: &[Task]) -> Vec<Task> {
    let mut next = 0;
    let places: Vec<Option<usize>> = tasks
        .iter()
        .map(|task| {
            (!task.steps.is_empty()).then(|| {
                next += 1;
                next - 1
            })
        })
        .collect();
    let place = |task: usize| places.get(task).copied().flatten();
    let moved = |op: &Op| match *op {
        Op::Nice(Whom::Task(task), value) => Some(Op::Nice(Whom::Task(place(task)?), value)),
        Op::Affinity(Whom::Task(task), mask) => Some(Op::Affinity(Whom::Task(place(task)?), mask)),
        Op::Fork(task) => Some(Op::Fork(place(task)?)),
        other => Some(other),
    };
    let kept = tasks.iter().filter(|task| !task.steps.is_empty());
    kept.map(|task| Task { steps: task.steps.iter().filter_map(moved).collect(), ..task.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_as_they_are_written() {
        let steps = [
            "run 100us",
            "run 1ms..3ms",
            "sleep 2s",
            "send 3",
            "receive 0",
            "yield",
            "nice any",
            "nice 4 -5",
            "affinity any",
            "affinity 2 0-3,8",
            "fork 7",
            "exit",
        ];
        for step in steps {
            assert_eq!(step.parse::<Op>().map(|op| op.to_string()), Ok(step.into()));
        }
        for wrong in ["", "run", "run 5", "send x", "nice 1 20", "affinity 1 3-2", "affinity 1 1024", "fork", "exit 1"]
        {
            assert!(wrong.parse::<Op>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_left_after_tasks_are_gone_names_the_right_ones() {
        let steps = |text: &[&str]| text.iter().map(|op| op.parse().expect("a step")).collect::<Arc<[Op]>>();
        let tasks =
            [Task::new(steps(&["run 1ms"])), Task::new(vec![]), Task::new(steps(&["nice 0 1", "nice 1 1", "fork 2"]))];
        let left = compact(&tasks);
        assert_eq!(left.len(), 2);
        assert_eq!(left[1].steps, steps(&["nice 0 1", "fork 1"]));
    }
}
