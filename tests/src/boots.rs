//! Helpers for tests that boot kernels.
//!
//! # What it is
//! [`boot`] runs `cargo qemu run`, [`boot_by_hand`] runs QEMU as a user would,
//! and [`Boot`] answers questions about what the console showed.
//!
//! # How it works
//! The launcher is the one whose path is in `QEMU_LAUNCHER` (as under `cargo qemu test`),
//! else it is built here, once.
//! It ends QEMU by its own time limit; a QEMU that is run by hand is ended by ours.
//!
//! # Invariants
//! 1. No QEMU outlives the call that started it.
//!
//! # Cost
//! A second for each boot, and the time of its workloads.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The variable that names the launcher's program.
pub const LAUNCHER_VARIABLE: &str = "QEMU_LAUNCHER";
/// The beginning of a workload's line for programs.
const BENCH: &str = "bench ";
/// The beginning of a run's last line.
const END: &str = "end ";

/// A boot that has ended.
#[derive(Debug)]
pub struct Boot {
    /// The exit code; nothing when QEMU was ended by a signal or by us.
    pub code: Option<i32>,
    /// What the guest printed.
    pub console: String,
    /// What the launcher or QEMU printed on standard error.
    pub remarks: String,
}

/// The fields of a line such as `bench workload=pipe loops=5 cmdline="a b"`.
pub type Fields = BTreeMap<String, String>;

/// Boots through the launcher: `cargo qemu run` with `arguments`.
pub fn boot(arguments: &[&str]) -> Boot {
    let output = Command::new(launcher()).arg("run").args(arguments).stdin(Stdio::null()).output();
    let output = output.expect("the launcher runs");
    Boot {
        code: output.status.code(),
        console: String::from_utf8_lossy(&output.stdout).into_owned(),
        remarks: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs `qemu-system-x86_64` itself with `arguments`, and ends it after `limit`.
pub fn boot_by_hand(arguments: &[&str], limit: Duration) -> Boot {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = env::temp_dir().join(format!("sched-core-boot-{}-{count}", std::process::id()));
    fs::create_dir_all(&dir).expect("the folder for the console can be made");
    let (console, remarks) = (dir.join("console"), dir.join("remarks"));
    let create = |path: &Path| File::create(path).expect("a file in that folder can be made");
    let mut child = Command::new(env::var_os("QEMU").unwrap_or_else(|| "qemu-system-x86_64".into()))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(create(&console))
        .stderr(create(&remarks))
        .spawn()
        .expect("qemu-system-x86_64 starts");
    let end = Instant::now() + limit;
    let code = loop {
        match child.try_wait().expect("QEMU's end can be awaited") {
            Some(status) => break status.code(),
            None if Instant::now() >= end => {
                child.kill().and_then(|()| child.wait()).expect("QEMU can be ended");
                break None;
            }
            None => thread::sleep(Duration::from_millis(50)),
        }
    };
    let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let boot = Boot { code, console: read(&console).replace('\r', ""), remarks: read(&remarks) };
    // What is left of the folder is temporary by its place.
    let _ = fs::remove_dir_all(&dir);
    boot
}

/// The path of the kernel with what `build` lists compiled in, built if needed.
pub fn kernel(build: &str) -> PathBuf {
    let output = Command::new(launcher()).args(["path", "--build", build]).output().expect("the launcher runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("the path is text");
    let mut lines = text.lines();
    let path = PathBuf::from(lines.next().expect("a path is printed"));
    assert_eq!(lines.next(), None, "the path stands alone on standard output: {text}");
    path
}

/// The launcher's program.
pub fn launcher() -> &'static Path {
    static LAUNCHER: OnceLock<PathBuf> = OnceLock::new();
    LAUNCHER.get_or_init(|| env::var_os(LAUNCHER_VARIABLE).map_or_else(build_launcher, PathBuf::from))
}

fn build_launcher() -> PathBuf {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(["build", "--quiet", "--package", "qemu"]).status();
    assert!(status.expect("cargo runs").success(), "the launcher does not compile");
    // This program is `target/debug/deps/NAME`; the launcher is `target/debug/qemu`.
    let this = env::current_exe().expect("this program has a path");
    let folder = this.parent().and_then(Path::parent).expect("it lies in a target folder");
    folder.join("qemu")
}

impl Boot {
    /// Panics with the whole console unless the exit code is `code`.
    #[track_caller]
    pub fn ends_with(&self, code: i32) -> &Boot {
        assert_eq!(self.code, Some(code), "the exit code is another{self}");
        self
    }

    /// The last line of the console, which must be the `end` line, as fields.
    #[track_caller]
    pub fn end(&self) -> Fields {
        let last = self.console.lines().last().unwrap_or_default();
        let fields = last.strip_prefix(END).unwrap_or_else(|| panic!("the last line is no end line{self}"));
        fields_of(fields)
    }

    /// The `bench` lines of `workload`, in order.
    pub fn benches(&self, workload: &str) -> Vec<Fields> {
        self.console
            .lines()
            .filter_map(|line| line.strip_prefix(BENCH))
            .map(fields_of)
            .filter(|fields| fields.get("workload").is_some_and(|name| name == workload))
            .collect()
    }

    /// The only `bench` line of `workload`.
    #[track_caller]
    pub fn bench(&self, workload: &str) -> Fields {
        let mut benches = self.benches(workload);
        assert_eq!(benches.len(), 1, "not one bench line of {workload}{self}");
        benches.remove(0)
    }

    /// The dump of a kernel file, if there was one.
    pub fn dump(&self, path: &str) -> Option<&str> {
        let begin = format!("--- begin {path}\n");
        let from = self.console.find(&begin)? + begin.len();
        let length = self.console[from..].find(&format!("--- end {path} "))?;
        Some(&self.console[from..from + length])
    }

    /// The console's lines that contain every one of `parts`.
    pub fn lines_with(&self, parts: &[&str]) -> Vec<&str> {
        self.console.lines().filter(|line| parts.iter().all(|part| line.contains(part))).collect()
    }

    /// Panics with the whole console unless exactly one line contains every one of `parts`.
    #[track_caller]
    pub fn says_once(&self, parts: &[&str]) -> &Boot {
        let lines = self.lines_with(parts);
        assert_eq!(lines.len(), 1, "lines with {parts:?}: {lines:?}{self}");
        self
    }
}

impl std::fmt::Display for Boot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\n--- console\n{}\n--- remarks\n{}\n--- exit code {:?}\n", self.console, self.remarks, self.code)
    }
}

/// Reads `key=value` pairs that blanks separate; double quotes protect blanks.
pub fn fields_of(line: &str) -> Fields {
    let mut fields = Fields::new();
    let mut word = String::new();
    let mut quoted = false;
    for letter in line.chars().chain([' ']) {
        match letter {
            '"' => quoted = !quoted,
            ' ' if !quoted => {
                if let Some((key, value)) = word.split_once('=') {
                    fields.insert(key.to_owned(), value.to_owned());
                }
                word.clear();
            }
            _ => word.push(letter),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn showing(console: &str) -> Boot {
        Boot { code: Some(0), console: console.to_owned(), remarks: String::new() }
    }

    #[test]
    fn fields_may_be_quoted() {
        let fields = fields_of("workload=pipe cmdline=\"a=1 b=2\" status=ok");
        assert_eq!(fields["cmdline"], "a=1 b=2");
        assert_eq!(fields["status"], "ok");
        assert_eq!(fields.len(), 3);
    }

    #[test]
    fn lines_for_programs_are_found() {
        let boot =
            showing("noise\nbench workload=pipe status=ok\nbench workload=messaging status=ok\nend status=ok cpus=8\n");
        assert_eq!(boot.bench("pipe")["status"], "ok");
        assert_eq!(boot.end()["cpus"], "8");
        assert!(boot.benches("spin").is_empty());
    }

    #[test]
    fn dumps_are_cut_out() {
        let boot = showing("--- begin /a\nx\ny\n--- end /a lines=2 crc32=00000000\n");
        assert_eq!(boot.dump("/a"), Some("x\ny\n"));
        assert_eq!(boot.dump("/b"), None);
    }
}
