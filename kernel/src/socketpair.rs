//! Socket pairs.
//!
//! # What it is
//! [`SocketPair::new`]: two ends of a connection, each of which reads what the other writes; a stream of bytes each way.
//!
//! # How it works
//! Two pipes, one each way. How much may be on its way is what a local stream socket's buffer holds by default.
//! An end that is gone reads as end of file on the other side, and refuses what is written to it.
//!
//! # Invariants
//! 1. Those of [`crate::pipe`], each way.
//!
//! # Cost
//! That of a pipe.

use core::panic::Location;

use crate::pipe::{Broken, Pipe, PipeReader, PipeWriter};

/// How many bytes may be on their way, each way.
pub const BUFFER: usize = 212_992;

/// Makes connected sockets.
pub struct SocketPair;

/// One end of a connection.
#[derive(Clone, Debug)]
pub struct Socket {
    reader: PipeReader,
    writer: PipeWriter,
}

impl SocketPair {
    /// The two ends of a new connection.
    #[allow(clippy::new_ret_no_self)]
    pub fn new() -> (Socket, Socket) {
        let (there, from_here) = Pipe::pair(BUFFER);
        let (here, from_there) = Pipe::pair(BUFFER);
        (Socket { reader: here, writer: from_here }, Socket { reader: there, writer: from_there })
    }
}

impl Socket {
    /// Reads what has come, at least one byte; 0 when the other end is gone and everything has been read.
    ///
    /// # Errors
    /// None; the type is that of [`write`](Self::write).
    #[track_caller]
    pub fn read(&self, out: &mut [u8]) -> Result<usize, Broken> {
        self.reader.read_as("bytes from a socket", Location::caller(), out)
    }

    /// Writes all of `data`; sleeps while there is no room. Returns less if the other end goes away in between.
    ///
    /// # Errors
    /// [`Broken`] if the other end is gone and nothing was written.
    #[track_caller]
    pub fn write(&self, data: &[u8]) -> Result<usize, Broken> {
        self.writer.write_as("room in a socket", Location::caller(), data)
    }
}
