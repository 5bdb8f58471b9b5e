//! The launcher against a fake QEMU: a small shell script named by `QEMU`.
//!
//! What must hold: exit codes, the console on standard output, one line on standard
//! error for each thing that is wrong, and no process left behind.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

const FAKE_QEMU: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-qemu.sh");
/// How long a thing that must happen is awaited before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A fake QEMU, and a folder with a fake kernel.
struct Bench {
    dir: TempDir,
    script: String,
}

impl Bench {
    /// A fake QEMU that runs `script` in a shell.
    fn new(script: &str) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("kernel"), "no kernel").unwrap();
        Bench { dir, script: script.to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = launcher();
        command.env("QEMU", FAKE_QEMU).env("FAKE_QEMU", &self.script);
        command.args(["run", "--accel", "tcg", "--kernel"]).arg(self.path("kernel"));
        command.args(arguments).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

fn launcher() -> Command {
    Command::new(env!("CARGO_BIN_EXE_qemu"))
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Exit code 2, and one line that contains `part`.
fn assert_refused(output: &Output, part: &str) {
    assert_eq!(output.status.code(), Some(2), "{}", err(output));
    assert_eq!(err(output).lines().count(), 1, "{}", err(output));
    assert!(err(output).contains(part), "{}", err(output));
    assert_eq!(out(output), "");
}

/// Asks until there is an answer; far longer than it ever takes.
fn wait_for<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(answer) = answer() {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what} did not come");
}

/// The exit code of a launcher that must end by itself, whoever reads its output.
fn end_of(child: &mut Child) -> Option<i32> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    panic!("the launcher did not end");
}

/// Waits until `pid` is gone; a zombie counts as gone.
fn assert_gone(pid: i32) {
    wait_for(&format!("the end of process {pid}"), || {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_zombie = state.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'));
        (is_zombie || kill(Pid::from_raw(pid), None).is_err()).then_some(())
    });
}

#[test]
fn the_exit_device_becomes_the_exit_code() {
    for (status, code) in [(33, 0), (35, 1), (37, 101)] {
        let output = Bench::new(&format!("echo hello; exit {status}")).run(&[]);
        assert_eq!(output.status.code(), Some(code), "{}", err(&output));
        assert_eq!(out(&output), "hello\n");
        assert_eq!(err(&output).lines().count(), usize::from(code != 0), "{}", err(&output));
    }
}

#[test]
fn a_power_off_is_judged_by_the_end_line() {
    for (text, code) in [
        ("end status=ok workloads=2 failed=0 cpus=8", 0),
        ("end status=failed workloads=2 failed=1 cpus=8", 1),
        ("nothing of the kind", 1),
    ] {
        let output = Bench::new(&format!("echo '{text}'; exit 0")).run(&[]);
        assert_eq!(output.status.code(), Some(code), "{}", err(&output));
        assert_eq!(err(&output).lines().count(), usize::from(code != 0), "{}", err(&output));
    }
}

#[test]
fn a_qemu_that_cannot_start_the_guest_is_wrong_usage() {
    let output = Bench::new("echo 'fake: no such option' >&2; exit 1").run(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).starts_with("fake: no such option\n"), "{}", err(&output));
}

#[test]
fn lines_end_in_line_feeds_alone() {
    let output = Bench::new(r"printf 'a\r\nb\r\n\rc'; exit 33").run(&[]);
    assert_eq!(out(&output), "a\nb\nc\n");
}

#[test]
fn the_console_comes_while_the_guest_runs() {
    let bench = Bench::new("echo first; until [ -e \"$GO\" ]; do sleep 0.05; done; echo second; exit 33");
    let go = bench.path("go");
    let mut child = bench.command(&[]).env("GO", &go).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "first");
    fs::write(go, "").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "second");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_reader_that_stalls_stops_neither_the_time_limit_nor_a_signal() {
    for (arguments, signal, code) in
        [(&["--timeout", "1"][..], None, 124), (&["--timeout", "1000"][..], Some(Signal::SIGTERM), 130)]
    {
        let bench = Bench::new("echo $$ >\"$PID\"; exec yes");
        let file = bench.path("pid");
        let mut command = bench.command(arguments);
        let mut child = command.env("PID", &file).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let pid = wait_for("QEMU's process id", || fs::read_to_string(&file).ok()?.trim().parse().ok());
        if let Some(signal) = signal {
            // Long enough for the pipes to fill; a signal that comes earlier proves less, and still ends the run.
            std::thread::sleep(Duration::from_millis(500));
            kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        }
        assert_eq!(end_of(&mut child), Some(code));
        assert_gone(pid);
    }
}

#[test]
fn a_reader_of_both_outputs_that_stalls_keeps_nothing_alive() {
    let bench = Bench::new("echo $$ >\"$PID\"; exec yes");
    let file = bench.path("pid");
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = bench.command(&["--timeout", "1"]);
    command.env("PID", &file).stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut child = command.spawn().unwrap();
    let pid = wait_for("QEMU's process id", || fs::read_to_string(&file).ok()?.trim().parse().ok());
    assert_eq!(end_of(&mut child), Some(124));
    assert_gone(pid);
    drop(reader);
}

#[test]
fn a_reader_that_stalls_at_the_end_is_awaited_up_to_the_time_limit() {
    let bench = Bench::new("head -c 300000 /dev/zero | tr '\\0' x; exit 33");
    let mut stalled = bench.command(&["--timeout", "1"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(end_of(&mut stalled), Some(124));

    let mut slow = bench.command(&[]).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let mut text = String::new();
    slow.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text.len(), 300_001, "everything, and the line feed that ends the last line");
    assert_eq!(end_of(&mut slow), Some(0));
}

#[test]
fn the_callers_standard_input_is_left_alone() {
    let bench = Bench::new("cat >/dev/null; echo booted; exit 33");
    let run = bench.command(&[]);
    let words = [run.get_program()].into_iter().chain(run.get_args());
    let mut shell = Command::new("sh");
    shell.args(["-c", "while read n; do \"$@\" || exit; echo $n; done", "sh"]).args(words);
    shell.env("QEMU", FAKE_QEMU).env("FAKE_QEMU", &bench.script);
    let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"1\n2\n3\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(out(&output), "booted\n1\nbooted\n2\nbooted\n3\n");
}

#[test]
fn one_line_says_that_qemu_was_ended() {
    let say = |from: &str| format!("echo \"fake-qemu.sh: terminating on signal 15 from pid {from} (x)\" >&2");
    let script = |from: &str| {
        format!("trap '{}; exit 0' TERM; echo 'fake-qemu.sh: te' >&2; while :; do sleep 0.1; done", say(from))
    };
    let ours = Bench::new(&script("$PPID")).run(&["--timeout", "1"]);
    let text = err(&ours);
    assert_eq!(text, "fake-qemu.sh: te\ncargo qemu: the time limit of 1 s passed; QEMU was ended\n");
    // `timeout` signals QEMU together with the launcher.
    let anothers = Bench::new(&script("1")).run(&["--timeout", "1"]);
    assert_eq!(err(&anothers), text);
    // Nobody asked the launcher: QEMU's line is the explanation.
    let alone = Bench::new(&format!("{}; exit 0", say("1"))).run(&[]);
    assert!(err(&alone).starts_with("fake-qemu.sh: terminating on signal 15 from pid 1 (x)\n"), "{}", err(&alone));
    assert_eq!((alone.status.code(), err(&alone).lines().count()), (Some(1), 2));

    let bench = Bench::new(&format!("trap '{}; exit 0' TERM; echo up; while :; do sleep 0.1; done", say("$PPID")));
    let mut child = bench.command(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(end_of(&mut child), Some(130));
    assert_eq!(text, "cargo qemu: interrupted; QEMU was ended\n");
}

#[test]
fn the_time_limit_ends_qemu_and_keeps_the_console() {
    let bench = Bench::new("echo $$; exec sleep 1000");
    let output = bench.run(&["--timeout", "1"]);
    assert_eq!(output.status.code(), Some(124), "{}", err(&output));
    assert!(err(&output).contains("time limit"), "{}", err(&output));
    assert_gone(out(&output).trim().parse().unwrap());
}

#[test]
fn a_qemu_that_ignores_the_request_to_end_is_killed() {
    let bench = Bench::new("trap '' TERM; echo $$; while :; do sleep 1; done");
    let output = bench.run(&["--timeout", "1"]);
    assert_eq!(output.status.code(), Some(124), "{}", err(&output));
    assert_gone(out(&output).trim().parse().unwrap());
}

#[test]
fn an_endless_console_does_not_outrun_the_time_limit() {
    let bench = Bench::new("exec yes");
    let mut child = bench.command(&["--timeout", "1"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(124));
}

#[test]
fn qemu_ends_with_a_launcher_that_is_asked_to_end_or_killed() {
    for (signal, code) in [(Signal::SIGINT, Some(130)), (Signal::SIGTERM, Some(130)), (Signal::SIGKILL, None)] {
        if signal == Signal::SIGKILL && !cfg!(target_os = "linux") {
            continue;
        }
        let bench = Bench::new("echo $$; exec sleep 1000");
        let mut child = bench.command(&[]).stdout(Stdio::piped()).spawn().unwrap();
        let mut pid = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), code);
        assert_gone(pid.trim().parse().unwrap());
    }
}

#[test]
fn qemu_ends_when_nobody_reads_the_console() {
    let bench = Bench::new("echo $$; while :; do echo more; sleep 0.1; done");
    let mut child = bench.command(&[]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut pid = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut pid).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_gone(pid.trim().parse().unwrap());
}

#[test]
fn what_the_guest_gets_is_on_qemus_command_line() {
    let bench = Bench::new("printf '%s\\n' \"$@\"; exit 33");
    let output = bench.run(&["--append", "a b", "--mem", "64", "--", "-d", "int"]);
    let lines: Vec<_> = out(&output).lines().map(str::to_owned).collect();
    let after = |option: &str| {
        let at = lines.iter().position(|line| line == option).unwrap();
        lines[at + 1].clone()
    };
    assert_eq!(after("-append"), "a b");
    assert_eq!(after("-m"), "64");
    assert_eq!(after("-smp"), "8");
    assert_eq!(lines[lines.len() - 2..], ["-d", "int"]);
    let default = bench.run(&[]);
    assert!(out(&default).contains("schedstats=enable psi=1\n"), "{}", out(&default));
}

#[test]
fn icount_has_one_cpu_unless_told_otherwise() {
    let bench = Bench::new("printf '%s\\n' \"$@\"; exit 33");
    let one = bench.run(&["--icount"]);
    assert!(out(&one).contains("-smp\n1\n") && err(&one).is_empty(), "{}", err(&one));
    let two = bench.run(&["--icount", "--smp", "2"]);
    assert!(out(&two).contains("-smp\n2\n"), "{}", out(&two));
    assert_eq!(err(&two).lines().count(), 1, "{}", err(&two));
    assert!(err(&two).contains("times are not"), "{}", err(&two));
}

#[test]
fn a_command_line_of_2047_bytes_is_passed_and_one_of_2048_refused() {
    let bench = Bench::new("printf '%s\\n' \"$@\"; exit 33");
    let longest = "x".repeat(2047);
    assert!(out(&bench.run(&["--append", &longest])).contains(&longest));
    assert_refused(&bench.run(&["--append", &"x".repeat(2048)]), "2047");
}

#[test]
fn a_command_line_with_a_control_character_is_refused() {
    let bench = Bench::new("exit 33");
    for append in ["psi=1\nrun=pipe", "psi=1\t", "\u{1b}[2J", "psi=1\r", "\u{85}"] {
        assert_refused(&bench.run(&["--append", append]), "control character");
    }
}

#[test]
fn nonsense_is_refused_in_one_line() {
    let bench = Bench::new("exit 33");
    for (arguments, part) in [
        (["--smp", "0"], "1 to 255"),
        (["--smp", "256"], "1 to 255"),
        (["--smp", "8,corn=2"], "corn"),
        (["--mem", "16"], "32"),
        (["--mem", "99999999"], "--mem"),
        (["--timeout", "0"], "above 0"),
        (["--timeout", "-1"], "--timeout"),
        (["--accel", "none"], "--accel"),
        (["--speed", "9"], "--speed"),
    ] {
        assert_refused(&bench.run(&arguments), part);
    }
    let kvm_and_icount = launcher()
        .args(["run", "--accel", "kvm", "--icount", "--kernel"])
        .arg(bench.path("kernel"))
        .env("QEMU", FAKE_QEMU)
        .output()
        .unwrap();
    assert_refused(&kvm_and_icount, "--icount");
    for (list, part) in [
        ("all,speed", "speed"),
        ("none,all", "none stands alone"),
        ("psi,none", "none stands alone"),
        ("psi,psi,", "empty"),
        (",psi", "empty"),
        ("", "empty"),
    ] {
        assert_refused(&launcher().args(["run", "--build", list]).output().unwrap(), part);
        assert_refused(&launcher().args(["path", "--build", list]).output().unwrap(), part);
    }
    assert_refused(&launcher().args(["test", "--only", "no-such"]).output().unwrap(), "no-such");
    assert_refused(&launcher().args(["bench"]).output().unwrap(), "bench");
}

#[test]
fn a_missing_qemu_or_kernel_is_named() {
    let bench = Bench::new("exit 33");
    let no_qemu = bench.command(&[]).env("QEMU", "/no/such/qemu").output().unwrap();
    assert_refused(&no_qemu, "QEMU=/no/such/qemu");
    fs::remove_file(bench.path("kernel")).unwrap();
    assert_refused(&bench.run(&[]), "--kernel");
}

#[test]
fn without_qemu_and_without_a_package_manager_one_line_says_what_to_do() {
    let bench = Bench::new("exit 33");
    let empty = tempfile::tempdir().unwrap();
    let output = bench.command(&[]).env_remove("QEMU").env("PATH", empty.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    let text = err(&output);
    assert_eq!(text.lines().count(), 2, "what is missing and why, then what mends it: {text}");
    assert!(text.contains("qemu-system-x86_64 is missing"), "{text}");
    let check = launcher().args(["setup", "--check"]).env_remove("QEMU").env("PATH", empty.path()).output().unwrap();
    assert_eq!(check.status.code(), Some(1));
    assert!(out(&check).contains("missing: qemu-system-x86_64"), "{}", out(&check));
}

#[test]
fn without_the_right_to_install_the_one_command_is_printed() {
    let bench = Bench::new("exit 33");
    // A machine with apt on which nobody is root: `sudo` asks for a password.
    let bin = bench.path("bin");
    fs::create_dir(&bin).unwrap();
    for (name, script) in [
        ("apt-get", "echo 'apt-get was run' >&2; exit 100"),
        ("apt-cache", "echo '  Candidate: 1'"),
        ("sudo", "exit 1"),
    ] {
        fs::write(bin.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = as_nobody(&bench, &bin);
    let Some(output) = output else { return };
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    let last = err(&output).lines().last().unwrap_or_default().to_owned();
    assert!(last.contains("run: sudo apt-get "), "{}", err(&output));
    assert!(last.ends_with("install -y --no-install-recommends qemu-system-x86"), "{last}");
    assert!(!err(&output).contains("apt-get was run"), "{}", err(&output));
}

/// Runs the launcher without root's rights; nothing where that cannot be arranged.
fn as_nobody(bench: &Bench, path: &Path) -> Option<Output> {
    use std::os::unix::process::CommandExt;
    let mut command = bench.command(&[]);
    command.env_remove("QEMU").env("PATH", path);
    if nix::unistd::geteuid().is_root() {
        // The launcher and the folder must be reachable for that user.
        let copy = bench.path("launcher");
        fs::copy(env!("CARGO_BIN_EXE_qemu"), &copy).ok()?;
        fs::set_permissions(bench.dir.path(), fs::Permissions::from_mode(0o755)).ok()?;
        let mut as_user = Command::new(copy);
        as_user.args(command.get_args()).env("PATH", path).env_remove("QEMU");
        command = as_user;
        command.current_dir(bench.dir.path()).uid(65534);
    }
    output_of_copy(&mut command)
}

/// Runs a copy of the launcher that was just made; nothing where it cannot be run.
fn output_of_copy(command: &mut Command) -> Option<Output> {
    for _ in 0..100 {
        match command.stdin(Stdio::null()).output() {
            // The copy is still open for writing in a sibling that has not called exec yet.
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result.ok(),
        }
    }
    None
}

#[test]
fn captured_files_lie_under_their_kernel_path() {
    let frame = |crc: &str| {
        format!("echo '--- begin /proc/x'; echo 123456789; echo '--- end /proc/x lines=1 crc32={crc}'; exit 33")
    };
    let crc32 = format!("{:08X}", crc32fast::hash(b"123456789\n"));
    let bench = Bench::new(&frame(&crc32));
    let dir = bench.path("captured");
    let output = bench.run(&["--capture", dir.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(fs::read_to_string(dir.join("proc/x")).unwrap(), "123456789\n");

    let bench = Bench::new(&frame("00000000"));
    let output = bench.run(&["--capture", bench.path("captured").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
    assert!(err(&output).contains("/proc/x is damaged"), "{}", err(&output));
    assert!(!bench.path("captured/proc/x").exists());
}

#[test]
fn a_folder_for_captured_files_that_cannot_be_used_is_refused_before_the_boot() {
    let bench = Bench::new("touch \"$BOOTED\"; exit 33");
    let file = bench.path("file");
    fs::write(&file, "").unwrap();
    for dir in [file.clone(), file.join("below"), "/proc/no-such-folder".into(), "/proc".into()] {
        let output =
            bench.command(&["--capture", dir.to_str().unwrap()]).env("BOOTED", bench.path("booted")).output().unwrap();
        assert_refused(&output, "--capture");
        assert!(err(&output).contains(dir.to_str().unwrap()), "{}", err(&output));
        assert!(!bench.path("booted").exists());
    }
}

#[test]
fn a_target_folder_that_cannot_be_used_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    // A launcher in a target folder of its own.
    let target = dir.path().join("target");
    let program = target.join("debug/qemu");
    fs::create_dir_all(target.join("debug")).unwrap();
    fs::write(target.join("CACHEDIR.TAG"), "").unwrap();
    fs::copy(env!("CARGO_BIN_EXE_qemu"), &program).unwrap();
    fs::write(target.join("kernels"), "a file").unwrap();
    for arguments in [&["path"][..], &["run"][..]] {
        let output = output_of_copy(Command::new(&program).args(arguments).env("QEMU", FAKE_QEMU)).unwrap();
        assert_refused(&output, "target/kernels");
    }
    fs::write(target.join("checks"), "a file").unwrap();
    let output = output_of_copy(Command::new(&program).args(["test", "--only", "format"])).unwrap();
    assert_refused(&output, "target/checks");
}

#[test]
fn help_says_how_many_cpus_the_kernel_has_room_for() {
    let output = launcher().args(["run", "--help"]).output().unwrap();
    let text = out(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("the kernel has room for 64"), "{text}");
}

#[test]
fn help_goes_to_standard_output_and_names_the_exit_codes() {
    let output = launcher().args(["run", "--help"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    for part in ["--append", "--icount", "--capture", "124", "QEMU"] {
        assert!(out(&output).contains(part), "{part}: {}", out(&output));
    }
}
