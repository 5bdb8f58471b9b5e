//! Where things lie: the workspace and what is built in it.
//!
//! # What it is
//! The folders the launcher reads and writes, found without asking cargo.
//!
//! # How it works
//! The program is started by `cargo run`, so its own folder is the target folder
//! (`target/debug/qemu`), wherever the user has put that.
//! A program that was copied elsewhere falls back to `target` in the workspace.
//!
//! # Invariants
//! 1. Everything the launcher writes, except `--capture`, is below [`target`].
//!
//! # Cost
//! A few look-ups in the file system.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::outcome::usage;

/// The file by which cargo marks a target folder.
const TARGET_MARK: &str = "CACHEDIR.TAG";

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    let is_root = |dir: &Path| dir.join("qemu/Cargo.toml").is_file() && dir.join("kernel").is_dir();
    env::var_os("CARGO_MANIFEST_DIR")
        .map(PathBuf::from)
        .into_iter()
        .chain([PathBuf::from(env!("CARGO_MANIFEST_DIR"))])
        .filter_map(|package| package.parent().map(Path::to_path_buf))
        .find(|dir| is_root(dir))
        .unwrap_or_else(|| PathBuf::from("."))
}

/// The folder for everything that is built.
pub fn target() -> PathBuf {
    env::current_exe()
        .ok()
        .as_deref()
        .and_then(Path::parent)
        .and_then(Path::parent)
        .filter(|dir| dir.join(TARGET_MARK).is_file())
        .map_or_else(|| workspace().join("target"), Path::to_path_buf)
}

/// The folder of the finished kernels, one file for each build list.
pub fn kernels() -> PathBuf {
    target().join("kernels")
}

/// Makes `dir` if it is not there, and shows that files can be written in it.
pub fn make_usable(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let probe = dir.join(format!(".probe-{}", std::process::id()));
    File::create(&probe)?;
    fs::remove_file(probe)
}

/// Makes a folder below [`target`], or says in one line why the program cannot work there.
pub fn make_target_folder(dir: &Path) -> Result<()> {
    make_usable(dir).map_err(|error| {
        usage(format!("cannot write in the target folder {}: {error}; make room for that folder", dir.display()))
    })
}

/// Finds `program` as a shell would: a path as it is, a bare name in `PATH`.
pub fn find_program(program: impl AsRef<Path>) -> Option<PathBuf> {
    let program = program.as_ref();
    if program.components().count() > 1 {
        return is_executable(program).then(|| program.to_path_buf());
    }
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(program)).find(|candidate| is_executable(candidate))
}

/// Whether `file` is a file that may be executed.
pub fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_found() {
        assert!(workspace().join("sched-core/Cargo.toml").is_file());
    }

    #[test]
    fn programs_are_found_by_name_and_by_path() {
        assert!(find_program("sh").is_some());
        assert!(find_program("/bin/sh").is_some());
        assert_eq!(find_program("no-such-program-anywhere"), None);
        assert_eq!(find_program("/etc/passwd"), None, "not executable");
    }
}
