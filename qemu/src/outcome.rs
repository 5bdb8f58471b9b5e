//! How the program ends: exit codes, and failures that carry one.
//!
//! # What it is
//! The exit codes that scripts rely on, under names, and the one error type
//! that chooses among them.
//!
//! # How it works
//! Every command returns `anyhow::Result<Exit>`.
//! `main` prints an error as one line and asks [`Exit::of`] for the code:
//! a [`Failure`] anywhere in the error's chain names its own, everything else is
//! [`Exit::Failed`].
//!
//! # Invariants
//! 1. [`Exit::Usage`] is only given with a line that says what mends it.
//!
//! # Cost
//! None worth a word.

use std::process::ExitCode;

/// The exit codes of `cargo qemu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything asked for was done.
    Done,
    /// The kernel, a workload, a build or a check reported failure.
    Failed,
    /// Wrong usage, or something is missing on this machine.
    Usage,
    /// The kernel panicked.
    Panic,
    /// The time limit passed; QEMU was ended.
    TimeLimit,
    /// Ctrl-C or a termination signal; QEMU was ended.
    Interrupted,
}

/// An error that knows its exit code.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The caller asked for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// This machine lacks something; the text says what mends it.
    #[error("{0}")]
    Missing(String),
    /// A build, a boot or a check did not succeed.
    #[error("{0}")]
    Failed(String),
}

impl Exit {
    /// The number a shell sees.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Panic => 101,
            Exit::TimeLimit => 124,
            Exit::Interrupted => 130,
        }
    }

    /// The exit code that goes with `error`.
    pub fn of(error: &anyhow::Error) -> Exit {
        match error.downcast_ref::<Failure>() {
            Some(Failure::Usage(_) | Failure::Missing(_)) => Exit::Usage,
            Some(Failure::Failed(_)) | None => Exit::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// An error of wrong usage: exit code 2.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    Failure::Usage(text.into()).into()
}

/// An error of something missing on this machine: exit code 2.
pub fn missing(text: impl Into<String>) -> anyhow::Error {
    Failure::Missing(text.into()).into()
}

/// An error of something that was tried and failed: exit code 1.
pub fn failed(text: impl Into<String>) -> anyhow::Error {
    Failure::Failed(text.into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_failure_keeps_its_code_under_added_context() {
        let error = Err::<(), _>(usage("no")).context("while trying");
        assert_eq!(Exit::of(&error.unwrap_err()), Exit::Usage);
        assert_eq!(Exit::of(&missing("gone")), Exit::Usage);
        assert_eq!(Exit::of(&anyhow::anyhow!("other")), Exit::Failed);
    }

    #[test]
    fn the_numbers_are_the_published_ones() {
        let all = [Exit::Done, Exit::Failed, Exit::Usage, Exit::Panic, Exit::TimeLimit];
        assert_eq!(all.map(Exit::code), [0, 1, 2, 101, 124]);
    }
}
