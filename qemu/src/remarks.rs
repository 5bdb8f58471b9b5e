//! QEMU's standard error, passed on but for the line that says which signal ended it.
//!
//! # What it is
//! [`pass_on`] copies what QEMU says, and hands `terminating on signal 15 from pid N`
//! to the caller: where the launcher ended QEMU, or both got the same signal,
//! that line would only repeat what the launcher says itself.
//!
//! # How it works
//! At the beginning of a line bytes are held back while they may still become that
//! line; everything else goes on at once.
//!
//! # Invariants
//! 1. Every byte outside that line is passed on unchanged and in order.
//! 2. QEMU never meets a closed standard error, even if ours is.
//!
//! # Cost
//! One thread.

use std::io::{Read, Write, stderr};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// The lines of a stream, without one kind.
struct Filter {
    /// How the line that is taken out begins.
    mark: Vec<u8>,
    /// The line so far, while it may become that one.
    held: Vec<u8>,
    state: State,
    taken: Sender<Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Undecided,
    Passing,
}

/// Passes on what `remarks`, the standard error of `program`, brings; the answer
/// yields the line about a signal, and is closed when the stream has ended.
pub fn pass_on(mut remarks: impl Read + Send + 'static, program: &Path) -> Receiver<Vec<u8>> {
    let (mut filter, taken) = Filter::new(program);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = remarks.read(&mut buffer) {
            write(&filter.feed(&buffer[..count]));
        }
        write(&filter.finish());
    });
    taken
}

/// Writes to standard error.
pub fn write(bytes: &[u8]) {
    // Where nobody reads our standard error, QEMU's words are lost as ours are.
    let _ = stderr().write_all(bytes);
}

impl Filter {
    /// What `program` says when a signal ends it is taken out.
    fn new(program: &Path) -> (Filter, Receiver<Vec<u8>>) {
        let name = program.file_name().unwrap_or_default().display();
        let mark = format!("{name}: terminating on signal ").into_bytes();
        let (taken, receiver) = mpsc::channel();
        (Filter { mark, held: Vec::new(), state: State::Undecided, taken }, receiver)
    }

    /// Takes the next bytes; answers what is to be passed on now.
    fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut passed = Vec::new();
        for byte in bytes.iter().copied() {
            self.held.push(byte);
            let is_end = byte == b'\n';
            let is_taken = self.state == State::Undecided && self.held.starts_with(&self.mark);
            if is_taken && is_end {
                self.take();
            } else if !is_taken && (self.state == State::Passing || !self.mark.starts_with(&self.held)) {
                passed.append(&mut self.held);
                self.state = if is_end { State::Undecided } else { State::Passing };
            }
        }
        passed
    }

    /// The stream has ended: answers what is left to pass on.
    fn finish(&mut self) -> Vec<u8> {
        if self.held.starts_with(&self.mark) {
            self.take();
        }
        std::mem::take(&mut self.held)
    }

    fn take(&mut self) {
        // A caller that listens no more has said all it had to say.
        let _ = self.taken.send(std::mem::take(&mut self.held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is passed on and what is taken out when `text` comes in pieces of `size` bytes.
    fn parts(text: &str, size: usize) -> (String, String) {
        let (mut filter, taken) = Filter::new(Path::new("/usr/bin/qemu"));
        let mut passed: Vec<u8> = text.as_bytes().chunks(size).flat_map(|piece| filter.feed(piece)).collect();
        passed.extend(filter.finish());
        let taken: Vec<u8> = taken.try_iter().flatten().collect();
        (String::from_utf8(passed).unwrap(), String::from_utf8(taken).unwrap())
    }

    #[test]
    fn the_line_about_a_signal_is_taken_out() {
        for line in ["15 from pid 12 (target/debug/qemu)", "15 from pid 12", "2"] {
            let line = format!("qemu: terminating on signal {line}");
            for size in [1, 7, 1000] {
                let text = format!("qemu: a\n{line}\nb");
                assert_eq!(parts(&text, size), ("qemu: a\nb".into(), format!("{line}\n")));
                assert_eq!(parts(&line, size), (String::new(), line.clone()));
            }
        }
    }

    #[test]
    fn every_other_line_stays_as_it_is() {
        for text in [
            "qemu: terminated\n",
            "other: terminating on signal 15 from pid 12\n",
            "x qemu: terminating on signal 15 from pid 12\n",
            "\n\nqemu: \n\tqemu",
            "qemu: terminating on",
        ] {
            for size in [1, 7, 1000] {
                assert_eq!(parts(text, size), (text.to_owned(), String::new()));
            }
        }
    }

    #[test]
    fn a_question_without_an_end_of_line_goes_on_at_once() {
        for text in ["password? ", "a\nqemu: x", "a\nquestion"] {
            let (mut filter, _taken) = Filter::new(Path::new("qemu"));
            assert_eq!(filter.feed(text.as_bytes()), text.as_bytes());
        }
    }
}
