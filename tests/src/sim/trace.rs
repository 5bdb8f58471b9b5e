//! What happened, to be read by people, by `diff`, and by a trace viewer.
//!
//! # What it is
//! [`Trace`]: the switches, wake-ups and moves of a run, in order.
//!
//! # How it works
//! As text, a line an event. As JSON in Chrome's trace format, which Perfetto and `chrome://tracing` open:
//! a track a CPU, a slice for each stretch a task ran, an instant for each wake-up.
//!
//! # Invariants
//! 1. Equal runs have equal texts.
//!
//! # Cost
//! 40 bytes an event; nothing where no trace was asked for.

use std::fmt;

use serde_json::json;

use super::Nanos;

/// Who ran on a CPU: a task, or nobody.
pub type Runner = Option<usize>;

/// One event of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A CPU went from one to another.
    Switch {
        /// Who ran.
        from: Runner,
        /// Why it stopped: `preempted`, `blocks`, `yields`, `exits`.
        why: &'static str,
        /// Who runs now.
        to: Runner,
    },
    /// A CPU woke a task, which went to another CPU or to this one.
    Wake {
        /// The wakee.
        task: usize,
        /// Where it went; nowhere yet if the CPU that is leaving it will say.
        to: Option<u32>,
    },
    /// A CPU started a task.
    Spawn {
        /// The new task.
        task: usize,
        /// Where it went.
        to: u32,
    },
}

/// The events of a run: when, which CPU did it, what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// In order of time.
    pub events: Vec<(Nanos, u32, Event)>,
}

struct Name(Runner);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(task) => write!(f, "t{task}"),
            None => f.write_str("idle"),
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, cpu, event) in &self.events {
            write!(f, "{:>8}.{:06} ms  cpu{cpu:<4} ", at / 1_000_000, at % 1_000_000)?;
            match event {
                Event::Switch { from, why, to } => writeln!(f, "switch {} ({why}) -> {}", Name(*from), Name(*to))?,
                Event::Wake { task, to: Some(to) } => writeln!(f, "wake t{task} on cpu{to}")?,
                Event::Wake { task, to: None } => writeln!(f, "wake t{task}, still being left")?,
                Event::Spawn { task, to } => writeln!(f, "spawn t{task} on cpu{to}")?,
            }
        }
        Ok(())
    }
}

impl Trace {
    /// The trace in Chrome's JSON format; `end` is where the last stretches end.
    pub fn to_chrome(&self, cpus: u32, end: Nanos) -> String {
        let micros = |nanos: Nanos| nanos as f64 / 1000.0;
        let mut since: Vec<(Runner, Nanos)> = vec![(None, 0); cpus as usize];
        let mut events = Vec::new();
        let mut stretch = |cpu: u32, (who, from): (Runner, Nanos), to: Nanos| {
            if who.is_some() {
                events.push(json!({"name": Name(who).to_string(), "ph": "X", "pid": 0, "tid": cpu, "ts": micros(from), "dur": micros(to - from)}));
            }
        };
        let mut instants = Vec::new();
        for (at, cpu, event) in &self.events {
            match event {
                Event::Switch { to, .. } => {
                    stretch(*cpu, since[*cpu as usize], *at);
                    since[*cpu as usize] = (*to, *at);
                }
                Event::Wake { task, .. } => instants.push(
                    json!({"name": format!("wake t{task}"), "ph": "i", "s": "t", "pid": 0, "tid": cpu, "ts": micros(*at)}),
                ),
                Event::Spawn { task, .. } => instants.push(
                    json!({"name": format!("spawn t{task}"), "ph": "i", "s": "t", "pid": 0, "tid": cpu, "ts": micros(*at)}),
                ),
            }
        }
        for (cpu, last) in since.into_iter().enumerate() {
            stretch(cpu as u32, last, end);
        }
        events.extend(instants);
        events.extend(
            (0..cpus).map(|cpu| json!({"name": "thread_name", "ph": "M", "pid": 0, "tid": cpu, "args": {"name": format!("CPU {cpu}")}})),
        );
        json!({"displayTimeUnit": "ns", "traceEvents": events}).to_string()
    }
}
