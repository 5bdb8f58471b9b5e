//! The kernel: compile, name its functions, and put it in its place.
//!
//! # What it is
//! [`build`] answers with the path of a finished kernel for a build list.
//!
//! # How it works
//! Cargo compiles and links in the compiler's own target folder, where the kernels
//! of all build lists share what they have in common.
//! The linked file is then copied, gets its symbol table, and is renamed to
//! `target/kernels/kernel-LIST`.
//! A lock spans compiling and copying: a second launcher that builds another list
//! must not replace cargo's output in between.
//!
//! # Invariants
//! 1. A kernel's path depends on its build list alone.
//! 2. Whoever opens a kernel sees a whole one.
//!
//! # Cost
//! About a minute for the first kernel where the library is compiled too, a few
//! seconds for the next list, half a second when nothing changed.

use std::fs::{self, File, TryLockError};
use std::io::{self, IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use console::strip_ansi_codes;

use crate::build_list::BuildList;
use crate::compiler::{self, Compiler, Parts};
use crate::outcome::{failed, missing, usage};
use crate::paths;
use crate::process::{Ended, interrupted, run_lines};
use crate::progress::Progress;
use crate::symbols;

/// What the kernel is compiled for.
pub const TARGET: &str = "x86_64-unknown-none";
/// Flags for compiling the kernel. This is their only place: a build by hand copies them.
const RUSTFLAGS: [&str; 2] = ["-Crelocation-model=static", "-Cforce-frame-pointers=yes"];
/// The longest a build may take.
const LIMIT: Duration = Duration::from_secs(30 * 60);
/// How often a lock that another launcher holds is tried.
const RETRY: Duration = Duration::from_millis(100);

/// Words with which cargo's own lines begin, as against the compiler's messages.
const CARGO_WORDS: [&str; 12] = [
    "Adding",
    "Blocking",
    "Building",
    "Compiling",
    "Dirty",
    "Downloaded",
    "Downloading",
    "Finished",
    "Fresh",
    "Locking",
    "Removing",
    "Updating",
];

/// Builds the kernel with what `list` names, if it is not there already; answers where it lies.
///
/// The compiler's messages go to standard error as they come, and into `messages`.
pub fn build(list: &BuildList, messages: &mut Vec<String>) -> Result<PathBuf> {
    let compiler = compiler::find(TARGET).map_err(|reason| missing(format!("no compiler: {reason}")))?;
    prepare()?;
    paths::make_target_folder(&compiler.target_dir())?;
    let kernels = paths::kernels();
    let _lock = lock(&kernels.join(".lock"))?;

    compile(&compiler, list, messages)?;
    let linked = compiler.target_dir().join(TARGET).join("kernel/kernel");
    let path = kernels.join(list.file_name());
    finish(&linked, &path)?;
    Ok(path)
}

/// Makes the folder of the finished kernels, or says why there can be none;
/// to be asked before anything is installed for a build.
pub fn prepare() -> Result<()> {
    paths::make_target_folder(&paths::kernels())
}

/// Takes the lock that spans compiling and copying; it is given back when dropped.
fn lock(path: &Path) -> Result<File> {
    let file = File::create(path).map_err(|error| unusable(path, &error))?;
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if interrupted() => return Err(failed("interrupted")),
            Err(TryLockError::WouldBlock) => {
                if !told {
                    eprintln!("waiting for another build of a kernel ...");
                    told = true;
                }
                thread::sleep(RETRY);
            }
            // Not every file system has locks; then cargo's own must do.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                return Ok(file);
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
    }
}

fn compile(compiler: &Compiler, list: &BuildList, messages: &mut Vec<String>) -> Result<()> {
    let mut flags = RUSTFLAGS.to_vec();
    flags.extend(compiler.link_flags());
    let mut cargo = compiler.cargo("build", Parts::Kernel);
    cargo.args(["--package", "kernel", "--profile", "kernel", "--no-default-features"]);
    cargo.arg("--features").arg(list.features().join(","));
    cargo.arg("--target-dir").arg(compiler.target_dir());
    cargo.args(["--color", if stderr().is_terminal() { "always" } else { "never" }]);
    cargo.env("RUSTFLAGS", flags.join(" "));

    let mut progress = Progress::new(format!("build: kernel ({})", list.name()));
    let ended = run_lines(&mut cargo, LIMIT, |_, line| {
        let plain = strip_ansi_codes(line);
        let words = plain.trim_start();
        if !CARGO_WORDS.iter().any(|word| words.starts_with(word)) {
            progress.line(line);
            messages.push(plain.into_owned());
        } else if words.starts_with("Compiling") || words.starts_with("Blocking") {
            progress.step(words);
        }
    })
    .context("cannot start cargo")?;
    match ended {
        Ended::Itself(status) if status.success() => {
            progress.done("done");
            Ok(())
        }
        Ended::Itself(_) => Err(failed(format!(
            "the kernel ({}) does not compile (with {compiler}); the messages are above",
            list.name()
        ))),
        Ended::TimeLimit => Err(failed(format!("compiling the kernel took more than {} s", LIMIT.as_secs()))),
        Ended::Interrupted => Err(failed("interrupted")),
    }
}

/// Copies the linked kernel to its place, with its symbol table.
fn finish(linked: &Path, path: &Path) -> Result<()> {
    let mut elf = fs::read(linked).with_context(|| format!("cannot read {}", linked.display()))?;
    symbols::write_table(&mut elf)?;
    if fs::read(path).is_ok_and(|present| present == elf) {
        return Ok(());
    }
    let fresh = path.with_added_extension(format!("{}.new", process::id()));
    fs::write(&fresh, &elf).and_then(|()| fs::rename(&fresh, path)).map_err(|error| unusable(path, &error))
}

/// Something stands in the way of a file below the target folder, or the disk is full.
fn unusable(path: &Path, error: &io::Error) -> anyhow::Error {
    usage(format!("cannot write {}: {error}; make room for that file", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = lock(&path).unwrap();
        let other = File::create(&path).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(held);
        assert!(other.try_lock().is_ok());
    }
}
