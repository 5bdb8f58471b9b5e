//! What tests of more than one crate share: kernels booted under QEMU ([`boots`]), and a machine in a box ([`sim`]).

pub mod boots;
pub mod sim;
