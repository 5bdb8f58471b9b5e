//! Pipes.
//!
//! # What it is
//! A bounded stream of bytes between threads: [`Pipe::pair`] makes its two ends, each of which can be cloned.
//!
//! # How it works
//! The bytes lie in a ring that starts small and doubles when it must, up to the pipe's capacity.
//! A reader takes what is there, or sleeps while nothing is.
//! A write goes in by pieces of at most [`PIPE_BUF`] bytes, each whole; the writer sleeps while there is no room for the
//! next piece.
//!
//! *Readers* are woken when bytes come into an empty pipe, one at a time: a reader that leaves bytes behind wakes the next.
//! *Writers* are woken when there is room for [`PIPE_BUF`] bytes, so a full pipe does not wake somebody for every few
//! bytes that leave it; a writer that leaves that much room wakes the next.
//! When the last end on one side goes, everybody on the other side is woken.
//!
//! # Invariants
//! 1. Bytes come out once each, in the order in which they went in.
//! 2. A piece of a write lies in the stream without bytes of others in between.
//! 3. If the pipe holds bytes and readers sleep, one has been woken that has not looked since; the same for room and writers.
//!
//! # Cost
//! A read or a write that need not sleep: one section of interrupts off, one lock, one copy; it wakes only if somebody sleeps.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use core::fmt;
use core::panic::Location;

use sched_core::SleepKind;

use crate::lock::{IrqLock, irq_off};
use crate::sched;
use crate::wait::{Place, WaitList, sleep_on};

/// What a pipe holds if nobody says otherwise.
pub const CAPACITY: usize = 65_536;
/// Writes up to this long are not mixed with others.
pub const PIPE_BUF: usize = 4096;
/// What a ring starts with.
const FIRST_RING: usize = 4096;

/// Makes pipes.
pub struct Pipe;

/// The end that reads.
#[derive(Debug)]
pub struct PipeReader(Arc<Stream>);

/// The end that writes.
#[derive(Debug)]
pub struct PipeWriter(Arc<Stream>);

/// Nobody is left to read what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// A stream of bytes with its sleepers.
struct Stream {
    state: IrqLock<State>,
}

struct State {
    ring: Ring,
    readers: Side,
    writers: Side,
}

/// The threads on one side.
struct Side {
    ends: usize,
    sleepers: WaitList,
}

/// The bytes that have been written and not read.
struct Ring {
    /// As many bytes as a power of two, or none yet.
    bytes: Box<[u8]>,
    read_at: usize,
    len: usize,
    limit: usize,
}

impl Pipe {
    /// A pipe that holds `capacity` bytes (at least one), by its two ends.
    pub fn pair(capacity: usize) -> (PipeReader, PipeWriter) {
        let side = || Side { ends: 1, sleepers: WaitList::new() };
        let ring = Ring { bytes: Box::default(), read_at: 0, len: 0, limit: capacity.max(1) };
        let stream = Arc::new(Stream { state: IrqLock::new(State { ring, readers: side(), writers: side() }) });
        (PipeReader(stream.clone()), PipeWriter(stream))
    }
}

impl PipeReader {
    /// Reads what is there into `out`, at least one byte and at most [`PIPE_BUF`]; 0 when all writers are gone and
    /// everything has been read.
    ///
    /// # Errors
    /// None; the type is that of [`PipeWriter::write`].
    #[track_caller]
    #[inline]
    pub fn read(&self, out: &mut [u8]) -> Result<usize, Broken> {
        self.read_as("bytes in a pipe", Location::caller(), out)
    }

    #[inline]
    pub(crate) fn read_as(
        &self,
        what: &'static str,
        at: &'static Location<'static>,
        out: &mut [u8],
    ) -> Result<usize, Broken> {
        // What is taken in one section is bounded, so interrupts are never off for long.
        let room = out.len().min(PIPE_BUF);
        Ok(self.0.take(&mut out[..room], Place { what, at }))
    }
}

impl PipeWriter {
    /// Writes all of `data`; sleeps while there is no room. Returns less if the readers go away in between.
    ///
    /// # Errors
    /// [`Broken`] if no reader is left and nothing was written.
    #[track_caller]
    #[inline]
    pub fn write(&self, data: &[u8]) -> Result<usize, Broken> {
        self.write_as("room in a pipe", Location::caller(), data)
    }

    #[inline]
    pub(crate) fn write_as(
        &self,
        what: &'static str,
        at: &'static Location<'static>,
        data: &[u8],
    ) -> Result<usize, Broken> {
        let mut written = 0;
        loop {
            match self.0.put(&data[written..], Place { what, at }) {
                Ok(piece) => written += piece,
                Err(Broken) if written == 0 => return Err(Broken),
                Err(Broken) => return Ok(written),
            }
            if written == data.len() {
                return Ok(written);
            }
        }
    }
}

impl Stream {
    fn take(&self, out: &mut [u8], place: Place) -> usize {
        if out.is_empty() {
            return 0;
        }
        sched::may_switch();
        irq_off(|irq| {
            loop {
                let mut state = self.state.lock(irq);
                if state.ring.len == 0 {
                    if state.writers.ends == 0 {
                        return 0;
                    }
                    sleep_on(irq, state, |state| &mut state.readers.sleepers, place, SleepKind::Interruptible);
                    continue;
                }
                let count = state.ring.pop(out);
                let woke_reader = state.ring.len != 0 && state.readers.sleepers.wake_first(irq);
                let woke_writer = state.ring.is_roomy() && state.writers.sleepers.wake_first(irq);
                drop(state);
                if woke_reader || woke_writer {
                    sched::preempt_here(irq);
                }
                return count;
            }
        })
    }

    /// Writes one piece of `data` and says how long it was.
    fn put(&self, data: &[u8], place: Place) -> Result<usize, Broken> {
        sched::may_switch();
        irq_off(|irq| {
            loop {
                let mut state = self.state.lock(irq);
                if state.readers.ends == 0 {
                    return Err(Broken);
                }
                let piece = data.len().min(PIPE_BUF).min(state.ring.limit);
                if state.ring.room() < piece {
                    sleep_on(irq, state, |state| &mut state.writers.sleepers, place, SleepKind::Interruptible);
                    continue;
                }
                let was_empty = state.ring.len == 0;
                state.ring.push(&data[..piece]);
                let woke_reader = was_empty && piece != 0 && state.readers.sleepers.wake_first(irq);
                let woke_writer = state.ring.is_roomy() && state.writers.sleepers.wake_first(irq);
                drop(state);
                if woke_reader || woke_writer {
                    sched::preempt_here(irq);
                }
                return Ok(piece);
            }
        })
    }

    /// An end more or less on one side; when none is left, the other side is woken.
    fn end_goes(&self, mine: fn(&mut State) -> &mut Side, other: fn(&mut State) -> &mut Side) {
        let woken = irq_off(|irq| {
            let mut state = self.state.lock(irq);
            mine(&mut state).ends -= 1;
            if mine(&mut state).ends == 0 { other(&mut state).sleepers.wake_all(irq) } else { 0 }
        });
        if woken != 0 {
            sched::preempt_check();
        }
    }
}

impl Ring {
    #[inline]
    fn room(&self) -> usize {
        self.limit - self.len
    }

    /// Whether there is room for the longest piece of a write.
    #[inline]
    fn is_roomy(&self) -> bool {
        self.room() >= PIPE_BUF.min(self.limit)
    }

    /// Puts `data` in, for which there is room.
    #[inline]
    fn push(&mut self, data: &[u8]) {
        if self.bytes.len() < self.len + data.len() {
            self.grow(self.len + data.len());
        }
        if data.is_empty() {
            return;
        }
        let at = (self.read_at + self.len) & (self.bytes.len() - 1);
        let first = data.len().min(self.bytes.len() - at);
        self.bytes[at..at + first].copy_from_slice(&data[..first]);
        if first < data.len() {
            self.bytes[..data.len() - first].copy_from_slice(&data[first..]);
        }
        self.len += data.len();
    }

    /// Takes as much as there is (not nothing) and `out` holds.
    #[inline]
    fn pop(&mut self, out: &mut [u8]) -> usize {
        let count = out.len().min(self.len);
        let first = count.min(self.bytes.len() - self.read_at);
        out[..first].copy_from_slice(&self.bytes[self.read_at..self.read_at + first]);
        if first < count {
            out[first..count].copy_from_slice(&self.bytes[..count - first]);
        }
        self.read_at = (self.read_at + count) & (self.bytes.len() - 1);
        self.len -= count;
        count
    }

    #[cold]
    fn grow(&mut self, need: usize) {
        let size = need.next_power_of_two().max(FIRST_RING.min(self.limit.next_power_of_two()));
        let mut bytes = vec![0; size].into_boxed_slice();
        let len = self.len;
        if len != 0 {
            self.pop(&mut bytes[..len]);
        }
        *self = Self { bytes, read_at: 0, len, limit: self.limit };
    }
}

impl Clone for PipeReader {
    fn clone(&self) -> Self {
        self.0.state.with(|state| state.readers.ends += 1);
        Self(self.0.clone())
    }
}

impl Clone for PipeWriter {
    fn clone(&self) -> Self {
        self.0.state.with(|state| state.writers.ends += 1);
        Self(self.0.clone())
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        self.0.end_goes(|state| &mut state.readers, |state| &mut state.writers);
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        self.0.end_goes(|state| &mut state.writers, |state| &mut state.readers);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream")
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody is left to read what is written")
    }
}

impl core::error::Error for Broken {}
