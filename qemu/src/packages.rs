//! Package managers: which packages mend what, and the command lines.
//!
//! # What it is
//! A table with one row for each package manager, and the pure functions that turn
//! a row into command lines.
//!
//! # How it works
//! The first manager of the table that is on this machine is used.
//! Rows marked [`Tried::No`] are checked as command lines only: nobody has run them
//! for this project yet, and the launcher says so.
//!
//! # Invariants
//! 1. A command line installs what is missing and nothing else.
//! 2. No command line asks a question.
//!
//! # Cost
//! None.

/// Something that must be on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The emulator.
    Qemu,
    /// A compiler for this bare-metal target.
    Compiler(&'static str),
    /// What counts the instructions of a bench.
    Valgrind,
}

/// Whether a row of the table has been run for real.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// It has.
    Yes,
    /// Its command lines are checked, nothing more.
    No,
}

/// Who may install packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// We may as we are.
    Ours,
    /// We may through `sudo`, which asks no password.
    Sudo,
    /// Only the user, through `sudo` and a password.
    UserSudo,
    /// Only the user, through `su` and root's password.
    UserSu,
}

/// Whether the manager's list of packages must be fetched first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// The lists are there.
    Present,
    /// The lists are not there, or too old to find a package.
    Missing,
}

/// One row of the table.
#[derive(Debug)]
pub struct Manager {
    /// What people call it.
    pub name: &'static str,
    /// The program by which it is recognised.
    pub program: &'static str,
    /// Whether it has been run for this project.
    pub tried: Tried,
    /// Whether packages are installed by root, as against the user.
    pub needs_root: bool,
    refresh: Option<&'static str>,
    install: &'static str,
    qemu: &'static [&'static str],
    compiler: &'static [&'static str],
    valgrind: &'static [&'static str],
}

/// Every package manager that is known, in the order in which they are looked for.
pub const MANAGERS: [Manager; 4] = [
    Manager {
        name: "apt",
        program: "apt-get",
        tried: Tried::Yes,
        needs_root: true,
        refresh: Some("apt-get update"),
        install: "apt-get install -y --no-install-recommends",
        qemu: &["qemu-system-x86"],
        compiler: &["rustc-web", "cargo-web", "rust-web-src", "binutils"],
        valgrind: &["valgrind"],
    },
    Manager {
        name: "dnf",
        program: "dnf",
        tried: Tried::No,
        needs_root: true,
        refresh: None,
        install: "dnf install -y",
        qemu: &["qemu-system-x86-core"],
        compiler: &["rust", "cargo", "rust-src", "binutils"],
        valgrind: &["valgrind"],
    },
    Manager {
        name: "pacman",
        program: "pacman",
        tried: Tried::No,
        needs_root: true,
        refresh: None,
        install: "pacman -S --needed --noconfirm",
        qemu: &["qemu-system-x86"],
        compiler: &["rust", "rust-src", "binutils"],
        valgrind: &["valgrind"],
    },
    Manager {
        name: "brew",
        program: "brew",
        tried: Tried::No,
        needs_root: false,
        refresh: None,
        install: "brew install",
        qemu: &["qemu"],
        // Homebrew's own Rust has no bare-metal library and no source of it.
        compiler: &["rustup"],
        valgrind: &["valgrind"],
    },
];

impl Need {
    /// What it is called.
    pub fn name(self) -> String {
        match self {
            Need::Qemu => "qemu-system-x86_64".to_owned(),
            Need::Compiler(target) => format!("a Rust compiler for {target}"),
            Need::Valgrind => "valgrind".to_owned(),
        }
    }

    /// What it is for.
    pub fn why(self) -> &'static str {
        match self {
            Need::Qemu => "it is the machine that the kernel boots on",
            Need::Compiler(_) => "it compiles what runs without an operating system",
            Need::Valgrind => "it counts the instructions of a bench",
        }
    }
}

impl Manager {
    /// Whether the manager has lists that are fetched by a command of their own.
    pub fn refreshes(&self) -> bool {
        self.refresh.is_some()
    }

    /// Whether the compiler comes through rustup, which must then add the target.
    pub fn brings_rustup(&self) -> bool {
        self.compiler.contains(&"rustup")
    }

    /// The packages that mend `missing`, each once.
    pub fn packages(&self, missing: &[Need]) -> Vec<&'static str> {
        let has_qemu = missing.contains(&Need::Qemu);
        let has_compiler = missing.iter().any(|need| matches!(need, Need::Compiler(_)));
        let qemu = self.qemu.iter().filter(|_| has_qemu);
        let compiler = self.compiler.iter().filter(|_| has_compiler);
        let valgrind = self.valgrind.iter().filter(|_| missing.contains(&Need::Valgrind));
        qemu.chain(compiler).chain(valgrind).copied().collect()
    }

    /// The command lines that mend `missing`, one after another.
    pub fn steps(&self, missing: &[Need], lists: Lists, rights: Rights) -> Vec<String> {
        let prefix = match rights {
            _ if !self.needs_root => "",
            Rights::Ours => "",
            Rights::Sudo => "sudo -n ",
            Rights::UserSudo => "sudo ",
            Rights::UserSu => "",
        };
        let refresh = self.refresh.filter(|_| lists == Lists::Missing);
        let install = format!("{} {}", self.install, self.packages(missing).join(" "));
        refresh.map(str::to_owned).into_iter().chain([install]).map(|step| format!("{prefix}{step}")).collect()
    }

    /// The same as one line for the user to run.
    pub fn line(&self, missing: &[Need], lists: Lists, rights: Rights) -> String {
        let line = self.steps(missing, lists, rights).join(" && ");
        if rights == Rights::UserSu && self.needs_root { format!("su -c '{line}'") } else { line }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Need; 3] = [Need::Qemu, Need::Compiler("one-target"), Need::Compiler("another")];

    fn manager(name: &str) -> &'static Manager {
        MANAGERS.iter().find(|manager| manager.name == name).unwrap()
    }

    #[test]
    fn apt_as_root() {
        assert_eq!(
            manager("apt").steps(&BOTH, Lists::Missing, Rights::Ours),
            [
                "apt-get update",
                "apt-get install -y --no-install-recommends \
                 qemu-system-x86 rustc-web cargo-web rust-web-src binutils",
            ]
        );
    }

    #[test]
    fn apt_through_sudo_installs_only_what_is_missing() {
        assert_eq!(
            manager("apt").steps(&[Need::Qemu], Lists::Present, Rights::Sudo),
            ["sudo -n apt-get install -y --no-install-recommends qemu-system-x86"]
        );
    }

    #[test]
    fn the_user_gets_one_line() {
        assert_eq!(
            manager("apt").line(&[Need::Qemu], Lists::Missing, Rights::UserSudo),
            "sudo apt-get update && \
             sudo apt-get install -y --no-install-recommends qemu-system-x86"
        );
        assert_eq!(
            manager("apt").line(&[Need::Qemu], Lists::Missing, Rights::UserSu),
            "su -c 'apt-get update && \
             apt-get install -y --no-install-recommends qemu-system-x86'"
        );
    }

    #[test]
    fn dnf_pacman_and_brew_as_command_lines() {
        let line = |name, rights| manager(name).line(&BOTH, Lists::Missing, rights);
        assert_eq!(line("dnf", Rights::Ours), "dnf install -y qemu-system-x86-core rust cargo rust-src binutils");
        assert_eq!(
            line("pacman", Rights::Sudo),
            "sudo -n pacman -S --needed --noconfirm qemu-system-x86 rust rust-src binutils"
        );
        assert_eq!(line("brew", Rights::UserSu), "brew install qemu rustup");
        for name in ["apt", "dnf", "pacman", "brew"] {
            assert_eq!(manager(name).packages(&[Need::Valgrind]), ["valgrind"]);
        }
        for name in ["dnf", "pacman", "brew"] {
            assert_eq!(manager(name).tried, Tried::No);
        }
    }
}
