//! Progress on standard error: a moving line on a terminal, plain lines elsewhere.
//!
//! # What it is
//! One task at a time, what it is doing now, and how long it took.
//!
//! # How it works
//! A task that has nothing to do never shows: the first line is printed with its
//! first step.
//!
//! # Invariants
//! 1. Nothing is ever written to standard output.
//!
//! # Cost
//! A thread redraws the moving line ten times a second.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often the moving line is redrawn.
const REDRAW: Duration = Duration::from_millis(100);

/// A task under way.
pub struct Progress {
    title: String,
    begun: Instant,
    steps: usize,
    style: Style,
    bar: Option<ProgressBar>,
}

/// What is shown where there is no terminal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Lines,
    Nothing,
}

impl Progress {
    /// A task called `title`; nothing is shown yet.
    pub fn new(title: impl Into<String>) -> Progress {
        Progress::with_style(title.into(), Style::Lines)
    }

    /// A task whose steps are worth a moving line, but no plain ones.
    pub fn moving(title: impl Into<String>) -> Progress {
        Progress::with_style(title.into(), Style::Nothing)
    }

    fn with_style(title: String, style: Style) -> Progress {
        Progress { title, begun: Instant::now(), steps: 0, style, bar: None }
    }

    /// Shows what the task is doing now.
    pub fn step(&mut self, step: &str) {
        self.steps += 1;
        if !stderr().is_terminal() {
            if self.style == Style::Nothing {
                return;
            }
            if self.steps == 1 {
                eprintln!("{} ...", self.title);
            }
            eprintln!("  {step}");
            return;
        }
        let title = &self.title;
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} [{elapsed}] {wide_msg}") {
                bar.set_style(style);
            }
            bar.set_prefix(title.clone());
            bar.enable_steady_tick(REDRAW);
            bar
        });
        bar.set_message(step.to_owned());
    }

    /// Prints a line that stays.
    pub fn line(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    /// Ends the task: the moving line goes; how long it took is said if anything was done.
    pub fn done(self, result: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if self.steps > 0 {
            eprintln!("{}: {result} in {:.1} s", self.title, self.begun.elapsed().as_secs_f64());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
