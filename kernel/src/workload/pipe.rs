//! Two threads pass a message to and fro: `pipe`.
//!
//! # What it is
//! The same work as `perf bench sched pipe`: two pipes, a write and a read each way in every loop.
//!
//! # How it works
//! The message begins with the number of the loop, so each side knows what must come next, and what came instead.
//!
//! # Invariants
//! 1. A side that finds something wrong lets go of its ends, so the other one ends too.
//!
//! # Cost
//! Two writes, two reads and the switches between them a loop; a comparison of four bytes each time.

use alloc::format;
use alloc::string::String;
use alloc::vec;

use kernel::figures::{Measured, pipe_text};
use kernel::plan;
use sched_core::Mask256;

use super::crew::{Crew, Faults, check_memory};
use super::{Failure, Report};
use crate::pipe::{CAPACITY, Pipe, PipeReader, PipeWriter};
use crate::print;
use crate::thread::SpawnOptions;

/// How many bytes of a message carry the loop's number.
const STAMP_BYTES: usize = 4;

/// Runs the workload.
pub fn run(options: &plan::Pipe) -> Result<Report, Failure> {
    check_memory(2, 4 * CAPACITY as u64)?;
    let (there_reader, there_writer) = Pipe::pair(CAPACITY);
    let (back_reader, back_writer) = Pipe::pair(CAPACITY);
    let faults = Faults::new();
    let affinity = options.cpu.map_or(Mask256::ALL, Mask256::only);
    let spawn = |name| SpawnOptions { name, affinity, ..SpawnOptions::default() };
    let (loops, size) = (options.loops, options.size);
    let mut crew = Crew::new(2);
    let note = faults.clone();
    crew.add(spawn("ping"), move || {
        if let Err(what) = ping(loops, size, &there_writer, &back_reader) {
            note.add(what);
        }
    })?;
    let note = faults.clone();
    crew.add(spawn("pong"), move || {
        if let Err(what) = pong(loops, size, &back_writer, &there_reader) {
            note.add(what);
        }
    })?;
    let measured = Measured { nanos: crew.time(), ops: loops };
    match faults.first() {
        Some(what) => Err(Failure::Fault(measured.nanos, what)),
        None => {
            print!("{}", pipe_text(options, measured));
            Ok(Report { measured, worst_share: None })
        }
    }
}

fn ping(loops: u64, size: usize, out: &PipeWriter, back: &PipeReader) -> Result<(), String> {
    let mut message = vec![0; size];
    for number in 0..loops {
        write(out, &mut message, number)?;
        read(back, &mut message, number)?;
    }
    Ok(())
}

fn pong(loops: u64, size: usize, out: &PipeWriter, back: &PipeReader) -> Result<(), String> {
    let mut message = vec![0; size];
    for number in 0..loops {
        read(back, &mut message, number)?;
        write(out, &mut message, number)?;
    }
    Ok(())
}

fn write(out: &PipeWriter, message: &mut [u8], number: u64) -> Result<(), String> {
    match message.first_chunk_mut() {
        Some(head) => *head = stamp(number),
        None => message[0] = number as u8,
    }
    match out.write(message) {
        Ok(written) if written == message.len() => Ok(()),
        Ok(written) => Err(format!("loop {number}: {written} of {} bytes were written", message.len())),
        Err(broken) => Err(format!("loop {number}: {broken}")),
    }
}

fn read(back: &PipeReader, message: &mut [u8], number: u64) -> Result<(), String> {
    let mut have = 0;
    while have < message.len() {
        match back.read(&mut message[have..]) {
            Ok(0) => return Err(format!("loop {number}: the pipe ended after {have} of {} bytes", message.len())),
            Ok(more) => have += more,
            Err(broken) => return Err(format!("loop {number}: {broken}")),
        }
    }
    let right = match message.first_chunk() {
        Some(head) => u32::from_le_bytes(*head) == u32::from_le_bytes(stamp(number)),
        None => message[0] == number as u8,
    };
    if right {
        return Ok(());
    }
    let head = &message[..message.len().min(STAMP_BYTES)];
    Err(format!("loop {number}: the message begins with {head:02x?}, not with the loop's number"))
}

/// What a message of at least [`STAMP_BYTES`] begins with in loop `number`; a shorter one begins with the number's last byte.
///
/// Of a fixed size, so that the check costs two instructions and not a call.
fn stamp(number: u64) -> [u8; STAMP_BYTES] {
    (number as u32).to_le_bytes()
}
