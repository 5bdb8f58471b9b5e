//! The program behind `cargo qemu`: its arguments, and nothing else.
//!
//! # What it is
//! Sets up what is missing, builds the kernel, boots it in QEMU, and tests everything.
//!
//! # How it works
//! [`Arguments`] is read by `clap`; each command is a call into one module.
//! Standard output carries the guest's console and results only; what the program
//! itself has to say goes to standard error, one line for each thing.
//!
//! # Invariants
//! 1. Every way to end has its exit code, see [`outcome`].
//!
//! # Cost
//! That of the command.

mod build_list;
mod capture;
mod checks;
mod compiler;
mod console;
mod kernel_build;
mod machine;
mod outcome;
mod output;
mod packages;
mod paths;
mod process;
mod progress;
mod remarks;
mod run;
mod setup;
mod symbols;
mod test;

#[cfg(not(unix))]
compile_error!("`cargo qemu` runs on Linux and macOS: it needs process groups and signals");

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use build_list::BuildList;
use machine::{Accel, Choices, Clock, Debugger, MAX_MEMORY_MIB, MIN_MEMORY_MIB, Machine, Smp};
use outcome::{Exit, missing, usage};
use packages::Need;

/// The kernel's command line when `--append` is not given.
const DEFAULT_APPEND: &str = "schedstats=enable psi=1";
/// How many CPUs the guest has when `--smp` is not given.
const DEFAULT_CPUS: u32 = 8;
/// The time limit when `--timeout` is not given.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// The exit codes and variables, for `--help`.
const AFTER_HELP: &str = "\
Exit codes:
  0    done
  1    the kernel, a workload, a build or a check reported failure
  2    wrong usage or something missing; one line says what, and what mends it
  101  kernel panic
  124  time limit (QEMU is ended, the console so far stays printed)
  130  Ctrl-C

Environment:
  QEMU  another QEMU program than qemu-system-x86_64";

/// Build the kernel, boot it in QEMU, and test everything.
#[derive(Parser)]
#[command(name = "cargo qemu", bin_name = "cargo qemu", version, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Request,
}

#[derive(Subcommand)]
enum Request {
    /// Set up what is missing, build, boot, and end with the kernel's verdict
    #[command(after_help = AFTER_HELP)]
    Run(Box<RunArguments>),
    /// Run every test there is: format, lints, host tests, feature builds, boots
    Test(TestArguments),
    /// Build the kernel if needed and print its path alone
    #[command(after_help = "\
Example:
  qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 512 -smp 8 -nographic -no-reboot \\
    -kernel \"$(cargo qemu path)\" -append \"schedstats=enable psi=1\"")]
    Path(PathArguments),
    /// Install what is missing: QEMU, and a compiler for x86_64-unknown-none
    Setup(SetupArguments),
}

#[derive(Args)]
struct RunArguments {
    /// CPUs, 1 to 255, or a topology such as 8,sockets=2,cores=2,threads=2;
    /// the kernel has room for 64 CPUs and says in a line which more it leaves out
    /// [default: 8; with --icount 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    smp: Option<Smp>,

    /// The kernel's command line, at most 2047 bytes; replaces the default
    #[arg(long, value_name = "LINE", default_value = DEFAULT_APPEND, allow_hyphen_values = true)]
    append: String,

    /// Memory in MiB, at least 32
    #[arg(long, value_name = "MIB", default_value_t = 512, allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(i64::from(MIN_MEMORY_MIB)..=i64::from(MAX_MEMORY_MIB)))]
    mem: u32,

    /// What runs the guest's instructions
    #[arg(long, value_enum, default_value = "auto")]
    accel: Accel,

    /// Guest nanoseconds are executed instructions, repeatable; one CPU unless --smp says more
    #[arg(long)]
    icount: bool,

    /// End QEMU after this many seconds
    /// [default: 300; with --gdb none]
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Option<Duration>,

    /// Let the guest wait for gdb on port 1234
    #[arg(long)]
    gdb: bool,

    /// What is compiled in, comma-separated: all, none, schedstats, psi, psi-default-enabled,
    /// and debug, with which features of the scheduler can be changed (sched_features=) and idle CPUs watched (watch=)
    #[arg(long, value_name = "LIST", default_value = "all")]
    build: String,

    /// Boot this file instead of building a kernel
    #[arg(long, value_name = "FILE", conflicts_with = "build")]
    kernel: Option<PathBuf>,

    /// Keep every kernel file that the guest dumps, under DIR at its kernel path
    #[arg(long, value_name = "DIR")]
    capture: Option<PathBuf>,

    /// More arguments for QEMU
    #[arg(last = true, value_name = "QEMU-ARGS")]
    extra: Vec<OsString>,
}

#[derive(Args)]
struct TestArguments {
    /// Run only the checks whose name contains this; may be given more than once
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// List the checks instead of running them
    #[arg(long)]
    list: bool,
}

#[derive(Args)]
struct PathArguments {
    /// What is compiled in, comma-separated: all, none, schedstats, psi, psi-default-enabled,
    /// and debug, with which features of the scheduler can be changed (sched_features=) and idle CPUs watched (watch=)
    #[arg(long, value_name = "LIST", default_value = "all")]
    build: String,
}

#[derive(Args)]
struct SetupArguments {
    /// Only say what is missing; exit code 1 if anything is
    #[arg(long)]
    check: bool,
    /// Install what the benches of sched-core need instead: valgrind, and the runner of their harness
    #[arg(long, conflicts_with = "check")]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return explain(&error).into(),
    };
    if let Err(error) = process::watch_interrupts() {
        eprintln!("cargo qemu: Ctrl-C cannot be watched: {error}");
    }
    let result = match arguments.command {
        Request::Run(arguments) => run(*arguments),
        Request::Test(arguments) => test::test(&arguments.only, arguments.list),
        Request::Path(arguments) => path(&arguments.build),
        Request::Setup(arguments) if arguments.check => setup::check(),
        Request::Setup(arguments) => set_up(arguments.bench),
    };
    let exit = result.unwrap_or_else(|error| {
        eprintln!("cargo qemu: {error:#}");
        Exit::of(&error)
    });
    if process::interrupted() { Exit::Interrupted.into() } else { exit.into() }
}

fn run(arguments: RunArguments) -> Result<Exit> {
    machine::check_append(&arguments.append)?;
    let workspace = paths::workspace();
    let list = BuildList::parse(&arguments.build, &workspace)?;
    if let Some(dir) = &arguments.capture {
        capture::prepare(dir)?;
    }
    if arguments.kernel.is_none() {
        kernel_build::prepare()?;
    }
    let needs: &[Need] =
        if arguments.kernel.is_some() { &[Need::Qemu] } else { &[Need::Qemu, Need::Compiler(kernel_build::TARGET)] };
    setup::ensure(needs)?;
    let kernel = match arguments.kernel {
        Some(kernel) if kernel.is_file() => kernel,
        Some(kernel) => {
            return Err(usage(format!("--kernel: {} is no file", kernel.display())));
        }
        None => kernel_build::build(&list, &mut Vec::new())?,
    };
    let cpus = if arguments.icount { 1 } else { DEFAULT_CPUS };
    let machine = Machine::new(
        kernel,
        Choices {
            append: arguments.append,
            smp: arguments.smp.unwrap_or_else(|| Smp::new(cpus)),
            memory_mib: arguments.mem,
            accel: arguments.accel,
            clock: if arguments.icount { Clock::Instructions } else { Clock::Host },
            debugger: if arguments.gdb { Debugger::Wait } else { Debugger::None },
            extra: arguments.extra,
        },
    )?;
    let limit = match machine.debugger() {
        Debugger::None => Some(DEFAULT_TIMEOUT),
        Debugger::Wait => None,
    };
    run::boot(&run::Boot {
        qemu: setup::qemu()?.ok_or_else(|| missing("QEMU is gone; run: cargo qemu setup"))?,
        machine,
        limit: arguments.timeout.or(limit),
        capture: arguments.capture,
    })
}

fn path(build: &str) -> Result<Exit> {
    let list = BuildList::parse(build, &paths::workspace())?;
    kernel_build::prepare()?;
    setup::ensure(&[Need::Compiler(kernel_build::TARGET)])?;
    let kernel = kernel_build::build(&list, &mut Vec::new())?;
    let path = kernel.canonicalize().with_context(|| format!("{} is gone", kernel.display()))?;
    println!("{}", path.display());
    Ok(Exit::Done)
}

fn set_up(bench: bool) -> Result<Exit> {
    if bench {
        setup::ensure_bench()?;
    } else {
        setup::ensure(&[Need::Qemu, Need::Compiler(kernel_build::TARGET)])?;
    }
    println!("nothing is missing");
    Ok(Exit::Done)
}

/// Help and version as they are; an error in one line.
fn explain(error: &clap::Error) -> Exit {
    let is_error = error.use_stderr();
    let text = error.render().to_string();
    let has_message = text.starts_with("error:");
    if !is_error || !has_message {
        // The text cannot be printed: the exit code must do.
        let _ = error.print();
        return if is_error { Exit::Usage } else { Exit::Done };
    }
    eprintln!("cargo qemu: {}", first_paragraphs(&text));
    Exit::Usage
}

/// What stands before the usage, joined to one line.
fn first_paragraphs(text: &str) -> String {
    let end = ["\n\nUsage:", "\n\nFor more information"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min()
        .unwrap_or(text.len());
    let text = text[..end].trim_start_matches("error:");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .filter(|seconds| *seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|limit| *limit <= Duration::from_secs(7 * 24 * 60 * 60))
        .ok_or_else(|| "a number of seconds above 0 and up to a week is accepted".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn line(arguments: &[&str]) -> String {
        let error = Arguments::try_parse_from([&["qemu"], arguments].concat()).err().unwrap();
        first_paragraphs(&error.render().to_string())
    }

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn an_error_is_one_line_that_names_the_option_and_what_is_accepted() {
        for (arguments, part) in [
            (["run", "--smp", "0"], "'0' is not a number from 1 to 255"),
            (["run", "--smp", "8,cores=0"], "from 1 to 255"),
            (["run", "--mem", "16"], "32..=1048576"),
            (["run", "--timeout", "0"], "above 0"),
            (["run", "--timeout", "inf"], "above 0"),
            (["run", "--accel", "hvf"], "possible values: auto, tcg, kvm"),
            (["run", "--speed", "9"], "unexpected argument '--speed'"),
        ] {
            let line = line(&arguments);
            assert!(line.contains(part), "{line}");
            assert!(line.contains(arguments[1]) && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn what_is_not_built_yet_is_not_offered() {
        for command in ["bench", "trace"] {
            assert!(line(&[command]).contains("unrecognized subcommand"), "{}", line(&[command]));
        }
    }

    #[test]
    fn an_append_may_begin_with_a_hyphen() {
        for append in ["-- x", "--foo=1", "-x"] {
            assert!(Arguments::try_parse_from(["qemu", "run", "--append", append]).is_ok());
        }
    }
}
