//! Groups of senders and receivers: `messaging`.
//!
//! # What it is
//! The same work as `perf bench sched messaging` and hackbench: in each group every sender sends every receiver so many
//! messages.
//!
//! # How it works
//! Each receiver has a pipe or a socket pair of its own, into which all senders of its group write.
//! A sender goes round the receivers; a receiver reads messages whole until it has what all senders owe it.
//! Afterwards nothing must be left on the way.
//!
//! # Invariants
//! 1. Every byte sent is received: a receiver that gets less says so, and what is left over is found at the end.
//! 2. A receiver gives up only when all its senders are gone, so no sender waits for it.
//!
//! # Cost
//! A write and a read a message, and the switches between them. Memory: at worst everything a ring can hold, per receiver.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use kernel::figures::{Measured, messaging_text};
use kernel::plan::{Messaging, Via};

use super::crew::{Crew, Faults, check_memory};
use super::{Failure, Report};
use crate::pipe::{self, Broken, Pipe, PipeReader, PipeWriter};
use crate::print;
use crate::socketpair::{self, Socket, SocketPair};
use crate::thread::SpawnOptions;

/// What a channel takes however little goes through it.
const LEAST_CHANNEL_BYTES: u64 = 8192;

/// An end to read from.
trait Source: Clone + Send + 'static {
    fn read(&self, out: &mut [u8]) -> Result<usize, Broken>;
}

/// An end to write to.
trait Sink: Send + Sync + 'static {
    fn write(&self, data: &[u8]) -> Result<usize, Broken>;
}

impl Source for PipeReader {
    #[inline]
    fn read(&self, out: &mut [u8]) -> Result<usize, Broken> {
        self.read(out)
    }
}

impl Sink for PipeWriter {
    #[inline]
    fn write(&self, data: &[u8]) -> Result<usize, Broken> {
        self.write(data)
    }
}

impl Source for Socket {
    #[inline]
    fn read(&self, out: &mut [u8]) -> Result<usize, Broken> {
        self.read(out)
    }
}

impl Sink for Socket {
    #[inline]
    fn write(&self, data: &[u8]) -> Result<usize, Broken> {
        self.write(data)
    }
}

/// Runs the workload.
pub fn run(options: &Messaging) -> Result<Report, Failure> {
    match options.via {
        Via::Pipe => run_over(options, pipe::CAPACITY, || Pipe::pair(pipe::CAPACITY)),
        Via::Socket => run_over(options, socketpair::BUFFER, SocketPair::new),
    }
}

fn run_over<R: Source, W: Sink>(
    options: &Messaging,
    capacity: usize,
    channel: fn() -> (R, W),
) -> Result<Report, Failure> {
    let &Messaging { groups, fds, loops, size, .. } = options;
    let due = (fds as u64).saturating_mul(loops);
    check_memory(options.threads(), memory_bytes(options, capacity))?;
    let faults = Faults::new();
    let mut sources = Vec::with_capacity(groups * fds);
    let mut crew = Crew::new(options.threads());
    for group in 0..groups {
        let mut sinks = Vec::with_capacity(fds);
        for receiver in 0..fds {
            let (source, sink) = channel();
            sinks.push(sink);
            sources.push(source.clone());
            let name = format!("recv-{group}/{receiver}");
            let note = faults.clone();
            crew.add(SpawnOptions { name: &name, ..SpawnOptions::default() }, move || {
                if let Err(what) = receive(&source, due, size) {
                    note.add(format!("group {group}, receiver {receiver}: {what}"));
                }
            })?;
        }
        let sinks: Arc<[W]> = sinks.into();
        for sender in 0..fds {
            let name = format!("send-{group}/{sender}");
            let (note, sinks) = (faults.clone(), sinks.clone());
            crew.add(SpawnOptions { name: &name, ..SpawnOptions::default() }, move || {
                if let Err(what) = send(&sinks, loops, size) {
                    note.add(format!("group {group}, sender {sender}: {what}"));
                }
            })?;
        }
    }
    let measured = Measured { nanos: crew.time(), ops: options.messages() };
    // All senders are gone, so a source that has been read to its end says so.
    for source in &sources {
        if !matches!(source.read(&mut [0]), Ok(0)) {
            faults.add(String::from("bytes are left that nobody was to receive"));
        }
    }
    match faults.first() {
        Some(what) => Err(Failure::Fault(measured.nanos, what)),
        None => {
            print!("{}", messaging_text(options, measured));
            Ok(Report { measured, worst_share: None })
        }
    }
}

/// What the channels and messages take at worst.
fn memory_bytes(options: &Messaging, capacity: usize) -> u64 {
    let size = options.size as u64;
    let all_for_one = (options.fds as u64).saturating_mul(options.loops).saturating_mul(size);
    // A ring is a power of two of bytes, and while it grows the one of half its size is still there.
    let ring = all_for_one.min(capacity as u64).next_power_of_two();
    let channels = options.groups as u64 * options.fds as u64;
    channels * (LEAST_CHANNEL_BYTES + ring + ring / 2) + options.threads() as u64 * size
}

fn send<W: Sink>(sinks: &[W], loops: u64, size: usize) -> Result<(), String> {
    let message = vec![0; size];
    for number in 0..loops {
        for (receiver, sink) in sinks.iter().enumerate() {
            match sink.write(&message) {
                Ok(written) if written == size => {}
                Ok(written) => {
                    return Err(format!("message {number} to receiver {receiver}: {written} of {size} bytes"));
                }
                Err(broken) => return Err(format!("message {number} to receiver {receiver}: {broken}")),
            }
        }
    }
    Ok(())
}

fn receive<R: Source>(source: &R, due: u64, size: usize) -> Result<(), String> {
    let mut message = vec![0; size];
    for number in 0..due {
        let mut have = 0;
        while have < size {
            match source.read(&mut message[have..]) {
                Ok(0) => return Err(format!("all senders are gone after {number} of {due} messages and {have} bytes")),
                Ok(more) => have += more,
                Err(broken) => return Err(format!("message {number}: {broken}")),
            }
        }
    }
    Ok(())
}
