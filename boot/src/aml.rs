//! The one thing boot needs from AML, the firmware's byte code.
//!
//! # What it is
//! A search for the sleep package `\_S5`, whose numbers power the machine off.
//!
//! # How it works
//! The definition always has the same bytes: NameOp, an optional root prefix, `_S5_`, PackageOp, a package length,
//! the element count, then constants. Every part is checked, so a chance match of the four letters is passed over.
//!
//! # Invariants
//! 1. Any input at all gives `Some` of two values of at most 7 (the width of SLP_TYP), or `None`; none panics.
//!
//! # Cost
//! One pass over the table.

/// The sleep types to write to the two PM1 control registers for state S5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepType {
    /// For PM1a.
    pub a: u8,
    /// For PM1b.
    pub b: u8,
}

const NAME_OP: u8 = 0x08;
const ROOT_PREFIX: u8 = b'\\';
const PACKAGE_OP: u8 = 0x12;
const ZERO_OP: u8 = 0x00;
const ONE_OP: u8 = 0x01;
const BYTE_PREFIX: u8 = 0x0a;
const WORD_PREFIX: u8 = 0x0b;
const DWORD_PREFIX: u8 = 0x0c;
const LARGEST_SLEEP_TYPE: u32 = 7;

/// Finds the definition of `\_S5` in a table's byte code.
pub fn find_s5(code: &[u8]) -> Option<SleepType> {
    let name = b"_S5_";
    code.windows(name.len()).enumerate().filter(|(_, window)| *window == name).find_map(|(at, _)| {
        let named = matches!(code[..at], [.., NAME_OP] | [.., NAME_OP, ROOT_PREFIX]);
        named.then(|| package(&code[at + name.len()..])).flatten()
    })
}

/// Reads the first two elements of the package that starts `code`.
fn package(code: &[u8]) -> Option<SleepType> {
    let (&PACKAGE_OP, code) = code.split_first()? else {
        return None;
    };
    let (&lead, _) = code.split_first()?;
    // The two top bits count the bytes that follow the first one of the length.
    let length_bytes = 1 + usize::from(lead >> 6);
    let mut length = usize::from(lead & if length_bytes == 1 { 0x3f } else { 0x0f });
    for (i, &byte) in code.get(1..length_bytes)?.iter().enumerate() {
        length |= usize::from(byte) << (4 + 8 * i);
    }
    let body = code.get(length_bytes..length)?;
    let (&elements, body) = body.split_first()?;
    if elements == 0 {
        return None;
    }
    let (a, body) = constant(body)?;
    // Some firmware gives one element only; it then holds for both registers.
    let b = if elements == 1 { a } else { constant(body)?.0 };
    Some(SleepType { a, b })
}

/// Reads one integer constant that fits a sleep type.
fn constant(code: &[u8]) -> Option<(u8, &[u8])> {
    let (&op, rest) = code.split_first()?;
    let width = match op {
        ZERO_OP => return Some((0, rest)),
        ONE_OP => return Some((1, rest)),
        BYTE_PREFIX => 1,
        WORD_PREFIX => 2,
        DWORD_PREFIX => 4,
        _ => return None,
    };
    let mut bytes = [0; 4];
    bytes[..width].copy_from_slice(rest.get(..width)?);
    let value = u32::from_le_bytes(bytes);
    (value <= LARGEST_SLEEP_TYPE).then_some((value as u8, &rest[width..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_as_zero_ops() {
        let code = b"junk\x08_S5_\x12\x06\x04\x00\x00\x00\x00more";
        assert_eq!(find_s5(code), Some(SleepType { a: 0, b: 0 }));
    }

    #[test]
    fn constants_with_prefixes_and_a_root_prefix() {
        let code = b"\x08\\_S5_\x12\x08\x04\x0a\x05\x0b\x07\x00\x00\x00";
        assert_eq!(find_s5(code), Some(SleepType { a: 5, b: 7 }));
    }

    #[test]
    fn a_long_length_and_a_single_element() {
        let code = b"\x08_S5_\x12\x45\x00\x01\x0a\x05\x00\x00";
        assert_eq!(find_s5(code), Some(SleepType { a: 5, b: 5 }));
    }

    #[test]
    fn a_mere_mention_is_passed_over() {
        let code = b"\x70_S5_\x12\x06\x04\x0a\x03\x01\x00\x08_S5_\x12\x06\x04\x01\x0a\x02\x00\x00";
        assert_eq!(find_s5(code), Some(SleepType { a: 1, b: 2 }));
    }

    #[test]
    fn wrong_definitions_are_refused() {
        let wrong: [&[u8]; 8] = [
            b"",
            b"\x08_S5_",
            b"\x08_S5_\x12",
            b"\x08_S5_\x11\x06\x04\x00\x00\x00\x00",
            b"\x08_S5_\x12\x06\x00\x00\x00\x00\x00",
            b"\x08_S5_\x12\x3f\x04\x00\x00\x00\x00",
            b"\x08_S5_\x12\x06\x04\x0a\x08\x00\x00\x00",
            b"\x08_S5_\x12\xff\xff\xff\xff",
        ];
        for code in wrong {
            assert_eq!(find_s5(code), None, "{code:x?}");
        }
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_harmless() {
        let code = b"\x08\\_S5_\x12\x08\x04\x0a\x05\x0b\x07\x00\x00\x00";
        for end in 0..code.len() {
            let _ = find_s5(&code[..end]);
            for value in 0..=255 {
                let mut changed = *code;
                changed[end] = value;
                if let Some(found) = find_s5(&changed) {
                    assert!(found.a <= 7 && found.b <= 7);
                }
            }
        }
    }
}
