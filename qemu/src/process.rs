//! Child processes that never outlive us, and commands with a time limit.
//!
//! # What it is
//! The ways this program starts others: QEMU, compilers, package managers.
//!
//! # How it works
//! On Linux a child asks the kernel to be killed when the thread that started it
//! ends, so even a killed launcher leaves no QEMU behind;
//! children are therefore started from threads that wait for them.
//! A command whose lines are read leads a process group of its own, and the whole
//! group is ended when its time is over or the user presses Ctrl-C.
//! Nested cargo calls get an environment without what the outer cargo added:
//! those variables name the outer compiler and would be obeyed.
//!
//! # Invariants
//! 1. No function here returns while a process it started still runs.
//!
//! # Cost
//! One thread for each captured stream.

use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// How long a process that was asked to end may take before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// How often a process is looked at while its end is awaited.
const LOOK: Duration = Duration::from_millis(20);

/// How long output is still awaited after a process has ended; it comes at once unless
/// another process holds the stream open.
const DRAIN: Duration = Duration::from_secs(1);

/// Variables by which an outer cargo, or its user, steers the compilation of host programs.
const CARGO_STEERING: [&str; 14] = [
    "CARGO",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_INCREMENTAL",
    "CARGO_TARGET_DIR",
    "DYLD_FALLBACK_LIBRARY_PATH",
    "LD_LIBRARY_PATH",
    "OUT_DIR",
    "RUSTC",
    "RUSTC_BOOTSTRAP",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOC",
    "RUSTFLAGS",
    "RUST_RECURSION_COUNT",
];
/// Beginnings of names of further such variables.
const CARGO_STEERING_PREFIXES: [&str; 8] = [
    "CARGO_BIN_",
    "CARGO_BUILD_",
    "CARGO_CFG_",
    "CARGO_FEATURE_",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
    "CARGO_PROFILE_",
    "CARGO_TARGET_",
];

/// Set once Ctrl-C was pressed, or the program was asked to end.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// How a command with a time limit ended.
#[derive(Debug)]
pub enum Ended {
    /// By itself.
    Itself(ExitStatus),
    /// It was ended: its time was over.
    TimeLimit,
    /// It was ended: see [`interrupted`].
    Interrupted,
}

/// Which of its two outputs a command wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// From now on Ctrl-C and termination signals end our children first, then us.
pub fn watch_interrupts() -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed))
}

/// Whether we were asked to end.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Lets the child get `signal` when the thread that starts it ends.
pub fn die_with_parent(command: &mut Command, signal: Signal) -> &mut Command {
    #[cfg(target_os = "linux")]
    {
        let parent = nix::unistd::getpid();
        let ask = move || {
            nix::sys::prctl::set_pdeathsig(signal)?;
            // The parent may have ended before the request was made.
            if nix::unistd::getppid() == parent { Ok(()) } else { Err(io::Error::from(io::ErrorKind::BrokenPipe)) }
        };
        // SAFETY: between fork and exec the closure makes two system calls and
        // neither allocates nor takes a lock.
        unsafe { command.pre_exec(ask) };
    }
    command
}

/// Takes out of `command`'s environment what the outer cargo put there.
pub fn without_outer_cargo(command: &mut Command) -> &mut Command {
    for (name, _) in env::vars_os() {
        if steers_cargo(&name) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs `command` to its end, handing each line that it prints to `line`;
/// after `limit` it is ended with everything it started.
pub fn run_lines(command: &mut Command, limit: Duration, mut line: impl FnMut(Stream, &str)) -> io::Result<Ended> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = die_with_parent(command, Signal::SIGTERM).spawn()?;
    let deadline = Instant::now() + limit;
    let (sender, lines) = mpsc::sync_channel(256);
    forward(Stream::Out, child.stdout.take(), &sender);
    forward(Stream::Err, child.stderr.take(), &sender);
    drop(sender);

    let mut open = true;
    let ended = loop {
        if interrupted() {
            break Ended::Interrupted;
        }
        if Instant::now() >= deadline {
            break Ended::TimeLimit;
        }
        // The end of the child counts, not that of its streams: a process that
        // it left behind may hold them open.
        match lines.recv_timeout(LOOK) {
            Ok((stream, text)) => {
                line(stream, &text);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) if open => open = false,
            Err(RecvTimeoutError::Disconnected) => thread::sleep(LOOK),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(status) = child.try_wait()? {
            break Ended::Itself(status);
        }
    };
    if !matches!(ended, Ended::Itself(_)) {
        end_group(&mut child)?;
    }
    let until = Instant::now() + DRAIN;
    while let Ok((stream, text)) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
        line(stream, &text);
    }
    Ok(ended)
}

/// The trimmed standard output of a short command, or nothing when it fails
/// or takes longer than ten seconds.
pub fn answer(command: &mut Command) -> Option<String> {
    let mut out = Vec::new();
    let ended = run_lines(command, Duration::from_secs(10), |stream, line| {
        if stream == Stream::Out {
            out.push(line.to_owned());
        }
    });
    match ended {
        Ok(Ended::Itself(status)) if status.success() => Some(out.join("\n").trim().to_owned()),
        _ => None,
    }
}

/// Waits up to `grace` for `child` to end by itself, then kills it.
pub fn end(child: &mut Child, grace: Duration) -> io::Result<ExitStatus> {
    let deadline = Instant::now() + grace;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            child.kill()?;
            return child.wait();
        }
        thread::sleep(LOOK);
    }
}

/// Asks `child` to end; kills it when it does not.
pub fn terminate(child: &mut Child) -> io::Result<ExitStatus> {
    // A child that has just ended cannot be asked; it is waited for all the same.
    let _ = kill(pid(child), Signal::SIGTERM);
    end(child, GRACE)
}

/// How a process ended, in words.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => match Signal::try_from(signal) {
            Ok(name) => format!("signal {name}"),
            Err(_) => format!("signal {signal}"),
        },
        (None, None) => "an unknown state".to_owned(),
    }
}

/// Ends a child that leads a process group, and the group.
fn end_group(child: &mut Child) -> io::Result<()> {
    let group = pid(child);
    // The group may be gone already.
    let _ = killpg(group, Signal::SIGTERM);
    end(child, GRACE)?;
    let _ = killpg(group, Signal::SIGKILL);
    Ok(())
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX))
}

/// Sends each line of `input` until it ends or nobody listens.
fn forward<R: Read + Send + 'static>(stream: Stream, input: Option<R>, sender: &mpsc::SyncSender<(Stream, String)>) {
    let Some(input) = input else { return };
    let sender = sender.clone();
    thread::spawn(move || {
        let mut reader = BufReader::new(input);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            let text = String::from_utf8_lossy(&line);
            if sender.send((stream, text.trim_end_matches(['\n', '\r']).to_owned())).is_err() {
                return;
            }
            line.clear();
        }
    });
}

fn steers_cargo(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    CARGO_STEERING.contains(&name) || CARGO_STEERING_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn lines(script: &str, limit: Duration) -> (Ended, Vec<String>) {
        let mut seen = Vec::new();
        let ended = run_lines(&mut sh(script), limit, |_, line| seen.push(line.to_owned())).unwrap();
        (ended, seen)
    }

    #[test]
    fn every_line_of_both_streams_arrives() {
        let (ended, mut seen) = lines("echo a; echo b >&2; printf c; exit 3", GRACE * 30);
        seen.sort();
        assert_eq!(seen, ["a", "b", "c"]);
        assert!(matches!(ended, Ended::Itself(status) if status.code() == Some(3)));
    }

    #[test]
    fn a_command_over_its_time_is_killed_with_what_it_started() {
        let (ended, seen) = lines("echo $$; sleep 1000 & sleep 1000", Duration::from_millis(300));
        assert!(matches!(ended, Ended::TimeLimit));
        let group = Pid::from_raw(seen[0].parse().unwrap());
        // The orphan is reaped by whoever adopts it, which may take a moment.
        let gone = (0..500).any(|_| {
            thread::sleep(LOOK);
            killpg(group, None) == Err(nix::errno::Errno::ESRCH)
        });
        assert!(gone, "a process of group {group} still runs");
    }

    #[test]
    fn answers_are_those_of_commands_that_succeed() {
        assert_eq!(answer(&mut sh("echo ' yes '")).as_deref(), Some("yes"));
        assert_eq!(answer(&mut sh("echo yes; exit 1")), None);
        assert_eq!(answer(&mut Command::new("/no/such/program")), None);
    }

    #[test]
    fn a_child_that_ignores_the_request_is_killed() {
        let mut child =
            sh("trap '' TERM; echo ready; while :; do sleep 1; done").stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(describe(terminate(&mut child).unwrap()), "signal SIGKILL");
    }

    #[test]
    fn the_outer_cargo_is_forgotten_and_its_home_is_not() {
        for name in ["CARGO_PKG_NAME", "RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO"] {
            assert!(steers_cargo(OsStr::new(name)), "{name}");
        }
        for name in ["CARGO_HOME", "CARGO_HTTP_PROXY", "PATH", "RUSTUP_TOOLCHAIN"] {
            assert!(!steers_cargo(OsStr::new(name)), "{name}");
        }
    }
}
