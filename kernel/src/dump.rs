//! Kernel files on the console.
//!
//! # What it is
//! Which files there are, which of them `dump=` asks for, and the frame a program cuts them out by.
//!
//! # How it works
//! A file lies between `--- begin PATH` and `--- end PATH lines=N crc32=XXXXXXXX`;
//! the checksum is that of IEEE 802.3 over all bytes between the two lines.
//! A file may belong to a hook, and then it is there only while the hook is on.
//!
//! # Invariants
//! 1. What is framed ends in a line feed, so that the frame's own lines stand alone.
//!
//! # Cost
//! One pass over the text.

use alloc::vec::Vec;
use core::fmt;

use crate::param::{Cuts, Hook, HookState};
use crate::rules::Asked;

/// A file of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// The counters of every CPU.
    Schedstat,
    /// How long tasks waited for a CPU.
    PressureCpu,
    /// The features of the scheduler, and which of them are on.
    Features,
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
    pub const ALL: [Self; 3] = [Self::Schedstat, Self::PressureCpu, Self::Features];

    /// Its name.
    pub fn path(self) -> &'static str {
        match self {
            Self::Schedstat => "/proc/schedstat",
            Self::PressureCpu => "/proc/pressure/cpu",
            Self::Features => "/sys/kernel/debug/sched/features",
        }
    }

    /// The hook it belongs to, if any.
    pub fn hook(self) -> Option<Hook> {
        match self {
            Self::Schedstat => Some(Hook::Schedstats),
            Self::PressureCpu => Some(Hook::Psi),
            Self::Features => None,
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
///
/// If it asks for none in particular: those of the hooks that are on, and the features if they were `asked` to change.
pub fn chosen(
    dump: Option<&[u8]>,
    state: impl Fn(Hook) -> HookState,
    asked: &Asked,
    say: &mut dyn FnMut(fmt::Arguments<'_>),
) -> Vec<File> {
    let mut files: Vec<File> = Vec::new();
    let mut add = |file| {
        if !files.contains(&file) {
            files.push(file);
        }
    };
    let mut unknown = Cuts::default();
    let is_there = |file: &File| file.hook().is_none_or(|hook| state(hook) == HookState::On);
    let Some(list) = dump else {
        let by_default = |file: &File| *file != File::Features || !asked.is_empty();
        File::ALL.into_iter().filter(is_there).filter(by_default).for_each(add);
        return files;
    };
    for item in list.split(|&byte| byte == b',') {
        match item {
            b"all" => File::ALL.into_iter().filter(is_there).for_each(&mut add),
            b"none" => {}
            _ => match File::ALL.into_iter().find(|file| file.path().as_bytes() == item) {
                Some(file) => match (file.path(), file.hook().map(|hook| (hook, state(hook)))) {
                    (_, None | Some((_, HookState::On))) => add(file),
                    (path, Some((hook, HookState::Off))) => {
                        say(format_args!("dump: {path} is not there: {} turns it on", hook.switch()));
                    }
                    (path, Some((hook, HookState::NotBuilt))) => {
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
        let [first, second, third] = File::ALL.map(File::path);
        say(format_args!("dump: no such file: {unknown}; accepted: {first}, {second}, {third}, all, none"));
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
        let nothing = Asked::default();
        let files = chosen(dump.map(str::as_bytes), state, &nothing, &mut |line| lines.push(line.to_string()));
        (files, lines)
    }

    const ON: [HookState; 2] = [HookState::On; 2];

    #[test]
    fn files_of_hooks_that_are_on_are_dumped() {
        assert_eq!(with(None, ON), (vec![File::Schedstat, File::PressureCpu], vec![]));
        assert_eq!(with(None, [HookState::On, HookState::Off]), (vec![File::Schedstat], vec![]));
        assert_eq!(with(None, [HookState::NotBuilt; 2]), (vec![], vec![]));
        assert_eq!(with(Some("all"), ON), (File::ALL.to_vec(), vec![]));
        assert_eq!(
            with(Some("all"), [HookState::Off, HookState::On]),
            (vec![File::PressureCpu, File::Features], vec![])
        );
        assert_eq!(with(Some("none"), ON), (vec![], vec![]));
        let twice = "/proc/pressure/cpu,/proc/schedstat,/proc/pressure/cpu,all";
        assert_eq!(with(Some(twice), ON), (vec![File::PressureCpu, File::Schedstat, File::Features], vec![]));
    }

    #[test]
    fn features_are_there_always_and_dumped_if_they_were_changed() {
        let features = vec![File::Features];
        assert_eq!(
            with(Some("/sys/kernel/debug/sched/features"), [HookState::NotBuilt; 2]),
            (features.clone(), vec![])
        );
        let asked = |list: &[u8]| Asked::read(Some(list), &mut |_| {});
        let by_default = |asked| chosen(None, |_| HookState::Off, &asked, &mut |line| panic!("{line}"));
        assert_eq!(by_default(asked(b"NEXT_BUDDY")), features);
        assert_eq!(by_default(asked(b"NEXT_BUDY")), []);
        assert_eq!(chosen(Some(b"none"), |_| HookState::On, &asked(b"NEXT_BUDDY"), &mut |_| {}), []);
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
                    "dump: no such file: '/proc/stat', ''; accepted: /proc/schedstat, /proc/pressure/cpu, \
                     /sys/kernel/debug/sched/features, all, none",
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
            chosen(Some(&dump), |_| HookState::Off, &Asked::default(), &mut |line| lines.push(line.to_string()));
            for line in lines {
                prop_assert!(!line.contains('\n') && line.len() < 16 * 1024);
            }
        }
    }
}
