//! Set-up: what is missing on this machine, and how it gets here.
//!
//! # What it is
//! [`ensure`] makes sure that what a command needs is there;
//! [`check`] only says what is not.
//!
//! # How it works
//! 1. Look for QEMU and for a compiler; if all is there, say nothing.
//! 2. Say what is missing and why it is needed.
//! 3. A compiler: try `rustup target add`, the ordinary way.
//! 4. Otherwise, and for QEMU: the system's package manager, as root, or through
//!    `sudo` when that asks no password.
//!    Without the right to install, the one command to run is printed.
//! 5. Look again.
//!
//! What the benches need ([`ensure_bench`]) is asked for by itself and never part of the rest.
//!
//! # Invariants
//! 1. Nothing is installed before it was said what and why.
//! 2. Nothing here waits for an answer from the user.
//!
//! # Cost
//! Nothing missing: some milliseconds. Otherwise a download.

use std::collections::VecDeque;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::compiler;
use crate::kernel_build::TARGET;
use crate::outcome::{Exit, missing, usage};
use crate::packages::{Lists, MANAGERS, Manager, Need, Rights, Tried};
use crate::paths;
use crate::process::{self, Ended, run_lines};
use crate::progress::Progress;

/// The variable that names another QEMU.
pub const QEMU_VARIABLE: &str = "QEMU";
/// QEMU's program where nothing else is said.
const QEMU_PROGRAM: &str = "qemu-system-x86_64";

/// The runner of the benches' harness. It must have the harness's version.
const RUNNER: &str = "gungraun-runner";
/// See `sched-core/Cargo.toml`.
const RUNNER_VERSION: &str = "0.20.0";

/// How long rustup may take to add a target, or to find out that it cannot.
const RUSTUP_LIMIT: Duration = Duration::from_secs(60);
/// How long a package manager may take.
const INSTALL_LIMIT: Duration = Duration::from_secs(30 * 60);
/// How many of a failed command's last lines are shown.
const LAST_LINES: usize = 20;

/// The path of QEMU's program, if it is there.
pub fn qemu() -> Result<Option<PathBuf>> {
    match env::var_os(QEMU_VARIABLE).filter(|value| !value.is_empty()) {
        None => Ok(paths::find_program(QEMU_PROGRAM)),
        Some(program) => paths::find_program(&program).map(Some).ok_or_else(|| {
            usage(format!(
                "{QEMU_VARIABLE}={} is no program; unset {QEMU_VARIABLE} to use {QEMU_PROGRAM}",
                program.display()
            ))
        }),
    }
}

/// Installs what is missing of `needs`.
pub fn ensure(needs: &[Need]) -> Result<()> {
    let absent = add_rustup_targets(absent(needs)?);
    let wanted: Vec<Need> = absent.iter().map(|(need, _)| *need).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let manager = MANAGERS
        .iter()
        .find(|manager| paths::find_program(manager.program).is_some())
        .ok_or_else(|| no_manager(&wanted))?;
    install(manager, &wanted)?;
    let absent = if manager.brings_rustup() { add_rustup_targets(self::absent(needs)?) } else { self::absent(needs)? };
    match absent.first() {
        None => Ok(()),
        Some((need, detail)) => Err(missing(format!(
            "{} is still missing after the installation{detail}; \
             where rustup is there: rustup target add {TARGET}",
            need.name()
        ))),
    }
}

/// Installs what is missing of what the benches need: valgrind, and the runner of their harness.
pub fn ensure_bench() -> Result<()> {
    ensure(&[Need::Valgrind])?;
    let installed = || {
        let programs = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
        let beside_cargo = programs.map(|home| home.join("bin").join(RUNNER));
        let runner = paths::find_program(RUNNER).or(beside_cargo.filter(|runner| runner.is_file()))?;
        process::answer(Command::new(runner).arg("--version"))
    };
    if installed().is_some_and(|version| version.trim().ends_with(RUNNER_VERSION)) {
        return Ok(());
    }
    eprintln!("setup: {RUNNER} {RUNNER_VERSION} is missing: it runs the benches under valgrind");
    run(&format!("cargo install {RUNNER} --version {RUNNER_VERSION} --locked"))?;
    match installed() {
        Some(_) => Ok(()),
        None => Err(missing(format!("{RUNNER} is still missing after its installation"))),
    }
}

/// Says what is there and what is missing.
pub fn check() -> Result<Exit> {
    let absent = absent(&[Need::Qemu, Need::Compiler(TARGET)])?;
    if let Some(qemu) = qemu()? {
        let version = process::answer(Command::new(&qemu).arg("--version")).unwrap_or_default();
        println!("found: {} ({})", qemu.display(), version.lines().next().unwrap_or("no version"));
    }
    if let Ok(compiler) = compiler::find(TARGET) {
        println!("found: {compiler}");
    }
    for (need, detail) in &absent {
        println!("missing: {}{detail}: {}", need.name(), need.why());
    }
    if absent.is_empty() {
        println!("nothing is missing");
        return Ok(Exit::Done);
    }
    println!("to install it: cargo qemu setup");
    Ok(Exit::Failed)
}

/// What of `needs` is not there, each with a detail for its message.
fn absent(needs: &[Need]) -> Result<Vec<(Need, String)>> {
    let mut absent = Vec::new();
    for need in needs {
        match need {
            Need::Qemu if qemu()?.is_none() => absent.push((*need, String::new())),
            Need::Valgrind if paths::find_program("valgrind").is_none() => absent.push((*need, String::new())),
            Need::Qemu | Need::Valgrind => {}
            Need::Compiler(target) => {
                if let Err(reason) = compiler::find(target) {
                    absent.push((*need, format!(" ({reason})")));
                }
            }
        }
    }
    Ok(absent)
}

/// Says what is absent, lets rustup add the targets among it, and answers what is still absent.
fn add_rustup_targets(mut absent: Vec<(Need, String)>) -> Vec<(Need, String)> {
    for (need, detail) in &absent {
        eprintln!("setup: {} is missing{detail}: {}", need.name(), need.why());
    }
    let targets: Vec<_> = absent
        .iter()
        .filter_map(|(need, _)| match need {
            Need::Qemu | Need::Valgrind => None,
            Need::Compiler(target) => Some(*target),
        })
        .collect();
    let Some(rustup) = paths::find_program("rustup").filter(|_| !targets.is_empty()) else { return absent };
    eprintln!("setup: running: rustup target add {}", targets.join(" "));
    let mut command = Command::new(rustup);
    process::without_outer_cargo(&mut command);
    command.args(["target", "add"]).args(targets).current_dir(paths::workspace());
    let mut progress = Progress::moving("setup: rustup");
    let mut reason = String::new();
    let ended = run_lines(&mut command, RUSTUP_LIMIT, |_, line| {
        progress.step(line);
        if let Some(error) = line.strip_prefix("error: ").filter(|_| reason.is_empty()) {
            error.clone_into(&mut reason);
        }
    });
    drop(progress);
    if matches!(ended, Ok(Ended::TimeLimit)) {
        reason = format!("no end after {} s", RUSTUP_LIMIT.as_secs());
    }
    if !reason.is_empty() {
        eprintln!("setup: rustup cannot do that here ({reason}); the system's packages are next");
    }
    absent.retain(|(need, _)| match need {
        Need::Qemu | Need::Valgrind => true,
        Need::Compiler(target) => compiler::find(target).is_err(),
    });
    absent
}

fn install(manager: &Manager, wanted: &[Need]) -> Result<()> {
    let rights = rights(manager);
    let lists = lists(manager, wanted);
    if matches!(rights, Rights::UserSudo | Rights::UserSu) {
        return Err(missing(format!(
            "packages are missing and may not be installed by this user; run: {}",
            manager.line(wanted, lists, rights)
        )));
    }
    if manager.tried == Tried::No {
        eprintln!("setup: note: installing through {} has not been tried yet", manager.name);
    }
    let run_all = |lists| manager.steps(wanted, lists, rights).iter().try_for_each(|step| run(step));
    match run_all(lists) {
        // Old lists name versions that are gone; fetching them anew mends that.
        Err(_) if manager.refreshes() && lists == Lists::Present && !process::interrupted() => {
            eprintln!("setup: that failed; trying once more with fresh lists");
            run_all(Lists::Missing)
        }
        result => result,
    }
}

/// Runs one command line of a package manager.
fn run(step: &str) -> Result<()> {
    eprintln!("setup: running: {step}");
    let mut words = step.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    process::without_outer_cargo(&mut command);
    command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
    let mut progress = Progress::new("setup");
    let mut last = VecDeque::new();
    let ended = run_lines(&mut command, INSTALL_LIMIT, |_, line| {
        progress.step(line);
        last.push_back(line.to_owned());
        if last.len() > LAST_LINES {
            last.pop_front();
        }
    })
    .with_context(|| format!("cannot run {step}"))?;
    let failure = match ended {
        Ended::Itself(status) if status.success() => {
            progress.done("installed");
            return Ok(());
        }
        Ended::Itself(status) => process::describe(status),
        Ended::TimeLimit => format!("no end after {} s", INSTALL_LIMIT.as_secs()),
        Ended::Interrupted => "interrupted".to_owned(),
    };
    last.iter().for_each(|line| progress.line(line));
    Err(missing(format!("the installation failed ({failure}); mend it and run: {step}")))
}

fn rights(manager: &Manager) -> Rights {
    if !manager.needs_root || nix::unistd::geteuid().is_root() {
        return Rights::Ours;
    }
    if paths::find_program("sudo").is_none() {
        return Rights::UserSu;
    }
    match process::answer(Command::new("sudo").args(["-n", "true"])) {
        Some(_) => Rights::Sudo,
        None => Rights::UserSudo,
    }
}

/// Whether apt knows a version of every package; other managers look by themselves.
fn lists(manager: &Manager, wanted: &[Need]) -> Lists {
    if manager.name != "apt" {
        return Lists::Present;
    }
    let has_lists = fs::read_dir("/var/lib/apt/lists")
        .is_ok_and(|entries| entries.flatten().any(|entry| entry.file_name().to_string_lossy().contains("_Packages")));
    let all_known = manager.packages(wanted).iter().all(|package| {
        process::answer(Command::new("apt-cache").args(["policy", package]))
            .is_some_and(|answer| knows_a_version(&answer))
    });
    if has_lists && all_known { Lists::Present } else { Lists::Missing }
}

fn knows_a_version(policy: &str) -> bool {
    policy
        .lines()
        .any(|line| line.trim_start().strip_prefix("Candidate:").is_some_and(|version| version.trim() != "(none)"))
}

fn no_manager(wanted: &[Need]) -> anyhow::Error {
    let known: Vec<_> = MANAGERS.iter().map(|manager| manager.name).collect();
    let names: Vec<_> = wanted.iter().map(|need| need.name()).collect();
    missing(format!(
        "{} missing, and none of the package managers {} is here; install by hand: \
         QEMU from qemu.org, the compiler by: rustup target add {TARGET}",
        names.join(" and "),
        known.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_without_a_candidate_knows_no_version() {
        assert!(knows_a_version("p:\n  Installed: (none)\n  Candidate: 1.2\n"));
        assert!(!knows_a_version("p:\n  Installed: 1.2\n  Candidate: (none)\n"));
        assert!(!knows_a_version(""));
    }

    #[test]
    fn the_runner_has_the_version_of_its_harness() {
        let manifest = fs::read_to_string(paths::workspace().join("sched-core/Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("gungraun = \"={RUNNER_VERSION}\"")), "the harness has another version");
    }

    #[test]
    fn no_manager_is_one_line_that_names_what_is_missing() {
        let text = no_manager(&[Need::Qemu]).to_string();
        assert!(text.starts_with("qemu-system-x86_64 missing") && !text.contains('\n'), "{text}");
    }
}
