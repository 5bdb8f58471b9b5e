//! Which compiler builds for a bare machine here.
//!
//! # What it is
//! [`find`] looks for a compiler that can build for a bare-metal target, and
//! [`Compiler::cargo`] makes cargo calls for it.
//!
//! # How it works
//! The active compiler is taken when its library for the target is installed:
//! that is rustup's ordinary way.
//! Where rustup may not download, a distribution's compiler with the source of its
//! library does as well: `-Zbuild-std` compiles that source first.
//! `RUSTC_BOOTSTRAP=1` is set for that option alone; the kernel's own code is kept
//! to the stable language by `#![deny(unstable_features)]`.
//!
//! # Invariants
//! 1. Each kind of compiler has a target folder of its own, so that they never undo
//!    each other's work.
//!
//! # Cost
//! Two or three calls of `rustc`, some milliseconds each.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{paths, process};

/// The oldest compiler that will do, as the workspace states it.
pub const MIN_VERSION: &str = env!("CARGO_PKG_RUST_VERSION");
/// Where distributions put their compiler.
const DISTRIBUTION_RUSTC: &str = "/usr/bin/rustc";

/// A compiler that can build for a bare-metal target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiler {
    rustc: PathBuf,
    release: String,
    library: Library,
    linker: Linker,
    target: &'static str,
}

/// Where the standard library's bare part comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    Installed,
    Source,
}

/// What links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linker {
    /// `rust-lld`, which comes with the compiler.
    Rust,
    /// The system's `ld`.
    System,
}

/// Which parts of the library are compiled from source where it is not installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// `core` alone.
    Core,
    /// `core`, `alloc` and the functions that compiled code expects, such as `memcpy`.
    Kernel,
}

/// The best compiler for `target` on this machine, or why there is none.
pub fn find(target: &'static str) -> Result<Compiler, String> {
    let active = paths::find_program("rustc");
    let mut reasons = Vec::new();
    for library in [Library::Installed, Library::Source] {
        for rustc in active.iter().cloned().chain([PathBuf::from(DISTRIBUTION_RUSTC)]) {
            match examine(&rustc, target, library) {
                Ok(compiler) => return Ok(compiler),
                Err(reason) if reasons.contains(&reason) => {}
                Err(reason) => reasons.push(reason),
            }
        }
    }
    Err(reasons.join("; "))
}

impl Compiler {
    /// A cargo call `command` for the target, with nothing inherited from the outer cargo.
    pub fn cargo(&self, command: &str, parts: Parts) -> Command {
        let mut cargo = Command::new(self.rustc.with_file_name("cargo"));
        process::without_outer_cargo(&mut cargo);
        cargo.current_dir(paths::workspace()).env("RUSTC", &self.rustc);
        cargo.args([command, "--target", self.target]);
        if self.library == Library::Source {
            cargo.env("RUSTC_BOOTSTRAP", "1");
            match parts {
                Parts::Core => cargo.arg("-Zbuild-std=core"),
                Parts::Kernel => cargo
                    .args(["-Zbuild-std=core,compiler_builtins,alloc", "-Zbuild-std-features=compiler-builtins-mem"]),
            };
        }
        cargo
    }

    /// The target folder of this kind of compiler.
    pub fn target_dir(&self) -> PathBuf {
        paths::target().join(match self.library {
            Library::Installed => "bare-installed",
            Library::Source => "bare-build-std",
        })
    }

    /// Flags for linking a program.
    pub fn link_flags(&self) -> &'static [&'static str] {
        match self.linker {
            Linker::Rust => &[],
            Linker::System => &["-Clinker=ld", "-Clinker-flavor=ld"],
        }
    }
}

impl std::fmt::Display for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let library = match self.library {
            Library::Installed => "installed library",
            Library::Source => "library from source",
        };
        write!(f, "{} {}, {library}", self.rustc.display(), self.release)
    }
}

fn examine(rustc: &Path, target: &'static str, library: Library) -> Result<Compiler, String> {
    let name = rustc.display();
    let release = ask(rustc, &["--version", "--verbose"])
        .and_then(|text| field(&text, "release"))
        .ok_or_else(|| format!("{name} does not run"))?;
    if !is_recent_enough(&release) {
        return Err(format!("{name} is {release}, {MIN_VERSION} is needed"));
    }
    let rustlib = ask(rustc, &["--print", "sysroot"])
        .map(|sysroot| Path::new(&sysroot).join("lib/rustlib"))
        .ok_or_else(|| format!("{name} has no library folder"))?;
    if !paths::is_executable(&rustc.with_file_name("cargo")) {
        return Err(format!("there is no cargo beside {name}"));
    }
    match library {
        Library::Installed if !rustlib.join(target).join("lib").is_dir() => {
            return Err(format!("{name} has no library for {target}"));
        }
        Library::Source if !rustlib.join("src/rust/library/core/Cargo.toml").is_file() => {
            return Err(format!("{name} has no library source"));
        }
        _ => {}
    }
    let linker = if has_rust_lld(&rustlib) { Linker::Rust } else { Linker::System };
    if linker == Linker::System && paths::find_program("ld").is_none() {
        return Err(format!("{name} has no rust-lld and there is no ld"));
    }
    Ok(Compiler { rustc: rustc.to_path_buf(), release, library, linker, target })
}

fn has_rust_lld(rustlib: &Path) -> bool {
    let Ok(hosts) = rustlib.read_dir() else {
        return false;
    };
    hosts.flatten().any(|host| paths::is_executable(&host.path().join("bin/rust-lld")))
}

fn ask(rustc: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(rustc);
    process::without_outer_cargo(&mut command);
    process::answer(command.args(arguments).current_dir(paths::workspace()))
}

fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_owned()))
}

fn is_recent_enough(release: &str) -> bool {
    let numbers = |text: &str| {
        let mut parts = text.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    };
    numbers(release) >= numbers(MIN_VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(is_recent_enough(MIN_VERSION));
        assert!(is_recent_enough("1.100.0-nightly"));
        assert!(is_recent_enough("2.0.0"));
        assert!(!is_recent_enough("1.85.0"));
        assert!(!is_recent_enough("1.9.0"));
        assert!(!is_recent_enough("nonsense"));
    }

    #[test]
    fn fields_are_read_from_verbose_answers() {
        let text = "rustc 1.96.0 (x)\nhost: x86_64\nrelease: 1.96.0\n";
        assert_eq!(field(text, "release").as_deref(), Some("1.96.0"));
        assert_eq!(field(text, "LLVM version"), None);
    }

    #[test]
    fn a_compiler_that_is_not_there_is_named() {
        let reason = examine(Path::new("/no/rustc"), "x86_64-unknown-none", Library::Source).unwrap_err();
        assert_eq!(reason, "/no/rustc does not run");
    }
}
