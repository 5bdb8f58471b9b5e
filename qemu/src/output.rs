//! Standard output, written by a thread of its own.
//!
//! # What it is
//! [`Output`] takes bytes and never blocks, however slowly they are read.
//!
//! # How it works
//! A thread writes what comes through a short channel.
//! What the channel has no room for stays in [`Output`] until it has;
//! whoever feeds it looks at [`Output::flow`] first and reads no more from the guest
//! meanwhile, so the guest waits for the reader and the watcher does not.
//!
//! # Invariants
//! 1. No function here waits for the reader, except [`Output::settle`], which asks
//!    again and again whether to give up.
//! 2. Bytes are written in the order in which they came, none twice and none left out.
//! 3. Memory is bounded as long as [`Output::flow`] is obeyed.
//!
//! # Cost
//! One thread, one copy of each byte.

use std::io::{self, ErrorKind, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError};
use std::thread;
use std::time::Duration;

/// How many pieces may wait for the thread.
const PIECES: usize = 64;
/// How often giving up is considered while the reader is awaited.
const LOOK: Duration = Duration::from_millis(20);

/// Bytes on their way to a reader.
pub struct Output {
    /// Nothing once everything was handed over.
    pieces: Option<SyncSender<Vec<u8>>>,
    /// What the channel had no room for.
    waiting: Vec<u8>,
    ended: Receiver<io::Result<()>>,
}

/// Whether more may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// There is room.
    Free,
    /// The reader is behind: come back later.
    Behind,
    /// Nobody reads any more.
    Gone,
}

/// How waiting for the reader ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Everything is written.
    Written,
    /// Nobody reads any more.
    Gone,
    /// The reader is too slow.
    GivenUp,
}

impl Output {
    /// Bytes that a new thread writes to `out`.
    pub fn new<W: Write + Send + 'static>(mut out: W) -> Output {
        let (pieces, received) = mpsc::sync_channel::<Vec<u8>>(PIECES);
        let (end, ended) = mpsc::channel();
        thread::spawn(move || {
            let result = received.into_iter().try_for_each(|piece| {
                out.write_all(&piece)?;
                out.flush()
            });
            // Nobody waits for it when the program ends first.
            let _ = end.send(result);
        });
        Output { pieces: Some(pieces), waiting: Vec::new(), ended }
    }

    /// Hands on what waits, if there is room, and says how it goes.
    pub fn flow(&mut self) -> Flow {
        let Some(pieces) = &self.pieces else { return Flow::Gone };
        if !matches!(self.ended.try_recv(), Err(TryRecvError::Empty)) {
            return Flow::Gone;
        }
        if self.waiting.is_empty() {
            return Flow::Free;
        }
        match pieces.try_send(std::mem::take(&mut self.waiting)) {
            Ok(()) => Flow::Free,
            Err(TrySendError::Full(piece)) => {
                self.waiting = piece;
                Flow::Behind
            }
            Err(TrySendError::Disconnected(_)) => Flow::Gone,
        }
    }

    /// Waits until everything is written, or until `gives_up`; may be called again, but nothing
    /// can be written afterwards.
    pub fn settle(&mut self, mut gives_up: impl FnMut() -> bool) -> Settled {
        while self.pieces.is_some() {
            match self.flow() {
                Flow::Free => self.pieces = None,
                Flow::Gone => return Settled::Gone,
                Flow::Behind if gives_up() => return Settled::GivenUp,
                Flow::Behind => thread::sleep(LOOK),
            }
        }
        loop {
            match self.ended.recv_timeout(LOOK) {
                Ok(Ok(())) => return Settled::Written,
                Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Settled::Gone,
                Err(RecvTimeoutError::Timeout) if gives_up() => return Settled::GivenUp,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Hands on what there is room for; an error only if nobody reads any more.
    fn flush(&mut self) -> io::Result<()> {
        match self.flow() {
            Flow::Free | Flow::Behind => Ok(()),
            Flow::Gone => Err(ErrorKind::BrokenPipe.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_reader_that_stalls_blocks_nobody_and_loses_nothing() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut output = Output::new(writer);
        let mut written = Vec::new();
        for number in 0_u32.. {
            let piece = format!("{number:4096}\n");
            output.write_all(piece.as_bytes()).unwrap();
            written.extend_from_slice(piece.as_bytes());
            output.flush().unwrap();
            if output.flow() == Flow::Behind {
                break;
            }
        }
        let mut looks = 0;
        let settled = output.settle(|| {
            looks += 1;
            looks == 3
        });
        assert_eq!(settled, Settled::GivenUp);

        let read = thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read)
        });
        assert_eq!(output.settle(|| false), Settled::Written);
        assert!(read.join().unwrap().unwrap() == written);
    }

    #[test]
    fn a_reader_that_is_gone_is_noticed() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut output = Output::new(writer);
        output.write_all(b"x").unwrap();
        assert_eq!(output.settle(|| false), Settled::Gone);
    }
}
