//! `sim`: plays scenarios on the simulated machine. See `tests/SCENARIOS.md`.
//!
//! Exit codes: 0 everything held; 1 an oracle objected; 2 wrong usage, or a file that cannot be read.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use clap::{Args, Parser, Subcommand};
use sched_core::Algorithm;
use tests::sim::{MS, Outcome, Scenario, oracles, run, shrink};

/// Plays scenarios on a simulated machine that runs the shipped scheduler, and objects to what must not happen.
#[derive(Parser)]
#[command(
    after_help = "Exit codes: 0 everything held; 1 an oracle objected; 2 wrong usage or a file that cannot be read"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Plays a scenario, or a random mix, from one seed or many
    Run {
        #[command(flatten)]
        source: Source,
        /// The first seed
        #[arg(long, value_name = "N", default_value_t = 0)]
        seed: u64,
        /// How many seeds, from the first on
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
        seeds: u64,
        /// Write what happened, as text, to this file (`-`: the console); one seed only
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
        /// Write what happened for chrome://tracing and Perfetto to this file; one seed only
        #[arg(long, value_name = "FILE")]
        chrome: Option<PathBuf>,
    },
    /// Makes a scenario that fails as small as it can, and prints it
    Shrink {
        #[command(flatten)]
        source: Source,
        /// The seed that fails
        #[arg(long, value_name = "N", default_value_t = 0)]
        seed: u64,
        /// Write the small scenario to this file
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Prints what a wake-up costs on machines of 8 to 1024 CPUs
    Cost,
}

/// What is played: a file, or a random mix.
#[derive(Args)]
struct Source {
    /// Scenario files
    #[arg(value_name = "FILE", required_unless_present = "random", conflicts_with = "random")]
    files: Vec<PathBuf>,
    /// A random mix of tasks instead of a file
    #[arg(long)]
    random: bool,
    /// CPUs of the random mix
    #[arg(long, value_name = "N", default_value_t = 8, requires = "random", value_parser = clap::value_parser!(u32).range(1..=1024))]
    cpus: u32,
    /// Tasks of the random mix, about
    #[arg(long, value_name = "N", default_value_t = 100, requires = "random", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    tasks: u32,
    /// Simulated milliseconds of the random mix
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "random", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    ms: u64,
    /// The algorithm, `eevdf` or `cfs`; that of the file if not given
    #[arg(long, value_name = "NAME", value_parser = ["eevdf", "cfs"])]
    algorithm: Option<String>,
}

/// A scenario, and the arguments that name it.
struct Named {
    scenario: Scenario,
    arguments: String,
}

impl Source {
    /// Reads them all.
    fn scenarios(&self) -> Result<Vec<Named>, String> {
        let mix = || {
            let arguments = format!("--random --cpus {} --tasks {} --ms {}", self.cpus, self.tasks, self.ms);
            (Scenario::random(self.cpus, self.tasks as usize, self.ms * MS), arguments)
        };
        let mut named = if self.random { vec![mix()] } else { Vec::new() };
        for file in &self.files {
            named.push((Scenario::read(file)?, file.display().to_string()));
        }
        let with_algorithm = |(scenario, arguments): (Scenario, String)| match self.algorithm.as_deref() {
            None => Named { scenario, arguments },
            Some(name) => {
                let algorithm = if name == "cfs" { Algorithm::Cfs } else { Algorithm::Eevdf };
                Named {
                    scenario: Scenario { algorithm, ..scenario },
                    arguments: format!("{arguments} --algorithm {name}"),
                }
            }
        };
        Ok(named.into_iter().map(with_algorithm).collect())
    }

    /// Reads the only one.
    fn scenario(&self) -> Result<Named, String> {
        let mut named = self.scenarios()?;
        match (named.pop(), named.is_empty()) {
            (Some(only), true) => Ok(only),
            _ => Err("one scenario at a time, please".into()),
        }
    }
}

fn main() -> ExitCode {
    // A panic of the scheduler becomes an objection; its own message would only be printed twice.
    std::panic::set_hook(Box::new(|_| {}));
    match carry_out(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(what) => {
            eprintln!("sim: {what}");
            ExitCode::from(2)
        }
    }
}

fn carry_out(command: Command) -> Result<bool, String> {
    match command {
        Command::Run { source, seed, seeds, trace, chrome } => {
            if trace.is_none() && chrome.is_none() {
                let mut held = true;
                for named in source.scenarios()? {
                    held &= if seeds > 1 {
                        many(&named, seed, seeds)
                    } else {
                        report(&named, seed, &run(&named.scenario, seed, false))
                    };
                }
                return Ok(held);
            }
            if seeds > 1 {
                return Err("--trace and --chrome are for one seed: leave --seeds out".into());
            }
            let named = source.scenario()?;
            let outcome = run(&named.scenario, seed, true);
            if let Some(events) = &outcome.trace {
                if let Some(file) = trace {
                    write(&file, &events.to_string())?;
                }
                if let Some(file) = chrome {
                    write(&file, &events.to_chrome(named.scenario.cpus, named.scenario.length))?;
                }
            }
            Ok(report(&named, seed, &outcome))
        }
        Command::Shrink { source, seed, output } => {
            let Named { scenario, arguments } = source.scenario()?;
            let small = shrink::shrink(&scenario, seed, |best| {
                let tasks = best.scenario.tasks.iter().filter(|task| !task.steps.is_empty()).count();
                eprintln!("sim: {} runs, {tasks} tasks, {} CPUs", best.attempts, best.scenario.cpus);
            });
            let Some(small) = small else {
                return Err(format!("{arguments} --seed {seed} does not fail: nothing to make smaller"));
            };
            let objection = &small.objection;
            let text = format!(
                "# {}: {}\n# fails from seed {seed}\n\n{}",
                objection.oracle,
                objection.what,
                small.scenario.to_toml(seed)
            );
            match output {
                Some(file) => write(&file, &text)?,
                None => print!("{text}"),
            }
            Ok(true)
        }
        Command::Cost => Ok(cost()),
    }
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    if file.as_os_str() == "-" {
        print!("{text}");
        return Ok(());
    }
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// One line of what was counted, or two of what was objected.
fn report(named: &Named, seed: u64, outcome: &Outcome) -> bool {
    let figures = &outcome.figures;
    let status = if outcome.objection.is_none() { "ok" } else { "failed" };
    let measured: String = figures.measured.iter().map(|(name, value)| format!(" {name}={value:.3}")).collect();
    println!(
        "sim {} seed={seed} status={status} tasks={} events={} switches={} wake_ups={} moved={} kicks={}{measured}",
        named.arguments,
        figures.tasks,
        figures.events,
        figures.switches,
        figures.wake_ups,
        figures.moved,
        figures.kicks
    );
    object(named, seed, outcome);
    outcome.objection.is_none()
}

fn object(named: &Named, seed: u64, outcome: &Outcome) {
    if let Some(objection) = &outcome.objection {
        println!("sim: {:.6} ms: {}: {}", objection.at as f64 / MS as f64, objection.oracle, objection.what);
        println!("sim: to play it again: cargo run --release -p tests -- run {} --seed {seed}", named.arguments);
        println!("sim: to make it small: cargo run --release -p tests -- shrink {} --seed {seed}", named.arguments);
    }
}

/// Plays all seeds on all cores of the host.
fn many(named: &Named, first: u64, seeds: u64) -> bool {
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let worst = Mutex::new(std::collections::BTreeMap::<&str, f64>::new());
    let events = AtomicU64::new(0);
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    if at >= seeds {
                        return;
                    }
                    let outcome = run(&named.scenario, first.wrapping_add(at), false);
                    events.fetch_add(outcome.figures.events, Relaxed);
                    let mut worst = worst.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    for (name, value) in &outcome.figures.measured {
                        let seen = worst.entry(name).or_insert(*value);
                        *seen = seen.max(*value);
                    }
                    if outcome.objection.is_some() {
                        failed.fetch_add(1, Relaxed);
                        object(named, first.wrapping_add(at), &outcome);
                    }
                }
            });
        }
    });
    let (failed, events) = (failed.into_inner(), events.into_inner());
    let worst: String = worst
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
        .iter()
        .map(|(name, value)| format!(" max_{name}={value:.3}"))
        .collect();
    let status = if failed == 0 { "ok" } else { "failed" };
    println!("sim {} seeds={seeds} status={status} failed={failed} events={events}{worst}", named.arguments);
    failed == 0
}

/// What a wake-up reads, by the size of the machine: when half of the CPUs are idle, and when none is.
fn cost() -> bool {
    println!("Words of the scheduler read in the course of a wake-up (a CPU looked at is one of them):");
    println!("{:>6} {:>14} {:>14}", "CPUs", "half idle", "all busy");
    let mut held = true;
    for cpus in [8, 64, 256, 1024] {
        let row = [2, 8].map(|tasks| {
            let text = format!(
                "cpus = {cpus}\nms = 100\n[[work]]\nkind = \"periodic\"\ncount = {}\nrun = \"500us..1ms\"\nsleep = \"1ms..2ms\"",
                cpus * tasks
            );
            let outcome = Scenario::parse(&text).map(|scenario| run(&scenario, 1, false));
            let Ok(Outcome { objection: None, figures, .. }) = outcome else {
                held = false;
                return f64::NAN;
            };
            figures.words as f64 / figures.wake_ups.max(1) as f64
        });
        println!("{cpus:>6} {:>14.1} {:>14.1}", row[0], row[1]);
    }
    println!(
        "A CPU should idle no longer than {} ms at 8 CPUs while a task that may run there waits, {} ms at 1024.",
        oracles::bound_of(8) / MS,
        oracles::bound_of(1024) / MS
    );
    held
}
