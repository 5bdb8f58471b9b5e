//! The serial console.
//!
//! # What it is
//! COM1 behind a lock that keeps interrupts off, and the `print!` and `println!` that write to it.
//! Lines end in LF alone.
//!
//! # How it works
//! The UART's line status is read before bytes are handed over, so none is lost however slow the other side is.
//! One call of `println!` is one hold of the lock: lines of different CPUs never mix.
//!
//! # Invariants
//! 1. The port is touched under the lock only, but for a panic, which breaks the lock after it has stopped the others.
//!
//! # Cost
//! A port write per byte and a status read per 16, with interrupts off.
//! Usable in any context that does not hold the lock already; never from inside a `Display` that prints.

use core::fmt::{self, Write};

use uart_16550::backend::PioBackend;
use uart_16550::{BaudRate, Config, Uart16550};

use crate::spin::SpinIrq;

/// The port of COM1.
const COM1: u16 = 0x3f8;

/// The serial port and where the output stands.
pub struct Console {
    uart: Uart16550<PioBackend>,
    /// Whether a device answered; without one, output is dropped.
    present: bool,
    at_line_start: bool,
}

static CONSOLE: SpinIrq<Console> = SpinIrq::new(Console { uart: com1(), present: false, at_line_start: true });

const fn com1() -> Uart16550<PioBackend> {
    // SAFETY: COM1's eight ports belong to this module (invariant 1).
    match unsafe { Uart16550::new_port(COM1) } {
        Ok(uart) => uart,
        Err(_) => panic!("the port of COM1 is valid"),
    }
}

/// Sets up the port; without a device there, output is dropped from now on.
pub fn init() {
    let mut console = CONSOLE.lock();
    let config = Config { baud_rate: BaudRate::Baud115200, ..Config::DEFAULT };
    console.present = console.uart.init(config).is_ok();
    drop(console);
    fresh_line();
}

/// Waits until everything written has left the machine.
pub fn flush() {
    use uart_16550::spec::registers::LSR;
    let mut console = CONSOLE.lock();
    while console.present && !console.uart.lsr().contains(LSR::TRANSMITTER_EMPTY) {
        core::hint::spin_loop();
    }
}

/// Writes what `print!` formatted.
#[doc(hidden)]
pub fn print(arguments: fmt::Arguments<'_>) {
    // The console itself cannot fail; a `Display` that does has printed what it could.
    let _ = CONSOLE.lock().write_fmt(arguments);
}

/// Ends a line that somebody left unfinished.
pub fn fresh_line() {
    let mut console = CONSOLE.lock();
    if !console.at_line_start {
        let _ = console.write_str("\n");
    }
}

/// Takes the lock away from whoever holds it.
///
/// Interrupts stay as they are.
///
/// # Safety
/// - The holder, if there is one, never runs again: it is this CPU, in a panic that does not return, or a CPU that has
///   been stopped.
pub unsafe fn break_lock() {
    // SAFETY: the holder never touches the console again (caller), so this CPU may give up the lock in its place.
    unsafe { CONSOLE.raw().abandon() };
}

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.present {
            self.uart.send_bytes_exact(text.as_bytes());
        }
        if let Some(last) = text.bytes().last() {
            self.at_line_start = last == b'\n';
        }
        Ok(())
    }
}

/// Prints to the console.
#[macro_export]
macro_rules! print {
    ($($argument:tt)*) => { $crate::console::print(format_args!($($argument)*)) };
}

/// Prints a line to the console.
#[macro_export]
macro_rules! println {
    () => { $crate::console::print(format_args!("\n")) };
    ($($argument:tt)*) => { $crate::console::print(format_args!("{}\n", format_args!($($argument)*))) };
}
