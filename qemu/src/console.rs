//! The guest's console: from bytes on a pipe to lines with a meaning.
//!
//! # What it is
//! [`Console`] passes the guest's output on as it comes and reads along.
//!
//! # How it works
//! Carriage returns are dropped, everything else is written and flushed at once.
//! Complete lines are shown to those who look for something in them: the last
//! `end status=...` line is the kernel's own verdict, and [`Capture`] cuts out
//! the dumps.
//!
//! # Invariants
//! 1. What is written has no carriage return and is otherwise what came.
//! 2. A guest that never ends a line costs bounded memory.
//!
//! # Cost
//! One copy of each byte.

use std::io::{self, Write};

use crate::capture::Capture;

/// The beginning of a run's last line.
const END_LINE: &[u8] = b"end status=";
/// The longest line that is looked at; longer ones are passed on unread.
const MAX_LINE: usize = 1 << 20;

/// What the kernel said at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// `end status=ok`
    Ok,
    /// `end status=` with anything else.
    Failed,
}

/// A console that is passed on to `out`.
pub struct Console<W> {
    out: W,
    line: Vec<u8>,
    verdict: Option<Verdict>,
    capture: Option<Capture>,
}

impl<W: Write> Console<W> {
    /// A console that is passed on to `out`, and read by `capture`.
    pub fn new(out: W, capture: Option<Capture>) -> Console<W> {
        Console { out, line: Vec::new(), verdict: None, capture }
    }

    /// The verdict of the last `end` line, if there was one.
    pub fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// Where the console is passed on to.
    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }

    /// Takes the next bytes from the guest.
    pub fn feed(&mut self, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.split(|byte| *byte == b'\r') {
            self.out.write_all(part)?;
        }
        self.out.flush()?;
        for byte in bytes.iter().copied().filter(|byte| *byte != b'\r') {
            if byte == b'\n' {
                self.end_line();
            } else if self.line.len() < MAX_LINE {
                self.line.push(byte);
            }
        }
        Ok(())
    }

    /// The guest has ended: reads what is left, ends the output with a whole line,
    /// and hands back what was captured.
    pub fn finish(&mut self) -> io::Result<Option<Capture>> {
        if !self.line.is_empty() {
            self.end_line();
            self.out.write_all(b"\n")?;
            self.out.flush()?;
        }
        Ok(self.capture.take())
    }

    fn end_line(&mut self) {
        if let Some(rest) = self.line.strip_prefix(END_LINE) {
            let status = rest.split(|byte| *byte == b' ').next();
            self.verdict = Some(if status == Some(b"ok") { Verdict::Ok } else { Verdict::Failed });
        }
        if let Some(capture) = &mut self.capture {
            capture.line(&self.line);
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(chunks: &[&[u8]]) -> (String, Option<Verdict>) {
        let mut out = Vec::new();
        let mut console = Console::new(&mut out, None);
        for chunk in chunks {
            console.feed(chunk).unwrap();
        }
        console.finish().unwrap();
        let verdict = console.verdict();
        (String::from_utf8(out).unwrap(), verdict)
    }

    #[test]
    fn carriage_returns_go_and_nothing_else_does() {
        let (out, verdict) = fed(&[b"a\r\nb\r", b"\n\tc\n"]);
        assert_eq!(out, "a\nb\n\tc\n");
        assert_eq!(verdict, None);
    }

    #[test]
    fn output_ends_with_a_whole_line() {
        assert_eq!(fed(&[b"half"]).0, "half\n");
        assert_eq!(fed(&[]).0, "");
    }

    #[test]
    fn the_last_end_line_is_the_verdict() {
        assert_eq!(fed(&[b"end sta", b"tus=ok workloads=2\n"]).1, Some(Verdict::Ok));
        assert_eq!(fed(&[b"end status=ok\r\n"]).1, Some(Verdict::Ok));
        assert_eq!(fed(&[b"end status=ok x\nend status=failed y\n"]).1, Some(Verdict::Failed));
        assert_eq!(fed(&[b"end status=okay\n"]).1, Some(Verdict::Failed));
        assert_eq!(fed(&[b"the end status=ok\n"]).1, None);
    }

    #[test]
    fn an_endless_line_is_passed_on_and_not_kept() {
        let mut console = Console::new(io::sink(), None);
        for _ in 0..4 {
            console.feed(&vec![b'x'; MAX_LINE]).unwrap();
        }
        assert_eq!(console.line.len(), MAX_LINE);
    }
}
