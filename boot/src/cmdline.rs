//! The kernel's command line.
//!
//! # What it is
//! Splits a line into parameters by Linux's conventions, and reads the kinds of values they have.
//!
//! # How it works
//! - Blanks separate parameters; `key=value` splits at the first `=` that is not the first byte.
//! - Double quotes protect blanks, around the value or around the whole parameter, and are taken off there.
//!   A quote that is never closed reaches to the end of the line.
//! - In keys `-` and `_` are the same. A parameter `--` ends what is ours.
//! - Parameters come in order; whoever lets the last one win has Linux's rule.
//!
//! # Invariants
//! 1. Any bytes at all can be split and read; nothing panics, nothing is copied.
//! 2. Keys are never empty.
//! 3. A number is read whole or refused; it never wraps.
//!
//! # Cost
//! One pass over the line.

use core::fmt;
use core::ops::RangeInclusive;

/// Splits a command line.
///
/// ```
/// use boot::cmdline::{params, parse_unsigned};
/// let mut cpus = 0..=8;
/// for param in params(b"quiet max-cpus=3 -- init=/sbin/init") {
///     if param.key.is("max_cpus") {
///         cpus = 0..=parse_unsigned(param.value.unwrap_or_default(), 1..=8).unwrap();
///     }
/// }
/// assert_eq!(cpus, 0..=3);
/// ```
pub fn params(line: &[u8]) -> Params<'_> {
    Params { rest: line }
}

/// The parameters of a line, in order.
#[derive(Clone, Debug)]
pub struct Params<'a> {
    rest: &'a [u8],
}

/// One parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param<'a> {
    /// What stands before `=`, or all of it.
    pub key: Key<'a>,
    /// What stands after `=`, without protecting quotes.
    pub value: Option<&'a [u8]>,
}

/// A parameter's name as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a>(pub &'a [u8]);

/// Bytes of a command line, to print: what is not printable ASCII comes as an escape.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(pub &'a [u8]);

/// Why a value was refused; prints as what is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueError {
    /// A boolean is accepted.
    NotBoolean,
    /// A decimal number in a range is accepted.
    NotInRange {
        /// The least one.
        min: u64,
        /// The greatest one.
        max: u64,
    },
    /// One of some words is accepted.
    NotOneOf(&'static [&'static str]),
}

impl<'a> Iterator for Params<'a> {
    type Item = Param<'a>;

    fn next(&mut self) -> Option<Param<'a>> {
        loop {
            let param = Param::from_token(self.next_token()?);
            if param.value.is_none() && param.key.0 == b"--" {
                self.rest = b"";
                return None;
            }
            // A pair of quotes around nothing has no key and is passed over.
            if !param.key.0.is_empty() {
                return Some(param);
            }
        }
    }
}

impl<'a> Params<'a> {
    /// Takes what lies between blanks off the line.
    fn next_token(&mut self) -> Option<&'a [u8]> {
        let blanks = self.rest.iter().take_while(|&&byte| is_blank(byte)).count();
        let line = &self.rest[blanks..];
        let mut is_quoted = false;
        let end = line
            .iter()
            .position(|&byte| {
                is_quoted ^= byte == b'"';
                is_blank(byte) && !is_quoted
            })
            .unwrap_or(line.len());
        let (token, rest) = line.split_at(end);
        self.rest = rest;
        (!token.is_empty()).then_some(token)
    }
}

impl<'a> Param<'a> {
    fn from_token(token: &'a [u8]) -> Self {
        let token = unquoted(token);
        match token.iter().skip(1).position(|&byte| byte == b'=') {
            // `skip` has taken one byte: the key ends one byte later.
            Some(at) => Self { key: Key(&token[..=at]), value: Some(unquoted(&token[at + 2..])) },
            None => Self { key: Key(token), value: None },
        }
    }
}

impl<'a> Key<'a> {
    /// Whether this is the key `name`, `-` and `_` being the same.
    pub fn is(&self, name: &str) -> bool {
        self.0.len() == name.len() && self.strip_prefix(name).is_some()
    }

    /// What follows `prefix`, if the key begins with it, `-` and `_` being the same.
    pub fn strip_prefix(&self, prefix: &str) -> Option<Key<'a>> {
        let plain = |byte: u8| if byte == b'-' { b'_' } else { byte };
        let (head, tail) = self.0.split_at_checked(prefix.len())?;
        head.iter().zip(prefix.bytes()).all(|(&a, b)| plain(a) == plain(b)).then_some(Key(tail))
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Text(self.0).fmt(f)
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            match byte {
                b' '..=b'~' => write!(f, "{}", char::from(byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBoolean => write!(f, "a boolean is accepted: 1, y, t, e, on or 0, n, f, d, off"),
            Self::NotInRange { min, max } => {
                write!(f, "a decimal number from {min} to {max} is accepted")
            }
            Self::NotOneOf(words) => {
                for (i, word) in words.iter().enumerate() {
                    let before = match i {
                        0 => "",
                        _ if i + 1 == words.len() => " or ",
                        _ => ", ",
                    };
                    write!(f, "{before}{word}")?;
                }
                write!(f, " is accepted")
            }
        }
    }
}

/// Reads a boolean as Linux does: by the first character, and after an `o` by the second.
pub fn parse_bool(value: &[u8]) -> Result<bool, ValueError> {
    match value {
        [b'1' | b'y' | b'Y' | b't' | b'T' | b'e' | b'E', ..] => Ok(true),
        [b'0' | b'n' | b'N' | b'f' | b'F' | b'd' | b'D', ..] => Ok(false),
        [b'o' | b'O', b'n' | b'N', ..] => Ok(true),
        [b'o' | b'O', b'f' | b'F', ..] => Ok(false),
        _ => Err(ValueError::NotBoolean),
    }
}

/// Reads a decimal number in `range`; digits only.
pub fn parse_unsigned(value: &[u8], range: RangeInclusive<u64>) -> Result<u64, ValueError> {
    let refused = ValueError::NotInRange { min: *range.start(), max: *range.end() };
    if value.is_empty() {
        return Err(refused);
    }
    value
        .iter()
        .try_fold(0u64, |number, &byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            number.checked_mul(10)?.checked_add(digit)
        })
        .filter(|number| range.contains(number))
        .ok_or(refused)
}

/// Reads one of some words and returns its place among them.
pub fn parse_word(value: &[u8], words: &'static [&'static str]) -> Result<usize, ValueError> {
    words.iter().position(|word| word.as_bytes() == value).ok_or(ValueError::NotOneOf(words))
}

fn is_blank(byte: u8) -> bool {
    // The vertical tab is a blank to C, though not to `is_ascii_whitespace`.
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Takes an opening quote off, and then a closing one at the end.
fn unquoted(text: &[u8]) -> &[u8] {
    match text.strip_prefix(b"\"") {
        Some(inner) => inner.strip_suffix(b"\"").unwrap_or(inner),
        None => text,
    }
}

#[cfg(test)]
#[path = "cmdline_tests.rs"]
mod tests;
