//! The virtual machine: from choices to a QEMU command line.
//!
//! # What it is
//! [`Machine`] holds what the guest gets;
//! [`Machine::arguments`] turns it into QEMU's arguments.
//!
//! # How it works
//! Values are checked when they are parsed, so that nonsense is refused in one
//! line before anything is built or booted.
//! The exit device carries the kernel's verdict: QEMU ends with
//! `(value << 1) | 1`.
//!
//! # Invariants
//! 1. A [`Machine`] can be expressed: CPU count, memory and command line are in range.
//! 2. KVM is chosen by itself only where the CPU really virtualises; with the
//!    device node alone a guest can hang.
//! 3. `--icount` takes every source of chance away: host entropy, host clock,
//!    host threads.
//!
//! # Cost
//! Two small files are read to choose the accelerator.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;

use crate::outcome::usage;

/// The most CPUs a guest gets: APIC ids of 8 bits, 255 means everyone.
pub const MAX_CPUS: u32 = 255;
/// The least memory the launcher offers, in MiB: kernel, page tables and stacks need it.
pub const MIN_MEMORY_MIB: u32 = 32;
/// The most memory the launcher offers, in MiB: what 40 address bits reach.
pub const MAX_MEMORY_MIB: u32 = 1 << 20;
/// The longest kernel command line, in bytes: QEMU's loader damages longer ones.
pub const MAX_COMMAND_LINE: usize = 2047;

/// Sizes that a CPU topology may name after the number of CPUs.
const TOPOLOGY_KEYS: [&str; 6] = ["sockets", "dies", "clusters", "cores", "threads", "maxcpus"];

/// Those of them that make a topology whole.
const MAIN_LEVELS: [&str; 3] = ["sockets", "cores", "threads"];

/// A checked value of `--smp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smp {
    cpus: u32,
    text: String,
}

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Accel {
    /// KVM where the CPU really virtualises, else TCG.
    Auto,
    /// QEMU's translator: runs anywhere.
    Tcg,
    /// The host's CPU itself: Linux on x86_64, with rights on /dev/kvm.
    Kvm,
}

/// Whether guest time is host time or counted instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Guest time passes with the host's.
    Host,
    /// One executed instruction is one guest nanosecond.
    Instructions,
}

/// Whether the guest waits for a debugger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debugger {
    /// The guest starts at once.
    None,
    /// The guest waits, stopped, for gdb on port 1234.
    Wait,
}

/// A guest, ready to be started.
#[derive(Clone, Debug)]
pub struct Machine {
    kernel: PathBuf,
    append: String,
    smp: Smp,
    memory_mib: u32,
    accel: Accel,
    clock: Clock,
    debugger: Debugger,
    extra: Vec<OsString>,
}

/// What a [`Machine`] is made from.
#[derive(Clone, Debug)]
pub struct Choices {
    /// The kernel's command line.
    pub append: String,
    /// CPUs, and how they are arranged.
    pub smp: Smp,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// What runs the guest's instructions.
    pub accel: Accel,
    /// What guest time is.
    pub clock: Clock,
    /// Whether gdb is waited for.
    pub debugger: Debugger,
    /// More arguments, handed to QEMU as they are, last.
    pub extra: Vec<OsString>,
}

impl Smp {
    /// `cpus` CPUs, arranged as QEMU likes.
    pub fn new(cpus: u32) -> Smp {
        Smp { cpus, text: cpus.to_string() }
    }
}

impl FromStr for Smp {
    type Err = String;

    fn from_str(text: &str) -> Result<Smp, String> {
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let cpus = count(first.strip_prefix("cpus=").unwrap_or(first))?;
        let mut normal = cpus.to_string();
        let (mut most, mut product, mut levels) = (cpus, 1_u64, 0);
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            if !TOPOLOGY_KEYS.contains(&key) {
                return Err(format!("'{part}' is not one of {}, each as name=number", TOPOLOGY_KEYS.join(", ")));
            }
            let value = count(value)?;
            normal.push_str(&format!(",{key}={value}"));
            if key == "maxcpus" {
                most = value;
                continue;
            }
            product *= u64::from(value);
            levels += usize::from(MAIN_LEVELS.contains(&key));
        }
        // A level that is not named gets what the others leave, so they must divide the CPUs.
        let fits = u64::from(most).is_multiple_of(product);
        let is_whole = levels < MAIN_LEVELS.len() || product == u64::from(most);
        if most < cpus || !fits || !is_whole {
            return Err(format!("the levels multiply to {product}, which does not make {most} CPUs"));
        }
        Ok(Smp { cpus, text: normal })
    }
}

impl Machine {
    /// A machine for `kernel`, or one line that says which choice cannot be.
    pub fn new(kernel: PathBuf, choices: Choices) -> Result<Machine> {
        check_append(&choices.append)?;
        let accel = match (choices.accel, choices.clock) {
            (Accel::Kvm, Clock::Instructions) => {
                return Err(usage("--icount counts translated instructions: use it without --accel kvm"));
            }
            (_, Clock::Instructions) => Accel::Tcg,
            (Accel::Auto, Clock::Host) => match kvm_obstacle() {
                None => Accel::Kvm,
                Some(_) => Accel::Tcg,
            },
            (Accel::Kvm, Clock::Host) => match kvm_obstacle() {
                None => Accel::Kvm,
                Some(obstacle) => {
                    return Err(usage(format!("--accel kvm: {obstacle}; use --accel tcg")));
                }
            },
            (Accel::Tcg, Clock::Host) => Accel::Tcg,
        };
        Ok(Machine {
            kernel,
            append: choices.append,
            smp: choices.smp,
            memory_mib: choices.memory_mib,
            accel,
            clock: choices.clock,
            debugger: choices.debugger,
            extra: choices.extra,
        })
    }

    /// Whether the guest waits for a debugger.
    pub fn debugger(&self) -> Debugger {
        self.debugger
    }

    /// What the user should know about the choices, one line each.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.clock == Clock::Instructions && self.smp.cpus > 1 {
            remarks.push(format!(
                "--icount with {} CPUs: counts are valid, times are not (the CPUs share one clock)",
                self.smp.cpus
            ));
        }
        if self.debugger == Debugger::Wait {
            remarks.push(format!(
                "the guest waits for a debugger: gdb {} -ex 'target remote :1234'",
                self.kernel.display()
            ));
        }
        remarks
    }

    /// QEMU's arguments.
    pub fn arguments(&self) -> Vec<OsString> {
        let (accel, cpu) = match (self.accel, self.clock) {
            (Accel::Kvm, _) => ("kvm", "host"),
            (_, Clock::Host) => ("tcg,thread=multi", "max"),
            (_, Clock::Instructions) => ("tcg,thread=single", "max,rdrand=off,rdseed=off"),
        };
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
        add(&["-accel", accel, "-cpu", cpu]);
        add(&["-m", &self.memory_mib.to_string(), "-smp", &self.smp.text]);
        add(&["-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot"]);
        add(&["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]);
        if self.clock == Clock::Instructions {
            add(&["-icount", "shift=0,sleep=off", "-rtc", "base=2024-01-01,clock=vm"]);
        }
        if self.debugger == Debugger::Wait {
            add(&["-s", "-S"]);
        }
        arguments.extend(["-kernel".into(), self.kernel.clone().into_os_string()]);
        arguments.extend(["-append".into(), OsString::from(&self.append)]);
        arguments.extend(self.extra.iter().cloned());
        arguments
    }
}

/// Refuses a kernel command line that would not arrive as it is.
pub fn check_append(append: &str) -> Result<()> {
    if append.len() > MAX_COMMAND_LINE {
        return Err(usage(format!(
            "--append: the kernel command line has {} bytes; at most {MAX_COMMAND_LINE} arrive undamaged",
            append.len()
        )));
    }
    if let Some(bad) = append.chars().find(|character| character.is_control()) {
        return Err(usage(format!(
            "--append: the kernel command line is one line of text; the control character {bad:?} is not accepted"
        )));
    }
    Ok(())
}

fn count(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|cpus| (1..=MAX_CPUS).contains(cpus))
        .ok_or_else(|| format!("'{text}' is not a number from 1 to {MAX_CPUS}"))
}

/// Why KVM cannot be used here, or nothing if it can.
fn kvm_obstacle() -> Option<&'static str> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some("KVM for x86_64 guests needs Linux on x86_64");
    }
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if !virtualises(&cpuinfo) {
        return Some("this CPU offers no virtualisation (neither vmx nor svm in /proc/cpuinfo)");
    }
    let device = OpenOptions::new().read(true).write(true).open("/dev/kvm");
    device.err().map(|_| "/dev/kvm cannot be opened for writing")
}

fn virtualises(cpuinfo: &str) -> bool {
    cpuinfo
        .lines()
        .filter(|line| line.starts_with("flags"))
        .flat_map(str::split_whitespace)
        .any(|flag| flag == "vmx" || flag == "svm")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices() -> Choices {
        Choices {
            append: "run=pipe".into(),
            smp: Smp::new(8),
            memory_mib: 512,
            accel: Accel::Tcg,
            clock: Clock::Host,
            debugger: Debugger::None,
            extra: Vec::new(),
        }
    }

    fn line(choices: Choices) -> String {
        let machine = Machine::new("/k".into(), choices).unwrap();
        let words: Vec<_> = machine.arguments().iter().map(|word| word.to_string_lossy().into_owned()).collect();
        words.join(" ")
    }

    #[test]
    fn the_plain_line() {
        assert_eq!(
            line(choices()),
            "-accel tcg,thread=multi -cpu max -m 512 -smp 8 -display none -monitor none \
             -serial stdio -no-reboot -device isa-debug-exit,iobase=0xf4,iosize=0x04 \
             -kernel /k -append run=pipe"
        );
    }

    #[test]
    fn icount_takes_chance_away() {
        let line = line(Choices { clock: Clock::Instructions, smp: Smp::new(1), accel: Accel::Auto, ..choices() });
        for part in [
            "-accel tcg,thread=single -cpu max,rdrand=off,rdseed=off",
            "-icount shift=0,sleep=off",
            "clock=vm",
            "-smp 1 ",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }

    #[test]
    fn icount_with_more_cpus_is_remarked_on_once() {
        let with = |cpus| {
            let choices = Choices { clock: Clock::Instructions, smp: Smp::new(cpus), ..choices() };
            Machine::new("/k".into(), choices).unwrap().remarks()
        };
        assert!(with(1).is_empty());
        assert_eq!(with(2).len(), 1);
    }

    #[test]
    fn a_debugger_is_waited_for_and_extra_arguments_come_last() {
        let line = line(Choices { debugger: Debugger::Wait, extra: vec!["-d".into(), "int".into()], ..choices() });
        assert!(line.contains(" -s -S "), "{line}");
        assert!(line.ends_with("-append run=pipe -d int"), "{line}");
    }

    #[test]
    fn icount_and_kvm_exclude_each_other() {
        let both = Choices { clock: Clock::Instructions, accel: Accel::Kvm, ..choices() };
        assert!(Machine::new("/k".into(), both).is_err());
    }

    #[test]
    fn cpus_are_a_number_or_a_topology() {
        let text = |value: &str| value.parse::<Smp>().map(|smp| smp.text);
        assert_eq!(text("8").unwrap(), "8");
        assert_eq!(text("cpus=2").unwrap(), "2");
        assert_eq!(text("8,sockets=2,cores=2,threads=2").unwrap(), "8,sockets=2,cores=2,threads=2");
        for bad in [
            "0",
            "256",
            "99999999999",
            "-1",
            "",
            "two",
            "8,",
            "8,cores",
            "8,cores=0",
            "8,cores=3",
            "8,sockets=2,cores=2,threads=1",
            "8,sockets=1,cores=1,threads=1",
            "8,maxcpus=4",
            "8,x=1",
        ] {
            assert!(text(bad).is_err(), "{bad} was accepted");
        }
    }

    #[test]
    fn the_command_line_has_a_longest_length() {
        assert!(check_append(&"x".repeat(2047)).is_ok());
        let error = check_append(&"x".repeat(2048)).unwrap_err().to_string();
        assert!(error.contains("2048") && error.contains("2047"), "{error}");
        assert!(!error.contains('\n'));
    }

    #[test]
    fn virtualisation_is_a_flag_of_the_cpu() {
        assert!(virtualises("flags\t\t: fpu vmx ssse3\n"));
        assert!(virtualises("flags : svm\n"));
        assert!(!virtualises("flags : fpu hypervisor\nvmx flags : none\nmodel name : svm\n"));
    }
}
