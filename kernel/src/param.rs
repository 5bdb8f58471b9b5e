//! The parameters of the kernel.
//!
//! # What it is
//! One table of everything that can be said on the command line ([`TABLE`]), and [`read`], which applies a line to it.
//!
//! # How it works
//! The line is split by Linux's conventions ([`boot::cmdline`]) and applied from left to right, so the last good value wins.
//! A value that is not accepted changes nothing and costs one line, which names what is used instead.
//! Keys that nobody knows, that come in a later kernel, or whose part is not compiled in are gathered: one line for each of
//! the three kinds.
//!
//! # Invariants
//! 1. Any bytes at all can be read; the settings are always usable.
//! 2. What is printed is bounded: values are cut, keys are named once.
//!
//! # Cost
//! One pass over the line, at boot.

use alloc::vec::Vec;
use core::fmt;

use boot::cmdline::{Text, params, parse_bool, parse_unsigned, parse_word};
use sched_core::{Algorithm, State};

/// How many bytes of a value are shown.
const SHOWN_BYTES: usize = 48;
/// What runs when nothing is asked for.
const DEFAULT_RUN: &[u8] = b"pipe,messaging";

/// The hooks that this kernel can be built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// The counters.
    Schedstats,
    /// Pressure stall information.
    Psi,
}

/// Whether a hook listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookState {
    /// It is not compiled in.
    NotBuilt,
    /// It is compiled in and off.
    Off,
    /// It is compiled in and on.
    On,
}

/// What may not be compiled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A hook.
    Hook(Hook),
    /// Features of the scheduler that can be changed.
    Debug,
}

/// What is compiled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    /// The counters.
    pub schedstats: bool,
    /// Pressure stall information.
    pub psi: bool,
    /// Pressure is on unless the command line says otherwise.
    pub psi_default_enabled: bool,
    /// Features of the scheduler can be changed.
    pub debug: bool,
}

/// What the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings<'a> {
    /// Whether the counters count.
    pub schedstats: State,
    /// Whether pressure is measured.
    pub psi: State,
    /// How the CPUs are shared.
    pub algorithm: Algorithm,
    /// The list of features to change, for [`crate::rules`].
    pub features: Option<&'a [u8]>,
    /// For how many milliseconds a CPU may idle while a thread waits; none: nobody watches.
    pub watch: Option<u32>,
    /// For how many microseconds an idle CPU looks for something to do before it halts.
    pub idle_poll_us: u32,
    /// How many CPUs to start at most.
    pub max_cpus: usize,
    /// The list of workloads, for [`crate::plan`].
    pub run: &'a [u8],
    /// The list of files to print at the end, for [`crate::dump`]; none: those of the hooks that are on.
    pub dump: Option<&'a [u8]>,
    /// What happens after the last line.
    pub end: End,
    /// A test of the machine layer to run in place of workloads.
    pub selftest: Option<&'a [u8]>,
}

/// What happens after the last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The machine is switched off.
    PowerOff,
    /// The CPUs stop; the machine stays on.
    Halt,
}

/// Whether a parameter is shown to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// It is part of the interface.
    Users,
    /// It is for the kernel's own tests.
    Tests,
}

/// One row of the table.
pub struct Parameter {
    /// The key.
    pub name: &'static str,
    /// What is accepted, for people.
    pub accepts: &'static str,
    /// What is used when nothing is said, for people.
    pub default: &'static str,
    /// What it does, in one sentence.
    pub what: &'static str,
    /// For whom it is.
    pub audience: Audience,
    /// The part without which it means nothing.
    part: Option<Part>,
    set: for<'a> fn(&mut Settings<'a>, &'a [u8]) -> Result<(), Refused>,
    show: fn(&Settings<'_>, &mut fmt::Formatter<'_>) -> fmt::Result,
}

/// Why a value was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// It is not among what is accepted.
    Value,
    /// It is, but this kernel does not have it.
    NotYet,
}

/// Every parameter there is.
pub static TABLE: [Parameter; 12] = [
    Parameter {
        name: "schedstats",
        accepts: "enable or disable",
        default: "disable",
        what: "Turns the scheduler's counters on.",
        audience: Audience::Users,
        part: Some(Part::Hook(Hook::Schedstats)),
        set: |settings, value| {
            settings.schedstats = state(word(value, &["disable", "enable"])? == 1);
            Ok(())
        },
        show: |settings, f| f.write_str(if settings.schedstats == State::On { "enable" } else { "disable" }),
    },
    Parameter {
        name: "psi",
        accepts: "a boolean (1, y, t, e, on or 0, n, f, d, off)",
        default: "0, or 1 if built with psi-default-enabled",
        what: "Turns the measurement of CPU pressure on.",
        audience: Audience::Users,
        part: Some(Part::Hook(Hook::Psi)),
        set: |settings, value| {
            settings.psi = state(parse_bool(value).map_err(|_| Refused::Value)?);
            Ok(())
        },
        show: |settings, f| f.write_str(if settings.psi == State::On { "1" } else { "0" }),
    },
    Parameter {
        name: "maxcpus",
        accepts: "a decimal number from 1 to 65535",
        default: "all",
        what: "Limits how many CPUs are started.",
        audience: Audience::Users,
        part: None,
        set: |settings, value| {
            settings.max_cpus = parse_unsigned(value, 1..=65_535).map_err(|_| Refused::Value)? as usize;
            Ok(())
        },
        show: |settings, f| match settings.max_cpus {
            usize::MAX => f.write_str("all"),
            count => write!(f, "{count}"),
        },
    },
    Parameter {
        name: "run",
        accepts: "a comma list of workloads, each with :key=value options, or none",
        default: "pipe,messaging",
        what: "Names the workloads to run, one after another.",
        audience: Audience::Users,
        part: None,
        set: |settings, value| {
            settings.run = not_empty(value)?;
            Ok(())
        },
        show: |settings, f| write!(f, "{}", Cut(settings.run)),
    },
    Parameter {
        name: "dump",
        accepts: "a comma list of kernel files, all, or none",
        default: "those of the hooks that are on, and the features if they were changed",
        what: "Names the kernel files to print at the end.",
        audience: Audience::Users,
        part: None,
        set: |settings, value| {
            settings.dump = Some(not_empty(value)?);
            Ok(())
        },
        show: |settings, f| write!(f, "{}", Cut(settings.dump.unwrap_or(b"the default"))),
    },
    Parameter {
        name: "end",
        accepts: "poweroff, shell or halt",
        default: "poweroff",
        what: "Says what happens after the last line.",
        audience: Audience::Users,
        part: None,
        set: |settings, value| {
            let chosen = word(value, &["poweroff", "halt", "shell"])?;
            settings.end = if chosen == 1 { End::Halt } else { End::PowerOff };
            if chosen == 2 { Err(Refused::NotYet) } else { Ok(()) }
        },
        show: |settings, f| f.write_str(if settings.end == End::Halt { "halt" } else { "poweroff" }),
    },
    Parameter {
        name: "sched_policy",
        accepts: "eevdf or cfs",
        default: "eevdf",
        what: "Chooses the algorithm.",
        audience: Audience::Users,
        part: None,
        set: |settings, value| {
            let chosen = word(value, &["eevdf", "cfs"])?;
            settings.algorithm = if chosen == 1 { Algorithm::Cfs } else { Algorithm::Eevdf };
            Ok(())
        },
        show: |settings, f| f.write_str(if settings.algorithm == Algorithm::Cfs { "cfs" } else { "eevdf" }),
    },
    Parameter {
        name: "sched_features",
        accepts: "a comma list of NAME or NO_NAME, with names as in /sys/kernel/debug/sched/features",
        default: "the built-in ones",
        what: "Turns features of the scheduler on or off, in order.",
        audience: Audience::Users,
        part: Some(Part::Debug),
        set: |settings, value| {
            settings.features = Some(not_empty(value)?);
            Ok(())
        },
        show: |settings, f| write!(f, "{}", Cut(settings.features.unwrap_or(b"the built-in ones"))),
    },
    Parameter {
        name: "watch",
        accepts: "off, or a decimal number of milliseconds from 1 to 10000",
        default: "off",
        what: "Counts how often a CPU idles for longer than that while a thread that may run there waits.",
        audience: Audience::Users,
        part: Some(Part::Debug),
        set: |settings, value| {
            settings.watch = match value {
                b"off" => None,
                _ => Some(parse_unsigned(value, 1..=10_000).map_err(|_| Refused::Value)? as u32),
            };
            Ok(())
        },
        show: |settings, f| match settings.watch {
            None => f.write_str("off"),
            Some(milliseconds) => write!(f, "{milliseconds}"),
        },
    },
    Parameter {
        name: "idle_poll",
        accepts: "a decimal number of microseconds from 0 to 1000",
        default: "20",
        what: "How long an idle CPU looks for something to do before it halts.",
        audience: Audience::Users,
        part: None,
        set: |settings, value| {
            settings.idle_poll_us = parse_unsigned(value, 0..=1000).map_err(|_| Refused::Value)? as u32;
            Ok(())
        },
        show: |settings, f| write!(f, "{}", settings.idle_poll_us),
    },
    Parameter {
        name: "schedstat_version",
        accepts: "15, 16 or 17",
        default: "17",
        what: "Chooses the format of /proc/schedstat.",
        audience: Audience::Users,
        part: None,
        set: |_, value| not_yet_unless(word(value, &["17", "16", "15"])? == 0),
        show: |_, f| f.write_str("17"),
    },
    Parameter {
        name: "selftest",
        accepts: "the name of a test of the machine layer",
        default: "none",
        what: "Runs a test of the machine layer in place of workloads.",
        audience: Audience::Tests,
        part: None,
        set: |settings, value| {
            settings.selftest = Some(not_empty(value)?);
            Ok(())
        },
        show: |settings, f| write!(f, "{}", Cut(settings.selftest.unwrap_or(b"none"))),
    },
];

/// Parameters of the interface that come in a later kernel; a name that ends in a dot is a beginning.
const NOT_YET: [&str; 3] = ["latencytop", "trace_event", "sysctl."];

/// The beginning of a text that may be long and may hold any bytes.
#[derive(Clone, Copy, Debug)]
pub struct Cut<'a>(pub &'a [u8]);

/// Such texts, each once, to be named in one line.
#[derive(Clone, Debug, Default)]
pub struct Cuts<'a>(Vec<&'a [u8]>);

impl Hook {
    /// Its name, which is also the name of its parameter and of its cargo feature.
    pub fn name(self) -> &'static str {
        match self {
            Self::Schedstats => "schedstats",
            Self::Psi => "psi",
        }
    }

    /// What to say on the command line to have it on.
    pub fn switch(self) -> &'static str {
        match self {
            Self::Schedstats => "schedstats=enable",
            Self::Psi => "psi=1",
        }
    }
}

impl Built {
    /// What is compiled into this kernel.
    pub const fn here() -> Self {
        Self {
            schedstats: cfg!(feature = "schedstats"),
            psi: cfg!(feature = "psi"),
            psi_default_enabled: cfg!(feature = "psi-default-enabled"),
            debug: cfg!(feature = "debug"),
        }
    }

    /// Whether `part` is compiled in.
    pub fn has(self, part: Part) -> bool {
        match part {
            Part::Hook(Hook::Schedstats) => self.schedstats,
            Part::Hook(Hook::Psi) => self.psi,
            Part::Debug => self.debug,
        }
    }
}

impl fmt::Display for Built {
    /// The list as `--build` takes it, in its normal form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.schedstats, self.psi) {
            (true, true) => "all",
            (true, false) => "schedstats",
            (false, true) => "psi",
            (false, false) => "none",
        })?;
        f.write_str(if self.debug { ",debug" } else { "" })?;
        f.write_str(if self.psi_default_enabled { ",psi-default-enabled" } else { "" })
    }
}

impl Settings<'_> {
    /// What is used when nothing is said.
    pub fn new(built: Built) -> Self {
        Self {
            schedstats: State::Off,
            psi: state(built.psi && built.psi_default_enabled),
            algorithm: Algorithm::default(),
            features: None,
            watch: None,
            idle_poll_us: 20,
            max_cpus: usize::MAX,
            run: DEFAULT_RUN,
            dump: None,
            end: End::PowerOff,
            selftest: None,
        }
    }

    /// Whether `hook` listens.
    pub fn hook(&self, hook: Hook, built: Built) -> HookState {
        let asked = match hook {
            Hook::Schedstats => self.schedstats,
            Hook::Psi => self.psi,
        };
        match (built.has(Part::Hook(hook)), asked) {
            (false, _) => HookState::NotBuilt,
            (true, State::Off) => HookState::Off,
            (true, State::On) => HookState::On,
        }
    }
}

impl fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_at_checked(SHOWN_BYTES) {
            Some((head, tail)) if !tail.is_empty() => write!(f, "{}...", Text(head)),
            _ => write!(f, "{}", Text(self.0)),
        }
    }
}

impl<'a> Cuts<'a> {
    /// Adds a text unless it is there.
    pub fn add(&mut self, text: &'a [u8]) {
        if !self.0.contains(&text) {
            self.0.push(text);
        }
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Cuts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, text) in self.0.iter().enumerate() {
            write!(f, "{}'{}'", if at == 0 { "" } else { ", " }, Cut(text))?;
        }
        Ok(())
    }
}

/// Reads a command line; `say` gets one line for each thing that is wrong with it.
pub fn read<'a>(line: &'a [u8], built: Built, say: &mut dyn FnMut(fmt::Arguments<'_>)) -> Settings<'a> {
    let mut settings = Settings::new(built);
    let mut lacks_debug = false;
    let (mut unknown, mut not_yet, mut not_built) = (Cuts::default(), Cuts::default(), Cuts::default());
    for param in params(line) {
        let Some(row) = TABLE.iter().find(|row| param.key.is(row.name)) else {
            let later = NOT_YET.iter().any(|name| match name.strip_suffix('.') {
                Some(_) => param.key.strip_prefix(name).is_some(),
                None => param.key.is(name),
            });
            if later { &mut not_yet } else { &mut unknown }.add(param.key.0);
            continue;
        };
        if row.part.is_some_and(|part| !built.has(part)) {
            lacks_debug |= row.part == Some(Part::Debug);
            not_built.add(param.key.0);
            continue;
        }
        let why = match (param.value, param.value.map(|value| (row.set)(&mut settings, value))) {
            (Some(_), Some(Ok(()))) => continue,
            (Some(_), Some(Err(Refused::NotYet))) => "is not in this kernel yet",
            (Some(_), _) => "is not understood",
            (None, _) => "has no value",
        };
        let equals = if param.value.is_some() { "=" } else { "" };
        let (value, used) = (Cut(param.value.unwrap_or_default()), Used(row, &settings));
        say(format_args!("param: {}{equals}{value} {why}; accepted: {}; used: {used}", row.name, row.accepts));
    }
    // A hook has the name of its parameter; the features of the scheduler come with something else.
    let hint = if lacks_debug { "; sched_features and watch need debug" } else { "" };
    for (keys, what, hint) in [
        (unknown, "unknown, ignored", ""),
        (not_yet, "not in this kernel yet, ignored", ""),
        (not_built, "not compiled into this kernel (see --build), ignored", hint),
    ] {
        if !keys.is_empty() {
            say(format_args!("param: {what}: {keys}{hint}"));
        }
    }
    settings
}

/// The value a parameter has.
struct Used<'a>(&'a Parameter, &'a Settings<'a>);

impl fmt::Display for Used<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0.show)(self.1, f)
    }
}

fn state(on: bool) -> State {
    if on { State::On } else { State::Off }
}

fn word(value: &[u8], words: &'static [&'static str]) -> Result<usize, Refused> {
    parse_word(value, words).map_err(|_| Refused::Value)
}

fn not_empty(value: &[u8]) -> Result<&[u8], Refused> {
    if value.is_empty() { Err(Refused::Value) } else { Ok(value) }
}

fn not_yet_unless(here: bool) -> Result<(), Refused> {
    if here { Ok(()) } else { Err(Refused::NotYet) }
}

#[cfg(test)]
#[path = "param_tests.rs"]
mod tests;
