//! `cargo qemu test`: runs the checks one after another and sums up.
//!
//! # What it is
//! The runner of [`checks`]: one line for each check with its time and result.
//!
//! # How it works
//! The output of a check goes to a file below `target/checks`.
//! All checks run even if one fails; the first failing check's output is shown
//! whole at the end, the others' files are named.
//!
//! # Invariants
//! 1. The exit code is 1 if and only if a check failed.
//! 2. No check runs longer than [`checks::LIMIT`].
//!
//! # Cost
//! Minutes: the whole list is meant to stay below 40 on two processors.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::build_list::BuildList;
use crate::checks::{self, Action, Check, LIMIT};
use crate::kernel_build;
use crate::outcome::{Exit, usage};
use crate::process::{self, Ended, run_lines};
use crate::progress::Progress;
use crate::{paths, setup};

/// The end of one check.
struct Report {
    name: String,
    time: Duration,
    /// Nothing, or why it failed.
    fault: Option<String>,
    log: PathBuf,
}

/// Runs the checks whose name contains one of `only`, or all.
pub fn test(only: &[String], list: bool) -> Result<Exit> {
    let checks: Vec<_> = checks::all().into_iter().filter(|check| is_chosen(check, only)).collect();
    if checks.is_empty() {
        return Err(usage(format!(
            "--only: no check is called '{}'; the names: cargo qemu test --list",
            only.join("' or '")
        )));
    }
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    if list {
        for check in checks {
            println!("{:width$}  {}", check.name, check.shows);
        }
        return Ok(Exit::Done);
    }

    let logs = paths::target().join("checks");
    paths::make_target_folder(&logs)?;
    setup::ensure(&checks::needs(&checks))?;
    let count = checks.len();
    let mut reports: Vec<Report> = Vec::new();
    for (index, check) in checks.into_iter().enumerate() {
        let report = perform(check, &logs)?;
        let result = report.fault.as_deref().unwrap_or("ok");
        println!("[{:2}/{count}] {:width$} {:7.1} s  {result}", index + 1, report.name, report.time.as_secs_f64());
        reports.push(report);
        if process::interrupted() {
            break;
        }
    }
    Ok(sum_up(&reports))
}

fn is_chosen(check: &Check, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|part| check.name.contains(part))
}

fn perform(check: Check, logs: &Path) -> Result<Report> {
    let log = logs.join(format!("{}.log", check.name));
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut out = BufWriter::new(file);
    let begun = Instant::now();
    let fault = match check.action {
        Action::Commands(commands) => {
            commands.into_iter().find_map(|command| command_fault(command, &check.name, &mut out))
        }
        Action::Boots(command) => command_fault(command, &check.name, &mut out),
        Action::Core(target) => match checks::core_command(target) {
            Ok(command) => command_fault(command, &check.name, &mut out),
            Err(reason) => Some(format!("no compiler: {reason}")),
        },
        Action::Kernel(list) => kernel_fault(list, &mut out),
    };
    out.flush().with_context(|| format!("cannot write {}", log.display()))?;
    Ok(Report { name: check.name, time: begun.elapsed(), fault, log })
}

/// Runs one command; answers why it failed, if it did.
fn command_fault(mut command: Command, name: &str, out: &mut impl Write) -> Option<String> {
    let mut progress = Progress::moving(format!("check: {name}"));
    let ended = run_lines(&mut command, LIMIT, |_, line| {
        progress.step(line);
        // A log that cannot be written must not stop the check.
        let _ = writeln!(out, "{line}");
    });
    match ended {
        Ok(Ended::Itself(status)) if status.success() => None,
        Ok(Ended::Itself(status)) => Some(format!("failed ({})", process::describe(status))),
        Ok(Ended::TimeLimit) => Some(format!("failed (no end after {} s)", LIMIT.as_secs())),
        Ok(Ended::Interrupted) => Some("interrupted".to_owned()),
        Err(error) => Some(format!("failed (cannot start {}: {error})", command.get_program().display())),
    }
}

/// Builds a kernel, which must succeed without a message from the compiler.
fn kernel_fault(list: &str, out: &mut impl Write) -> Option<String> {
    let mut messages = Vec::new();
    let built = BuildList::parse(list, &paths::workspace()).and_then(|list| kernel_build::build(&list, &mut messages));
    for message in &messages {
        // As above: the log is for people, the result counts.
        let _ = writeln!(out, "{message}");
    }
    match built {
        Ok(_) if messages.is_empty() => None,
        Ok(_) => Some("failed (the compiler had something to say)".to_owned()),
        Err(error) => Some(format!("failed ({error:#})")),
    }
}

fn sum_up(reports: &[Report]) -> Exit {
    let failed: Vec<_> = reports.iter().filter(|report| report.fault.is_some()).collect();
    if let Some(first) = failed.first() {
        println!("\n--- output of {} ({})", first.name, first.log.display());
        print!("{}", fs::read_to_string(&first.log).unwrap_or_default());
        println!("--- end of output of {}", first.name);
    }
    for report in &failed {
        println!("failed: {}, see {}", report.name, report.log.display());
    }
    let total: Duration = reports.iter().map(|report| report.time).sum();
    println!("\nall checks together: {:.0} s", total.as_secs_f64());
    println!("{} passed, {} failed", reports.len() - failed.len(), failed.len());
    if failed.is_empty() { Exit::Done } else { Exit::Failed }
}
