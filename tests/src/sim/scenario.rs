//! Scenario files.
//!
//! # What it is
//! [`Scenario`]: a machine, what runs on it, and what must hold. Read from TOML; see `tests/SCENARIOS.md`.
//!
//! # How it works
//! Every field has a default but `cpus` and `ms`. Fields that are not known are refused, and so are values out of range,
//! in one line that says what is accepted.
//!
//! # Invariants
//! 1. A scenario that was read can be run.
//!
//! # Cost
//! None that counts.

use std::{fmt::Write, fs, path::Path};

use sched_core::{Algorithm, Feature};
use serde::Deserialize;

use super::{
    MS, Nanos, US,
    broken::Break,
    script::{self, Op, Task},
    time::{Clock, Span, parse_nanos},
    topology::Topology,
    workload::Work,
};

/// A machine, what runs on it, and what must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// How many CPUs there are.
    pub cpus: u32,
    /// How long a run takes.
    pub length: Nanos,
    /// What the CPUs share.
    pub topology: Topology,
    /// How they are shared.
    pub algorithm: Algorithm,
    /// Whether busy CPUs tick.
    pub ticks: bool,
    /// How far the clocks are apart, at most.
    pub clock_offset: Nanos,
    /// How fast or slow they run, at most, in parts per million.
    pub drift_ppm: i64,
    /// How long a kick travels.
    pub kick: Span,
    /// How long a switch takes.
    pub switch: Span,
    /// CPUs from this number on come online late, one every millisecond.
    pub late_from: u32,
    /// CPUs that go offline for a while.
    pub away: Vec<Away>,
    /// Rules that are not as by default.
    pub features: Vec<(Feature, bool)>,
    /// How long a CPU may idle while a task that may run there waits; measured but not judged if there is no bound.
    pub idle_bound: Option<Nanos>,
    /// How long a task may wait for a CPU; measured but not judged if there is no bound.
    pub wait_bound: Option<Nanos>,
    /// How far the service of a task that never sleeps may be from the ideal, in percent; measured but not judged if there is none.
    pub fairness_percent: Option<f64>,
    /// What runs.
    pub work: Vec<Work>,
    /// What runs besides.
    pub tasks: Vec<Task>,
    /// What the machine does wrong on purpose.
    pub broken: Option<Break>,
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cpus: u32,
    ms: u64,
    #[serde(default)]
    topology: Topology,
    #[serde(default = "eevdf")]
    algorithm: String,
    #[serde(default = "yes")]
    ticks: bool,
    #[serde(default)]
    clock_offset: Option<String>,
    #[serde(default)]
    drift_ppm: i64,
    #[serde(default)]
    kick: Option<String>,
    #[serde(default)]
    switch: Option<String>,
    #[serde(default)]
    late_from: Option<u32>,
    #[serde(default)]
    away: Vec<FileAway>,
    #[serde(default)]
    features: Vec<String>,
    #[serde(default)]
    idle_bound: Option<String>,
    #[serde(default)]
    wait_bound: Option<String>,
    #[serde(default)]
    fairness_percent: Option<f64>,
    #[serde(default)]
    work: Vec<Work>,
    #[serde(default)]
    task: Vec<FileTask>,
}

/// A CPU that goes offline, as soon as it idles, and comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Away {
    /// Which.
    pub cpu: u32,
    /// From when on.
    pub at: Nanos,
    /// For how long.
    pub span: Nanos,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileAway {
    cpu: u32,
    at: String,
    #[serde(rename = "for")]
    span: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTask {
    steps: Vec<String>,
    #[serde(default)]
    times: u64,
    #[serde(default = "one")]
    count: usize,
    #[serde(default)]
    nice: i32,
    policy: Option<String>,
    slice_us: Option<u64>,
    cpus: Option<String>,
    at: Option<String>,
    #[serde(default)]
    template: bool,
}

fn eevdf() -> String {
    "eevdf".into()
}
fn yes() -> bool {
    true
}
fn one() -> usize {
    1
}

impl Scenario {
    /// `cpus` CPUs on which nothing runs for `length`.
    pub fn new(cpus: u32, length: Nanos) -> Self {
        Self {
            cpus,
            length,
            topology: Topology::default(),
            algorithm: Algorithm::Eevdf,
            ticks: true,
            clock_offset: 0,
            drift_ppm: 0,
            kick: Span { from: US, to: 20 * US },
            switch: Span { from: 100, to: 3 * US },
            late_from: cpus,
            away: Vec::new(),
            features: Vec::new(),
            idle_bound: None,
            wait_bound: None,
            fairness_percent: None,
            work: Vec::new(),
            tasks: Vec::new(),
            broken: None,
        }
    }

    /// A mix of about `tasks` tasks that asks for most of the machine, now and then for more, with clocks that differ.
    pub fn random(cpus: u32, tasks: usize, length: Nanos) -> Self {
        let mix = tasks.div_ceil(5) * 4;
        let nice = "nice = [0, 0, -5, 5, 0, 10, -20, 19]";
        // The more tasks there are for a CPU, the longer each of them sleeps.
        let sleep = 2 * MS * (tasks as u64).div_ceil(u64::from(cpus));
        let texts = [
            format!("kind = \"mix\"\ncount = {mix}\nrun = \"1ms\"\nsleep = \"{sleep}ns\"\n{nice}"),
            format!("kind = \"spin\"\ncount = {}\n{nice}", cpus.div_ceil(8)),
        ];
        let work = texts.iter().map(|text| toml::from_str(text).expect("a workload")).collect();
        let idle_bound = Some(super::oracles::bound_of(cpus));
        Self { clock_offset: 50 * US, drift_ppm: 20, idle_bound, work, ..Self::new(cpus, length) }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// One line that names the file, what is wrong, and what is accepted.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(0, |span| text[..span.start].lines().count().max(1));
            format!("line {line}: {}", error.message())
        })?;
        let span = |text: Option<String>, default| text.as_deref().map_or(Ok(default), str::parse::<Span>);
        let nanos = |text: Option<String>| text.as_deref().map(parse_nanos).transpose();
        let base = Self::new(file.cpus, file.ms.saturating_mul(MS));
        let scenario = Self {
            topology: file.topology,
            algorithm: match &*file.algorithm {
                "eevdf" => Algorithm::Eevdf,
                "cfs" => Algorithm::Cfs,
                other => return Err(format!("algorithm `{other}`: eevdf or cfs accepted")),
            },
            ticks: file.ticks,
            clock_offset: nanos(file.clock_offset)?.unwrap_or(0),
            drift_ppm: file.drift_ppm,
            kick: span(file.kick, base.kick)?,
            switch: span(file.switch, base.switch)?,
            late_from: file.late_from.unwrap_or(file.cpus),
            away: file
                .away
                .iter()
                .map(|away| Ok(Away { cpu: away.cpu, at: parse_nanos(&away.at)?, span: parse_nanos(&away.span)? }))
                .collect::<Result<_, String>>()?,
            features: file
                .features
                .iter()
                .map(|name| Feature::parse(name.as_bytes()).map_err(|error| format!("feature `{name}`: {error}")))
                .collect::<Result<_, _>>()?,
            idle_bound: nanos(file.idle_bound)?,
            wait_bound: nanos(file.wait_bound)?,
            fairness_percent: file.fairness_percent,
            work: file.work,
            tasks: file.task.into_iter().map(FileTask::tasks).collect::<Result<Vec<_>, _>>()?.concat(),
            ..base
        };
        scenario.check()?;
        Ok(scenario)
    }

    fn check(&self) -> Result<(), String> {
        let within = |what: &str, value: u64, from: u64, to: u64| {
            if (from..=to).contains(&value) {
                Ok(())
            } else {
                Err(format!("{what} = {value}: {from} to {to} accepted"))
            }
        };
        within("cpus", self.cpus.into(), 1, 1024)?;
        within("ms", self.length / MS, 1, 3_600_000)?;
        within("drift_ppm", self.drift_ppm.unsigned_abs(), 0, 10_000)?;
        within("clock_offset in ns", self.clock_offset, 0, 1_000 * MS)?;
        within("late_from", self.late_from.into(), 1, self.cpus.into())?;
        within("switch in ns", self.switch.from, 1, 10 * MS)?;
        for away in &self.away {
            within("away: cpu", away.cpu.into(), 0, u64::from(self.cpus) - 1)?;
        }
        self.topology.check()?;
        let tasks = self.expand(0)?;
        for (place, task) in tasks.iter().enumerate() {
            for op in task.steps.iter() {
                if let Op::Fork(child) = op
                    && !tasks.get(*child).is_some_and(|child| child.template)
                {
                    return Err(format!("task {place}: `{op}`: task {child} is no template"));
                }
            }
        }
        Ok(())
    }

    /// The tasks, as they are for `seed`.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub fn expand(&self, seed: u64) -> Result<Vec<Task>, String> {
        let mut tasks = self.tasks.clone();
        let pipe = |op: &Op| match op {
            Op::Send(pipe) | Op::Receive(pipe) => Some(pipe + 1),
            _ => None,
        };
        let mut pipes = tasks.iter().flat_map(|task| task.steps.iter().filter_map(pipe)).max().unwrap_or(0);
        let mut chance = fastrand::Rng::with_seed(seed ^ 0x9e37_79b9_7f4a_7c15);
        for work in &self.work {
            work.expand(&mut tasks, &mut pipes, &mut chance)?;
        }
        Ok(tasks)
    }

    /// The clock of each CPU, for `seed`.
    pub fn clocks(&self, seed: u64) -> Vec<Clock> {
        let mut chance = fastrand::Rng::with_seed(seed);
        (0..self.cpus)
            .map(|_| Clock {
                start: super::SECOND + chance.u64(0..=self.clock_offset),
                drift_ppm: chance.i64(-self.drift_ppm..=self.drift_ppm),
            })
            .collect()
    }

    /// The same scenario as a file, with all tasks as they are for `seed`.
    pub fn to_toml(&self, seed: u64) -> String {
        let mut text = String::new();
        let default = Self::new(self.cpus, self.length);
        let mut line = |what: std::fmt::Arguments<'_>| writeln!(text, "{what}").expect("a string takes everything");
        line(format_args!("cpus = {}\nms = {}", self.cpus, self.length.div_ceil(MS)));
        if self.topology != default.topology {
            let Topology { threads, cache, node } = self.topology;
            line(format_args!("topology = {{ threads = {threads}, cache = {cache}, node = {node} }}"));
        }
        if self.algorithm == Algorithm::Cfs {
            line(format_args!("algorithm = \"cfs\""));
        }
        if !self.ticks {
            line(format_args!("ticks = false"));
        }
        line(format_args!("clock_offset = \"{}ns\"\ndrift_ppm = {}", self.clock_offset, self.drift_ppm));
        line(format_args!("kick = \"{}\"\nswitch = \"{}\"", self.kick, self.switch));
        if self.late_from != self.cpus {
            line(format_args!("late_from = {}", self.late_from));
        }
        if !self.features.is_empty() {
            let names = self
                .features
                .iter()
                .map(|(feature, on)| format!("\"{}{}\"", if *on { "" } else { "NO_" }, feature.name()));
            line(format_args!("features = [{}]", names.collect::<Vec<_>>().join(", ")));
        }
        if let Some(bound) = self.idle_bound {
            line(format_args!("idle_bound = \"{bound}ns\""));
        }
        if let Some(bound) = self.wait_bound {
            line(format_args!("wait_bound = \"{bound}ns\""));
        }
        if let Some(percent) = self.fairness_percent {
            line(format_args!("fairness_percent = {percent:?}"));
        }
        for Away { cpu, at, span } in &self.away {
            line(format_args!("\n[[away]]\ncpu = {cpu}\nat = \"{at}ns\"\nfor = \"{span}ns\""));
        }
        for task in script::compact(&self.expand(seed).unwrap_or_default()) {
            let steps = task.steps.iter().map(|op| format!("\"{op}\"")).collect::<Vec<_>>().join(", ");
            line(format_args!("\n[[task]]\nsteps = [{steps}]"));
            let params = task.params;
            let mut field = |name: &str, value: Option<String>| {
                if let Some(value) = value {
                    line(format_args!("{name} = {value}"));
                }
            };
            field("times", Some(task.times).filter(|times| *times != 0).map(|times| times.to_string()));
            field("nice", Some(params.nice.get()).filter(|nice| *nice != 0).map(|nice| nice.to_string()));
            field(
                "policy",
                match params.policy {
                    sched_core::Policy::Normal => None,
                    sched_core::Policy::Batch => Some("\"batch\"".into()),
                    sched_core::Policy::Idle => Some("\"idle\"".into()),
                },
            );
            field("slice_us", params.slice.map(|slice| (slice.nanos() / 1000).to_string()));
            field("cpus", task.cpus.map(|mask| format!("\"{}\"", script::cpu_list(&mask))));
            field("at", Some(task.at).filter(|at| *at != 0).map(|at| format!("\"{at}ns\"")));
            field("template", task.template.then(|| "true".into()));
        }
        text
    }
}

impl FileTask {
    fn tasks(self) -> Result<Vec<Task>, String> {
        let steps = self.steps.iter().map(|step| step.parse()).collect::<Result<Vec<Op>, _>>()?;
        let task = Task {
            at: self.at.as_deref().map_or(Ok(0), parse_nanos)?,
            params: sched_core::TaskParams {
                nice: script::nice(self.nice)?,
                policy: self.policy.as_deref().map_or(Ok(sched_core::Policy::Normal), script::policy)?,
                slice: self.slice_us.map(script::slice).transpose()?,
            },
            cpus: self.cpus.as_deref().map(script::cpus).transpose()?,
            times: self.times,
            template: self.template,
            ..Task::new(steps)
        };
        script::count("count", self.count)?;
        Ok(vec![task; self.count])
    }
}
