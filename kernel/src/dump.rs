//! Kernel files on the console.
//!
//! # What it is
//! Which files there are, which of them `dump=` asks for, and the frame a program cuts them out by.
//!
//! # How it works
//! A file lies between `--- begin PATH` and `--- end PATH lines=N crc32=XXXXXXXX`;
//! the checksum is that of IEEE 802.3 over all bytes between the two lines.
//! A file belongs to a hook and is there only while the hook is on.
//!
//! # Invariants
//! 1. What is framed ends in a line feed, so that the frame's own lines stand alone.
//!
//! # Cost
//! One pass over the text.

use alloc::vec::Vec;
use core::fmt;

use crate::param::{Cuts, Hook, HookState};

/// A file of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// The counters of every CPU.
    Schedstat,
    /// How long tasks waited for a CPU.
    PressureCpu,
}

/// A file with its frame.
#[derive(Clone, Copy, Debug)]
pub struct Framed<'a> {
    /// The file.
    pub file: File,
    /// What it says.
    pub text: &'a str,
}

impl File {
    /// Every file there is.
    pub const ALL: [Self; 2] = [Self::Schedstat, Self::PressureCpu];

    /// Its name.
    pub fn path(self) -> &'static str {
        match self {
            Self::Schedstat => "/proc/schedstat",
            Self::PressureCpu => "/proc/pressure/cpu",
        }
    }

    /// The hook it belongs to.
    pub fn hook(self) -> Hook {
        match self {
            Self::Schedstat => Hook::Schedstats,
            Self::PressureCpu => Hook::Psi,
        }
    }
}

impl fmt::Display for Framed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, text) = (self.file.path(), self.text);
        let missing = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(text.as_bytes());
        checksum.update(missing.as_bytes());
        let lines = text.lines().count();
        writeln!(f, "--- begin {path}")?;
        write!(f, "{text}{missing}")?;
        writeln!(f, "--- end {path} lines={lines} crc32={:08x}", checksum.finalize())
    }
}

/// The files that `dump` asks for, each once; `say` gets one line for each that cannot be had.
pub fn chosen(
    dump: Option<&[u8]>,
    state: impl Fn(Hook) -> HookState,
    say: &mut dyn FnMut(fmt::Arguments<'_>),
) -> Vec<File> {
    let mut files: Vec<File> = Vec::new();
    let mut add = |file| {
        if !files.contains(&file) {
            files.push(file);
        }
    };
    let mut unknown = Cuts::default();
    let is_on = |file: &File| state(file.hook()) == HookState::On;
    for item in dump.unwrap_or(b"all").split(|&byte| byte == b',') {
        match item {
            b"all" => File::ALL.into_iter().filter(is_on).for_each(&mut add),
            b"none" => {}
            _ => match File::ALL.into_iter().find(|file| file.path().as_bytes() == item) {
                Some(file) => match (file.path(), file.hook(), state(file.hook())) {
                    (_, _, HookState::On) => add(file),
                    (path, hook, HookState::Off) => {
                        say(format_args!("dump: {path} is not there: {} turns it on", hook.switch()));
                    }
                    (path, hook, HookState::NotBuilt) => {
                        let name = hook.name();
                        say(format_args!(
                            "dump: {path} is not there: build with {name} (see --build) and say {}",
                            hook.switch()
                        ));
                    }
                },
                None => unknown.add(item),
            },
        }
    }
    if !unknown.is_empty() {
        let [first, second] = File::ALL.map(File::path);
        say(format_args!("dump: no such file: {unknown}; accepted: {first}, {second}, all, none"));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with(dump: Option<&str>, states: [HookState; 2]) -> (Vec<File>, Vec<String>) {
        let mut lines = Vec::new();
        let state = |hook| states[(hook == Hook::Psi) as usize];
        let files = chosen(dump.map(str::as_bytes), state, &mut |line| lines.push(line.to_string()));
        (files, lines)
    }

    const ON: [HookState; 2] = [HookState::On; 2];

    #[test]
    fn files_of_hooks_that_are_on_are_dumped() {
        for dump in [None, Some("all")] {
            assert_eq!(with(dump, ON), (File::ALL.to_vec(), vec![]));
            assert_eq!(with(dump, [HookState::On, HookState::Off]), (vec![File::Schedstat], vec![]));
            assert_eq!(with(dump, [HookState::NotBuilt; 2]), (vec![], vec![]));
        }
        assert_eq!(with(Some("none"), ON), (vec![], vec![]));
        let twice = "/proc/pressure/cpu,/proc/schedstat,/proc/pressure/cpu,all";
        assert_eq!(with(Some(twice), ON), (vec![File::PressureCpu, File::Schedstat], vec![]));
    }

    #[test]
    fn a_file_that_is_not_there_is_said_in_one_line() {
        let states = [HookState::Off, HookState::NotBuilt];
        assert_eq!(
            with(Some("/proc/schedstat,/proc/pressure/cpu,/proc/stat,,/proc/stat,"), states),
            (
                vec![],
                [
                    "dump: /proc/schedstat is not there: schedstats=enable turns it on",
                    "dump: /proc/pressure/cpu is not there: build with psi (see --build) and say psi=1",
                    "dump: no such file: '/proc/stat', ''; accepted: /proc/schedstat, /proc/pressure/cpu, all, none",
                ]
                .map(String::from)
                .to_vec()
            )
        );
    }

    #[test]
    fn a_frame_states_lines_and_checksum() {
        // CRC-32 of "123456789" is CBF43926 by definition; of what is framed here it was computed by another program.
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
        for text in ["123456789\n", "123456789"] {
            let framed = Framed { file: File::Schedstat, text }.to_string();
            let expected = "--- begin /proc/schedstat\n123456789\n--- end /proc/schedstat lines=1 crc32=e0117757\n";
            assert_eq!(framed, expected);
        }
        let empty = Framed { file: File::PressureCpu, text: "" }.to_string();
        assert_eq!(empty, "--- begin /proc/pressure/cpu\n--- end /proc/pressure/cpu lines=0 crc32=00000000\n");
    }

    proptest! {
        #[test]
        fn no_list_panics(dump in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let mut lines = Vec::new();
            chosen(Some(&dump), |_| HookState::Off, &mut |line| lines.push(line.to_string()));
            for line in lines {
                prop_assert!(!line.contains('\n') && line.len() < 16 * 1024);
            }
        }
    }
}
