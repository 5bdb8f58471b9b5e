#![no_std]
#![warn(missing_docs)]
#![allow(dead_code)]
#[cfg(test)]
extern crate std;
mod entity;
mod gate;
mod mask;
mod params;
mod platform;
mod policy;
mod queue;
mod scheduler { }
mod sync;
mod timeline;
mod token;
mod vtime;
mod weight;
pub use token::IrqOff;
