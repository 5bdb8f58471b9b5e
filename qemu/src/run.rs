//! One boot: start QEMU, pass the console on, and end with the kernel's verdict.
//!
//! # What it is
//! [`boot`] runs a [`Machine`] and answers with an exit code.
//!
//! # How it works
//! One thread reads QEMU's output and one writes it ([`Output`]);
//! the main thread stands between them, reads along, and watches the time and Ctrl-C.
//! It waits for neither: a reader that stalls must not keep a guest alive.
//! A third passes on what QEMU itself says ([`remarks`]).
//! QEMU's own exit status carries what the kernel wrote to the exit device.
//! A kernel that ended in another way (power-off, or a reset that `-no-reboot`
//! turns into an end) is judged by its last `end status=...` line.
//!
//! # Invariants
//! 1. QEMU has ended when [`boot`] returns, and ends when this program is killed.
//! 2. Every result except success is explained in one line on standard error.
//! 3. What the console showed before the end is on standard output, unless its reader
//!    takes longer than the time limit or, once that or a signal has come, than [`DRAIN`].
//!
//! # Cost
//! One process, three threads.

use std::io::{IsTerminal, Read, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::capture::Capture;
use crate::console::{Console, Verdict};
use crate::machine::Machine;
use crate::outcome::{Exit, failed};
use crate::output::{Flow, Output, Settled};
use crate::process;
use crate::remarks;

/// How often the clock and Ctrl-C are looked at while the guest is silent.
const LOOK: Duration = Duration::from_millis(50);
/// How often a reader that is behind is looked at: as long as it takes to read a good piece.
const CATCH_UP: Duration = Duration::from_millis(10);
/// How long output is still passed on after QEMU was ended.
const DRAIN: Duration = Duration::from_secs(1);
/// How long QEMU may take to end after it closed its output.
const AFTER_CLOSE: Duration = Duration::from_secs(5);

/// QEMU's exit status for what the kernel wrote to the exit device.
const STATUS_OK: i32 = exit_status(0x10);
const STATUS_FAILED: i32 = exit_status(0x11);
const STATUS_PANIC: i32 = exit_status(0x12);
/// QEMU's exit status when it could not start.
const STATUS_QEMU_ERROR: i32 = 1;

/// A boot that is asked for.
#[derive(Debug)]
pub struct Boot {
    /// QEMU's program.
    pub qemu: PathBuf,
    /// The guest.
    pub machine: Machine,
    /// How long it may run; nothing means for ever.
    pub limit: Option<Duration>,
    /// Where captured files go.
    pub capture: Option<PathBuf>,
}

/// Why the console is no longer read.
enum Stop {
    Closed,
    TimeLimit,
    /// QEMU has ended, but the time is over before its output was read.
    Unread,
    Interrupted,
    /// Nobody reads our output any more.
    OutputGone,
}

/// Boots the guest, and waits for its end.
pub fn boot(boot: &Boot) -> Result<Exit> {
    for remark in boot.machine.remarks() {
        eprintln!("cargo qemu: {remark}");
    }
    let mut child = start(&boot.qemu, &boot.machine)?;
    let chunks = read_in_thread(&mut child)?;
    let remarks = child.stderr.take().map(|stderr| remarks::pass_on(stderr, &boot.qemu));
    let capture = boot.capture.as_ref().map(|_| Capture::default());
    let mut console = Console::new(Output::new(stdout()), capture);

    let deadline = boot.limit.map(|limit| Instant::now() + limit);
    let stop = follow(&chunks, &mut console, deadline);
    let status = match stop {
        Stop::Closed => process::end(&mut child, AFTER_CLOSE),
        _ => process::terminate(&mut child),
    }
    .context("QEMU's end was not seen")?;
    if !matches!(stop, Stop::OutputGone) {
        drain(&chunks, &mut console);
    }

    let captured = console.finish().unwrap_or_default();
    let stop = settle(stop, console.out(), deadline);
    // What QEMU had to say stands above what we say.
    let signal = remarks.map(|remarks| rest(&remarks)).unwrap_or_default();
    if matches!(stop, Stop::Closed) {
        remarks::write(&signal);
    }
    let exit = match stop {
        Stop::Closed => judge(status, console.verdict()),
        Stop::TimeLimit => {
            say(&format!(
                "the time limit of {} s passed; QEMU was ended",
                boot.limit.unwrap_or_default().as_secs_f64()
            ));
            Exit::TimeLimit
        }
        Stop::Unread => {
            say(&format!(
                "the time limit of {} s passed before the console was read to its end",
                boot.limit.unwrap_or_default().as_secs_f64()
            ));
            Exit::TimeLimit
        }
        Stop::Interrupted => {
            say("interrupted; QEMU was ended");
            Exit::Interrupted
        }
        Stop::OutputGone => {
            say("nobody reads the console any more; QEMU was ended");
            Exit::Failed
        }
    };
    match (captured, &boot.capture) {
        (Some(captured), Some(dir)) => keep(captured, dir, exit),
        _ => Ok(exit),
    }
}

const fn exit_status(value: i32) -> i32 {
    (value << 1) | 1
}

fn start(qemu: &Path, machine: &Machine) -> Result<Child> {
    let mut command = Command::new(qemu);
    command.args(machine.arguments()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if owns_terminal() { Stdio::inherit() } else { Stdio::null() });
    process::die_with_parent(&mut command, Signal::SIGKILL)
        .spawn()
        .with_context(|| format!("cannot start {}", qemu.display()))
}

/// Whether standard input is a terminal that is ours to read.
///
/// QEMU reads all that it is given: a pipe or a file belongs to the caller, whose
/// next commands may stand in it, and reading a terminal from the background stops.
fn owns_terminal() -> bool {
    stdin().is_terminal() && nix::unistd::tcgetpgrp(stdin()) == Ok(nix::unistd::getpgrp())
}

fn read_in_thread(child: &mut Child) -> Result<Receiver<Vec<u8>>> {
    let mut output = child.stdout.take().context("QEMU has no output")?;
    let (sender, receiver): (SyncSender<Vec<u8>>, _) = mpsc::sync_channel(64);
    thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = output.read(&mut buffer) {
            if sender.send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

fn follow(chunks: &Receiver<Vec<u8>>, console: &mut Console<Output>, deadline: Option<Instant>) -> Stop {
    loop {
        match console.out().flow() {
            Flow::Gone => return Stop::OutputGone,
            Flow::Behind => thread::sleep(CATCH_UP),
            Flow::Free => match chunks.recv_timeout(LOOK) {
                Ok(bytes) => {
                    if console.feed(&bytes).is_err() {
                        return Stop::OutputGone;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Stop::Closed,
                Err(RecvTimeoutError::Timeout) => {}
            },
        }
        if process::interrupted() {
            return Stop::Interrupted;
        }
        if is_over(deadline) {
            return Stop::TimeLimit;
        }
    }
}

fn drain(chunks: &Receiver<Vec<u8>>, console: &mut Console<Output>) {
    let end = Instant::now() + DRAIN;
    while let Ok(bytes) = chunks.recv_timeout(end.saturating_duration_since(Instant::now())) {
        if console.feed(&bytes).is_err() || Instant::now() >= end {
            return;
        }
    }
}

/// What still comes until the stream ends, or for as long as [`DRAIN`].
fn rest(stream: &Receiver<Vec<u8>>) -> Vec<u8> {
    let end = Instant::now() + DRAIN;
    let mut bytes = Vec::new();
    while let Ok(more) = stream.recv_timeout(end.saturating_duration_since(Instant::now())) {
        bytes.extend(more);
    }
    bytes
}

/// Waits for the reader; answers why the run ended when that is counted in.
fn settle(stop: Stop, out: &mut Output, deadline: Option<Instant>) -> Stop {
    if !matches!(stop, Stop::Closed) {
        let end = Instant::now() + DRAIN;
        out.settle(|| Instant::now() >= end);
        return stop;
    }
    let settled = out.settle(|| process::interrupted() || is_over(deadline));
    match settled {
        // Ctrl-C on a terminal reaches QEMU too, which may end before we look.
        _ if process::interrupted() => Stop::Interrupted,
        Settled::Written => Stop::Closed,
        Settled::Gone => Stop::OutputGone,
        Settled::GivenUp => Stop::Unread,
    }
}

fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

fn judge(status: ExitStatus, verdict: Option<Verdict>) -> Exit {
    let (exit, reason) = match (status.code(), verdict) {
        (Some(STATUS_OK), _) | (Some(0), Some(Verdict::Ok)) => return Exit::Done,
        (Some(STATUS_FAILED), _) | (Some(0), Some(Verdict::Failed)) => {
            (Exit::Failed, "the kernel or a workload reported failure".to_owned())
        }
        (Some(STATUS_PANIC), _) => (Exit::Panic, "the kernel panicked".to_owned()),
        (Some(0), None) => (
            Exit::Failed,
            "the guest stopped without a verdict: no 'end status=...' line \
             (a reset, a triple fault, or a power-off before the end)"
                .to_owned(),
        ),
        (Some(STATUS_QEMU_ERROR), _) => {
            (Exit::Usage, "QEMU could not start the guest; its own message is above".to_owned())
        }
        (Some(code), _) if code & 1 == 1 => {
            (Exit::Failed, format!("the kernel ended with the unknown value {:#x}", code >> 1))
        }
        _ => (Exit::Failed, format!("QEMU ended by {}", process::describe(status))),
    };
    say(&reason);
    exit
}

/// Writes what was captured; a damaged dump turns success into failure.
fn keep(captured: Capture, dir: &Path, exit: Exit) -> Result<Exit> {
    match captured.write(dir) {
        Ok(files) if files.is_empty() && exit == Exit::Done => {
            Err(failed("--capture: the guest dumped no file (see the kernel parameter dump=)"))
        }
        Ok(_) => Ok(exit),
        Err(error) if exit == Exit::Done => Err(error),
        Err(error) => {
            say(&format!("{error:#}"));
            Ok(exit)
        }
    }
}

/// Says one line; a reader of standard error that stalls is awaited no longer than [`DRAIN`].
fn say(text: &str) {
    let line = format!("cargo qemu: {text}");
    let (done, said) = mpsc::channel();
    thread::spawn(move || {
        eprintln!("{line}");
        // Nobody listens any more if it took too long.
        let _ = done.send(());
    });
    let _ = said.recv_timeout(DRAIN);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn judged(code: i32, verdict: Option<Verdict>) -> Exit {
        judge(ExitStatus::from_raw(code << 8), verdict)
    }

    #[test]
    fn the_exit_device_decides() {
        assert_eq!(judged(33, None), Exit::Done);
        assert_eq!(judged(35, Some(Verdict::Ok)), Exit::Failed);
        assert_eq!(judged(37, None), Exit::Panic);
        assert_eq!(judged(39, Some(Verdict::Ok)), Exit::Failed);
    }

    #[test]
    fn without_the_device_the_end_line_decides() {
        assert_eq!(judged(0, Some(Verdict::Ok)), Exit::Done);
        assert_eq!(judged(0, Some(Verdict::Failed)), Exit::Failed);
        assert_eq!(judged(0, None), Exit::Failed);
    }

    #[test]
    fn a_qemu_that_fails_is_wrong_usage_and_one_that_dies_is_a_failure() {
        assert_eq!(judged(1, None), Exit::Usage);
        assert_eq!(judge(ExitStatus::from_raw(9), None), Exit::Failed);
    }
}
