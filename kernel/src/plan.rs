//! What is to be run: the value of `run=`.
//!
//! # What it is
//! A reader of lists such as `pipe:loops=2000,spin:tasks=2:nice=0+5:cpu=0`, whose every number has been checked.
//!
//! # How it works
//! Commas separate workloads, colons their options; options come from one table per workload, the last one wins.
//! Each workload is read by itself, so a wrong one does not touch the others.
//!
//! # Invariants
//! 1. Every number of a [`Work`] lies in the range its table states; `cpu` is a CPU that runs.
//! 2. Any bytes at all can be read.
//!
//! # Cost
//! One pass over the list.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

use boot::cmdline::parse_unsigned;
use sched_core::{CpuId, Nice, Policy, Slice};

use crate::param::Cut;

/// The most entries a list of nice values or policies may have.
const MAX_LIST: usize = 64;

const LOOPS: RangeInclusive<u64> = 1..=1_000_000_000;
const TASKS: RangeInclusive<u64> = 1..=1_000;
const GROUPS: RangeInclusive<u64> = 1..=1_000;
const FDS: RangeInclusive<u64> = 1..=100;
/// A message is at most as long as a pipe is deep.
const SIZE: RangeInclusive<u64> = 1..=65_536;
/// A day.
const MS: RangeInclusive<u64> = 1..=86_400_000;
const SLICE_US: RangeInclusive<u64> = 100..=100_000;

/// A workload and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Two threads pass a message to and fro.
    Pipe(Pipe),
    /// Groups of senders and receivers.
    Messaging(Messaging),
    /// Threads that use all the CPU they get.
    Spin(Spin),
}

/// Options of `pipe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipe {
    /// How often the message goes to and fro.
    pub loops: u64,
    /// The CPU that both threads are pinned to.
    pub cpu: Option<CpuId>,
    /// Bytes in a message.
    pub size: usize,
}

/// Options of `messaging`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Messaging {
    /// How many groups there are.
    pub groups: usize,
    /// How many senders a group has, and how many receivers.
    pub fds: usize,
    /// How many messages each sender sends to each receiver of its group.
    pub loops: u64,
    /// Bytes in a message.
    pub size: usize,
    /// What the messages go through.
    pub via: Via,
}

/// What messages go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// One pipe per receiver.
    Pipe,
    /// One socket pair per receiver.
    Socket,
}

/// Options of `spin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spin {
    /// How many threads.
    pub tasks: usize,
    /// Their nice values, used in turn.
    pub nice: Vec<Nice>,
    /// For how long, in milliseconds.
    pub ms: u64,
    /// The CPU that all are pinned to.
    pub cpu: Option<CpuId>,
    /// The slice they ask for.
    pub slice: Option<Slice>,
    /// Their policies, used in turn.
    pub policy: Vec<Policy>,
}

/// Why a workload is not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<'a> {
    /// The workload as it was given.
    pub item: &'a [u8],
    /// What is wrong with it.
    pub why: Why<'a>,
}

/// What is wrong with a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why<'a> {
    /// Nothing is known by this name.
    Workload(&'a [u8]),
    /// The workload has no such option.
    Option(&'a [u8], &'static [&'static str]),
    /// The option has no value, or one that is not accepted.
    Value(&'a [u8], Accepted),
}

/// What an option accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// A decimal number in a range.
    Number(u64, u64),
    /// The number of a CPU that runs, below this one.
    Cpu(usize),
    /// What the words say.
    Words(&'static str),
}

/// The workloads of a list; `cpus` is how many CPUs run, numbered from 0.
///
/// ```
/// use kernel::plan::{Work, works};
/// let all: Vec<_> = works(b"pipe:loops=20,messaging:loops=0", 8).collect();
/// assert!(matches!(&all[0], Ok(Work::Pipe(pipe)) if pipe.loops == 20 && pipe.size == 4));
/// assert!(all[1].is_err());
/// ```
pub fn works(list: &[u8], cpus: usize) -> impl Iterator<Item = Result<Work, Refused<'_>>> {
    let list = if list == b"none" { None } else { Some(list) };
    list.into_iter().flat_map(|list| list.split(|&byte| byte == b',')).map(move |item| {
        let mut parts = item.split(|&byte| byte == b':');
        let name = parts.next().unwrap_or_default();
        work(name, parts, cpus).map_err(|why| Refused { item, why })
    })
}

fn work<'a>(name: &'a [u8], options: impl Iterator<Item = &'a [u8]>, cpus: usize) -> Result<Work, Why<'a>> {
    match name {
        b"pipe" => Pipe::default().with(options, cpus).map(Work::Pipe),
        b"messaging" => Messaging::default().with(options, cpus).map(Work::Messaging),
        b"spin" => Spin::default().with(options, cpus).map(Work::Spin),
        _ => Err(Why::Workload(name)),
    }
}

/// Sets an option from its value.
type Set<T> = fn(&mut T, &[u8], usize) -> Result<(), Accepted>;

/// Options that are set by name.
trait Options: Sized + 'static {
    const NAMES: &'static [&'static str];
    const SETTERS: &'static [Set<Self>];

    fn with<'a>(mut self, options: impl Iterator<Item = &'a [u8]>, cpus: usize) -> Result<Self, Why<'a>> {
        for option in options {
            let mut halves = option.splitn(2, |&byte| byte == b'=');
            let (name, value) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
            let at = Self::NAMES.iter().position(|known| known.as_bytes() == name);
            let set = at.and_then(|at| Self::SETTERS.get(at)).ok_or(Why::Option(name, Self::NAMES))?;
            set(&mut self, value, cpus).map_err(|accepted| Why::Value(option, accepted))?;
        }
        Ok(self)
    }
}

impl Default for Pipe {
    fn default() -> Self {
        Self { loops: 100_000, cpu: None, size: 4 }
    }
}

impl Options for Pipe {
    const NAMES: &'static [&'static str] = &["loops", "cpu", "size"];
    const SETTERS: &'static [Set<Self>] = &[
        |pipe, value, _| number(value, LOOPS).map(|loops| pipe.loops = loops),
        |pipe, value, cpus| cpu(value, cpus).map(|cpu| pipe.cpu = cpu),
        |pipe, value, _| number(value, SIZE).map(|size| pipe.size = size as usize),
    ];
}

impl Default for Messaging {
    fn default() -> Self {
        Self { groups: 10, fds: 20, loops: 100, size: 100, via: Via::Pipe }
    }
}

impl Options for Messaging {
    const NAMES: &'static [&'static str] = &["groups", "fds", "loops", "size", "via"];
    const SETTERS: &'static [Set<Self>] = &[
        |messaging, value, _| number(value, GROUPS).map(|groups| messaging.groups = groups as usize),
        |messaging, value, _| number(value, FDS).map(|fds| messaging.fds = fds as usize),
        |messaging, value, _| number(value, LOOPS).map(|loops| messaging.loops = loops),
        |messaging, value, _| number(value, SIZE).map(|size| messaging.size = size as usize),
        |messaging, value, _| {
            messaging.via = match value {
                b"pipe" => Via::Pipe,
                b"socket" => Via::Socket,
                _ => return Err(Accepted::Words("pipe or socket")),
            };
            Ok(())
        },
    ];
}

impl Messaging {
    /// How many messages are sent in all; as many must arrive.
    pub fn messages(&self) -> u64 {
        (self.groups as u64 * self.fds as u64 * self.fds as u64).saturating_mul(self.loops)
    }

    /// How many threads take part.
    pub fn threads(&self) -> usize {
        2 * self.groups * self.fds
    }
}

impl Default for Spin {
    fn default() -> Self {
        Self { tasks: 16, nice: vec![Nice::ZERO], ms: 2_000, cpu: None, slice: None, policy: vec![Policy::Normal] }
    }
}

impl Options for Spin {
    const NAMES: &'static [&'static str] = &["tasks", "nice", "ms", "cpu", "slice_us", "policy"];
    const SETTERS: &'static [Set<Self>] = &[
        |spin, value, _| number(value, TASKS).map(|tasks| spin.tasks = tasks as usize),
        |spin, value, _| {
            spin.nice = joined(value, nice).ok_or(Accepted::Words("up to 64 numbers from -20 to 19, joined by +"))?;
            Ok(())
        },
        |spin, value, _| number(value, MS).map(|ms| spin.ms = ms),
        |spin, value, cpus| cpu(value, cpus).map(|cpu| spin.cpu = cpu),
        |spin, value, _| number(value, SLICE_US).map(|us| spin.slice = Some(Slice::clamped(us * 1_000))),
        |spin, value, _| {
            let accepted = Accepted::Words("up to 64 of normal, batch and idle, joined by +");
            spin.policy = joined(value, policy).ok_or(accepted)?;
            Ok(())
        },
    ];
}

impl Spin {
    /// Nice value and policy of the thread with this number.
    pub fn parameters(&self, task: usize) -> (Nice, Policy) {
        let nice = self.nice.get(task % self.nice.len().max(1)).copied().unwrap_or_default();
        let policy = self.policy.get(task % self.policy.len().max(1)).copied().unwrap_or_default();
        (nice, policy)
    }
}

impl Work {
    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pipe(_) => "pipe",
            Self::Messaging(_) => "messaging",
            Self::Spin(_) => "spin",
        }
    }
}

impl fmt::Display for Work {
    /// Name and every option, as in the line for programs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "workload={}", self.name())?;
        match self {
            Self::Pipe(pipe) => write!(f, " loops={} cpu={} size={}", pipe.loops, Pinned(pipe.cpu), pipe.size),
            Self::Messaging(Messaging { groups, fds, loops, size, via }) => {
                write!(f, " groups={groups} fds={fds} loops={loops} size={size} via={via}")
            }
            Self::Spin(spin) => {
                write!(f, " tasks={} nice=", spin.tasks)?;
                write_joined(f, spin.nice.iter().map(|nice| nice.get()))?;
                write!(f, " ms={} cpu={} slice_us=", spin.ms, Pinned(spin.cpu))?;
                match spin.slice {
                    Some(slice) => write!(f, "{}", slice.nanos() / 1_000)?,
                    None => f.write_str("default")?,
                }
                f.write_str(" policy=")?;
                write_joined(f, spin.policy.iter().map(|&policy| policy_name(policy)))
            }
        }
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pipe => "pipe",
            Self::Socket => "socket",
        })
    }
}

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run: {}: {}; it counts as failed", Cut(self.item), self.why)
    }
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload(b"") => f.write_str("a workload's name is missing; accepted: pipe, messaging, spin"),
            Self::Workload(name) => {
                write!(f, "there is no workload '{}'; accepted: pipe, messaging, spin", Cut(name))
            }
            Self::Option(name, names) => {
                write!(f, "there is no option '{}'; accepted: {}", Cut(name), names.join(", "))
            }
            Self::Value(option, accepted) => write!(f, "'{}' is not understood; accepted: {accepted}", Cut(option)),
        }
    }
}

impl fmt::Display for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(min, max) => write!(f, "a decimal number from {min} to {max}"),
            Self::Cpu(1) => f.write_str("0, the only CPU that runs, or none"),
            Self::Cpu(cpus) => write!(f, "a CPU that runs, 0 to {}, or none", cpus.saturating_sub(1)),
            Self::Words(words) => f.write_str(words),
        }
    }
}

/// What a policy is called.
pub fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Normal => "normal",
        Policy::Batch => "batch",
        Policy::Idle => "idle",
    }
}

/// A CPU, or that there is none.
struct Pinned(Option<CpuId>);

impl fmt::Display for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(cpu) => write!(f, "{}", cpu.0),
            None => f.write_str("none"),
        }
    }
}

fn write_joined<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = T>) -> fmt::Result {
    for (at, item) in items.enumerate() {
        write!(f, "{}{item}", if at == 0 { "" } else { "+" })?;
    }
    Ok(())
}

fn number(value: &[u8], range: RangeInclusive<u64>) -> Result<u64, Accepted> {
    let accepted = Accepted::Number(*range.start(), *range.end());
    parse_unsigned(value, range).map_err(|_| accepted)
}

fn cpu(value: &[u8], cpus: usize) -> Result<Option<CpuId>, Accepted> {
    if value == b"none" {
        return Ok(None);
    }
    let last = (cpus as u64).saturating_sub(1);
    parse_unsigned(value, 0..=last).map(|cpu| Some(CpuId(cpu as u32))).map_err(|_| Accepted::Cpu(cpus))
}

fn nice(value: &[u8]) -> Option<Nice> {
    let (sign, digits) = match value.strip_prefix(b"-") {
        Some(digits) => (-1, digits),
        None => (1, value),
    };
    let number = parse_unsigned(digits, 0..=20).ok()?;
    Nice::new(sign * number as i32).ok()
}

fn policy(value: &[u8]) -> Option<Policy> {
    [Policy::Normal, Policy::Batch, Policy::Idle].into_iter().find(|&policy| policy_name(policy).as_bytes() == value)
}

/// The entries of a list joined by `+`.
fn joined<T>(value: &[u8], read: fn(&[u8]) -> Option<T>) -> Option<Vec<T>> {
    let mut list = Vec::new();
    for entry in value.split(|&byte| byte == b'+') {
        if list.len() == MAX_LIST {
            return None;
        }
        list.push(read(entry)?);
    }
    Some(list)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
