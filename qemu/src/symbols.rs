//! Function names for the kernel's backtrace, written into the linked kernel.
//!
//! # What it is
//! [`write_table`] fills the section that the kernel reserves for its symbol table.
//!
//! # How it works
//! The kernel's linker script sets aside a read-only section `.ksyms` of fixed
//! size, zero at link time.
//! After linking, the functions of the ELF file's own symbol table are put there:
//!
//! | offset | what |
//! |---|---|
//! | 0 | magic `KSYMTAB1` |
//! | 8 | `u32` number of entries |
//! | 12 | `u32` offset of the names from the start of the section |
//! | 16 | entries: `u64` address, `u32` offset of the name among the names, `u32` its length |
//! | | names: UTF-8, demangled, without terminators |
//!
//! Numbers are little-endian; entries are sorted by address.
//! If the names do not fit, they are cut, the longest first.
//!
//! # Invariants
//! 1. Addresses rise strictly, so a reader may search by halves.
//! 2. Nothing but the section's bytes is changed.
//!
//! # Cost
//! A few milliseconds for a thousand functions.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context, Result};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use crate::outcome::failed;

/// The section that the kernel's linker script reserves.
pub const SECTION: &str = ".ksyms";

const MAGIC: &[u8; 8] = b"KSYMTAB1";
const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
/// Lengths to which names are cut until they fit.
const NAME_LENGTHS: [usize; 6] = [usize::MAX, 256, 128, 64, 32, 16];

/// Writes the table into the ELF file `elf`, and answers how many functions it names.
pub fn write_table(elf: &mut [u8]) -> Result<usize> {
    let (range, functions) = {
        let file = object::File::parse(&*elf).context("the kernel is not an ELF file")?;
        (reserved(&file)?, functions(&file))
    };
    let room = elf.get_mut(range).context("the section .ksyms lies outside the file")?;
    let table = NAME_LENGTHS
        .iter()
        .map(|longest| encode(&functions, *longest))
        .find(|table| table.len() <= room.len())
        .ok_or_else(|| {
            failed(format!(
                "{} functions do not fit into the {} bytes of {SECTION}: enlarge it in kernel/linker.ld",
                functions.len(),
                room.len()
            ))
        })?;
    room.fill(0);
    room[..table.len()].copy_from_slice(&table);
    Ok(functions.len())
}

/// Where the section lies in the file.
fn reserved(file: &object::File<'_>) -> Result<Range<usize>> {
    let section = file
        .section_by_name(SECTION)
        .with_context(|| format!("the kernel has no section {SECTION}: its linker script must reserve one"))?;
    let (offset, size) = section
        .file_range()
        .filter(|(_, size)| *size > 0)
        .with_context(|| format!("the section {SECTION} has no bytes in the file"))?;
    let start = usize::try_from(offset)?;
    Ok(start..start + usize::try_from(size)?)
}

/// Functions by address; of several names for one address the first is kept.
fn functions(file: &object::File<'_>) -> BTreeMap<u64, String> {
    let mut functions = BTreeMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
        if let Ok(name) = symbol.name()
            && !name.is_empty()
            && symbol.is_definition()
        {
            let name = format!("{:#}", rustc_demangle::demangle(name));
            functions.entry(symbol.address()).or_insert(name);
        }
    }
    functions
}

fn encode(functions: &BTreeMap<u64, String>, longest: usize) -> Vec<u8> {
    let names_at = HEADER_BYTES + functions.len() * ENTRY_BYTES;
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
    let mut table = Vec::new();
    table.extend_from_slice(MAGIC);
    table.extend_from_slice(&number(functions.len()));
    table.extend_from_slice(&number(names_at));
    let mut names = Vec::new();
    for (address, name) in functions {
        let name = cut(name, longest);
        table.extend_from_slice(&address.to_le_bytes());
        table.extend_from_slice(&number(names.len()));
        table.extend_from_slice(&number(name.len()));
        names.extend_from_slice(name.as_bytes());
    }
    table.extend_from_slice(&names);
    table
}

/// At most `longest` bytes of `name`, in whole characters.
fn cut(name: &str, longest: usize) -> &str {
    let end = (0..=longest.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel does: the name of the last function that begins at or below `address`.
    fn look_up(table: &[u8], address: u64) -> Option<String> {
        let word = |at: usize| u32::from_le_bytes(table[at..at + 4].try_into().unwrap()) as usize;
        assert_eq!(&table[..8], MAGIC);
        let (count, names) = (word(8), word(12));
        let entry = (0..count)
            .map(|index| HEADER_BYTES + index * ENTRY_BYTES)
            .take_while(|at| u64::from_le_bytes(table[*at..at + 8].try_into().unwrap()) <= address)
            .last()?;
        let name = names + word(entry + 8);
        Some(String::from_utf8(table[name..name + word(entry + 12)].to_vec()).unwrap())
    }

    fn some() -> BTreeMap<u64, String> {
        [(0x10, "entry"), (0x30, "größe"), (0x20, "main::run")].map(|(address, name)| (address, name.to_owned())).into()
    }

    #[test]
    fn a_reader_finds_the_function_of_an_address() {
        let table = encode(&some(), usize::MAX);
        assert_eq!(look_up(&table, 0x0f), None);
        assert_eq!(look_up(&table, 0x10).unwrap(), "entry");
        assert_eq!(look_up(&table, 0x2f).unwrap(), "main::run");
        assert_eq!(look_up(&table, u64::MAX).unwrap(), "größe");
    }

    #[test]
    fn names_are_cut_between_characters() {
        let table = encode(&some(), 3);
        assert_eq!(look_up(&table, 0x20).unwrap(), "mai");
        assert_eq!(look_up(&table, 0x30).unwrap(), "gr");
    }

    #[test]
    fn this_very_program_has_functions_but_no_room_for_a_table() {
        let mut elf = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let file = object::File::parse(&*elf).unwrap();
        let names: Vec<_> = functions(&file).into_values().collect();
        assert!(names.iter().any(|name| name == "qemu::symbols::write_table"));
        let error = write_table(&mut elf).unwrap_err().to_string();
        assert!(error.contains(SECTION), "{error}");
    }
}
