//! The checks of `cargo qemu test`, as a list.
//!
//! # What it is
//! Every check by name, with what it runs.
//!
//! # How it works
//! [`all`] makes the list, cheap checks first; a new check is a new entry.
//! Most checks are command lines; building a kernel is a call, since this program
//! is what builds kernels.
//!
//! # Invariants
//! 1. Names are unique.
//!
//! # Cost
//! The list is made in no time; running it is another matter.

use std::env;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::compiler::{self, Parts};
use crate::kernel_build::TARGET;
use crate::packages::Need;
use crate::paths;
use crate::process;

/// The longest any check may take.
pub const LIMIT: Duration = Duration::from_secs(25 * 60);

/// The test that breaks the core: a check of its own.
const BROKEN: &str = "every_broken_rule_is_caught";
/// The variable by which boot tests find this program.
const LAUNCHER_VARIABLE: &str = "QEMU_LAUNCHER";
/// Kernels that must compile without a warning.
const BUILD_LISTS: [&str; 6] = ["all", "all,debug", "none", "schedstats", "psi", "psi-default-enabled"];
/// Bare-metal targets that `sched-core` must compile for, with `core` alone.
const CORE_TARGETS: [&str; 3] = ["x86_64-unknown-none", "aarch64-unknown-none", "riscv64gc-unknown-none-elf"];

/// One check.
pub struct Check {
    /// What `--only` looks in.
    pub name: String,
    /// What it shows, in a few words.
    pub shows: &'static str,
    /// What it runs.
    pub action: Action,
}

/// What a check runs.
pub enum Action {
    /// Command lines that must succeed, one after another.
    Commands(Vec<Command>),
    /// A command line that boots kernels.
    Boots(Command),
    /// A kernel that must compile without a warning.
    Kernel(&'static str),
    /// `sched-core` must compile for this target.
    Core(&'static str),
}

/// All checks, in the order in which they run.
pub fn all() -> Vec<Check> {
    let mut checks = vec![
        check("format", "the code is formatted", vec![cargo(&["fmt", "--all", "--check", "--", "--color", "never"])]),
        check("lints", "clippy has nothing to say about host code", vec![warned(&["clippy", "--all-targets"])]),
        check(
            "lints-bare",
            "clippy has nothing to say about the kernel",
            vec![warned(&["clippy", "--package", "kernel", "--package", "boot"])],
        ),
        check("host", "unit, property, simulator and doc tests", vec![cargo(&["test"])]),
        check("simulator", "scenarios and random mixes on simulated machines hold", simulated()),
        check("races", "small machines hold under every schedule, larger ones under many", raced()),
        check("broken", "rules of the core that are broken on purpose are caught", vec![broken()]),
        check("examples", "every example runs to its end", examples()),
        check("docs", "the documentation has no broken link", vec![documented()]),
    ];
    checks.extend(CORE_TARGETS.map(|target| Check {
        name: format!("core-{target}"),
        shows: "sched-core compiles with core alone",
        action: Action::Core(target),
    }));
    checks.extend(BUILD_LISTS.map(|list| Check {
        name: format!("kernel-{list}"),
        shows: "the kernel compiles without a warning",
        action: Action::Kernel(list),
    }));
    let mut boots = cargo(&["test", "--package", "tests", "--", "--ignored", "--skip", BROKEN, "--test-threads=1"]);
    if let Ok(this) = env::current_exe() {
        boots.env(LAUNCHER_VARIABLE, this);
    }
    checks.push(Check {
        name: "boots".to_owned(),
        shows: "kernels boot in QEMU and do what they say",
        action: Action::Boots(boots),
    });
    checks
}

/// What must be on this machine for `checks`.
pub fn needs(checks: &[Check]) -> Vec<Need> {
    let mut needs = Vec::new();
    for check in checks {
        match check.action {
            Action::Commands(_) => {}
            Action::Boots(_) => needs.extend([Need::Qemu, Need::Compiler(TARGET)]),
            Action::Kernel(_) => needs.push(Need::Compiler(TARGET)),
            Action::Core(target) => needs.push(Need::Compiler(target)),
        }
    }
    // Few enough to look through again; the order says what is asked for first.
    let mut once = Vec::new();
    needs.into_iter().for_each(|need| {
        if !once.contains(&need) {
            once.push(need);
        }
    });
    once
}

/// The command that compiles `sched-core` for a bare target, or why there is none.
pub fn core_command(target: &'static str) -> Result<Command, String> {
    let compiler = compiler::find(target)?;
    let mut cargo = compiler.cargo("build", Parts::Core);
    cargo.args(["--package", "sched-core", "--lib"]);
    cargo.arg("--target-dir").arg(compiler.target_dir().join("core"));
    Ok(cargo)
}

fn check(name: &str, shows: &'static str, commands: Vec<Command>) -> Check {
    Check { name: name.to_owned(), shows, action: Action::Commands(commands) }
}

/// A call of the host's cargo, with nothing inherited from the outer one except
/// the place of what is built.
fn cargo(arguments: &[&str]) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    process::without_outer_cargo(&mut command);
    command.current_dir(paths::workspace()).args(arguments);
    command.env("CARGO_TARGET_DIR", paths::target()).env("CARGO_TERM_COLOR", "never");
    command
}

fn warned(arguments: &[&str]) -> Command {
    let mut command = cargo(arguments);
    command.args(["--", "--deny", "warnings"]);
    command
}

fn documented() -> Command {
    let mut command = cargo(&["doc", "--no-deps", "--package", "sched-core"]);
    command.env("RUSTDOCFLAGS", "--deny warnings");
    command
}

/// Every scenario from some seeds, and 200 random mixes, under both algorithms.
fn simulated() -> Vec<Command> {
    let mut files = names(&paths::workspace().join("tests/scenarios"), "toml");
    files.iter_mut().for_each(|name| *name = format!("tests/scenarios/{name}.toml"));
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let mix = ["--random", "--cpus", "8", "--tasks", "100", "--ms", "1000"];
    let mut commands = Vec::new();
    for algorithm in ["eevdf", "cfs"] {
        for (source, seeds) in [(&files[..], "10"), (&mix[..], "200")] {
            let mut command = cargo(&["run", "--release", "--package", "tests", "--bin", "sim", "--", "run"]);
            command.args(source).args(["--algorithm", algorithm, "--seeds", seeds]);
            commands.push(command);
        }
    }
    commands
}

/// The concurrency checkers, deeper than in the ordinary tests.
fn raced() -> Vec<Command> {
    let target = |name| cargo(&["test", "--release", "--package", "sched-core", "--test", name]);
    let (mut every, mut many) = (target("races"), target("interleavings"));
    every.env("LOOM_MAX_PREEMPTIONS", "4");
    many.env("SCHEDULES", "5000");
    vec![every, many, target("store_buffers"), target("handover")]
}

fn broken() -> Command {
    cargo(&["test", "--package", "tests", "--test", "broken", "--", "--ignored", "--exact", BROKEN])
}

fn examples() -> Vec<Command> {
    names(&paths::workspace().join("sched-core/examples"), "rs")
        .iter()
        .map(|name| cargo(&["run", "--package", "sched-core", "--example", name]))
        .collect()
}

/// The names of the files in `dir` that end like this, without the end.
fn names(dir: &Path, end: &str) -> Vec<String> {
    let Ok(entries) = dir.read_dir() else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == end))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let checks = all();
        for (index, check) in checks.iter().enumerate() {
            assert!(checks[..index].iter().all(|other| other.name != check.name), "{}", check.name);
        }
    }

    #[test]
    fn what_the_interface_promises_is_checked() {
        let names: Vec<_> = all().into_iter().map(|check| check.name).collect();
        for name in ["format", "lints", "host", "docs", "kernel-none", "boots"] {
            assert!(names.iter().any(|other| other == name), "{name} is missing");
        }
    }

    #[test]
    fn examples_are_found_by_themselves() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["b.rs", "a.rs", "c.txt"] {
            std::fs::write(dir.path().join(file), "").unwrap();
        }
        assert_eq!(names(dir.path(), "rs"), ["a", "b"]);
        assert!(names(&dir.path().join("none"), "rs").is_empty());
    }
}
