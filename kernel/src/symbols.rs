//! Function names for backtraces.
//!
//! # What it is
//! A reader of the symbol table that the launcher writes into the kernel's image after linking.
//!
//! # How it works
//! All numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | the magic `KSYMTAB1` |
//! | 4 | how many entries |
//! | 4 | offset of the names, from the start of the table |
//! | 16 each | entries, by ascending address: 8 address, 4 offset of the name from the start of the names, 4 its length |
//! | rest | the names, UTF-8, without terminators |
//!
//! [`Symbols::parse`] checks the whole table once; a table that is absent (no magic) or wrong is not used, and addresses
//! are printed bare.
//!
//! # Invariants
//! 1. Every index into the table stays inside it, whatever its bytes say.
//! 2. Addresses ascend, so the binary search ends at the last function that begins at or below the address.
//!
//! # Cost
//! O(n) to check, O(log n) to look up. No allocation, so a panic may use it.

/// The first eight bytes of a table.
pub const MAGIC: [u8; 8] = *b"KSYMTAB1";
/// Bytes before the entries.
const HEADER_BYTES: usize = 16;
/// Bytes of one entry.
const ENTRY_BYTES: usize = 16;

/// A symbol table whose structure has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Symbols<'a> {
    entries: &'a [u8],
    names: &'a [u8],
}

/// What [`Symbols::find`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The function's name.
    pub name: &'a str,
    /// How far into the function the address lies.
    pub offset: u64,
}

impl<'a> Symbols<'a> {
    /// Checks a table; `None` when there is none or it is damaged.
    pub fn parse(table: &'a [u8]) -> Option<Self> {
        if table.get(..8)? != MAGIC {
            return None;
        }
        let count = u32_at(table, 8)? as usize;
        let names_at = u32_at(table, 12)? as usize;
        let entries_end = count.checked_mul(ENTRY_BYTES)?.checked_add(HEADER_BYTES)?;
        if entries_end > names_at {
            return None;
        }
        let symbols = Self { entries: table.get(HEADER_BYTES..entries_end)?, names: table.get(names_at..)? };
        let mut last = 0;
        for index in 0..count {
            let address = symbols.address(index)?;
            symbols.name(index)?;
            if address < last {
                return None;
            }
            last = address;
        }
        Some(symbols)
    }

    /// How many functions the table names.
    pub fn len(&self) -> usize {
        self.entries.len() / ENTRY_BYTES
    }

    /// Finds the function that holds `address`: the last one that begins at or below it.
    pub fn find(&self, address: u64) -> Option<Symbol<'a>> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.address(middle)? <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let index = low.checked_sub(1)?;
        Some(Symbol { name: self.name(index)?, offset: address - self.address(index)? })
    }

    fn address(&self, index: usize) -> Option<u64> {
        let at = index * ENTRY_BYTES;
        Some(u64::from_le_bytes(self.entries.get(at..at + 8)?.try_into().ok()?))
    }

    fn name(&self, index: usize) -> Option<&'a str> {
        let at = index * ENTRY_BYTES;
        let start = u32_at(self.entries, at + 8)? as usize;
        let bytes = u32_at(self.entries, at + 12)? as usize;
        core::str::from_utf8(self.names.get(start..start.checked_add(bytes)?)?).ok()
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(functions: &[(u64, &str)]) -> Vec<u8> {
        let mut names = Vec::new();
        let mut entries = Vec::new();
        for (address, name) in functions {
            entries.extend(address.to_le_bytes());
            entries.extend((names.len() as u32).to_le_bytes());
            entries.extend((name.len() as u32).to_le_bytes());
            names.extend(name.bytes());
        }
        let mut table = Vec::from(MAGIC);
        table.extend((functions.len() as u32).to_le_bytes());
        table.extend(((HEADER_BYTES + entries.len()) as u32).to_le_bytes());
        table.extend(entries);
        table.extend(names);
        table.resize(table.len() + 100, 0);
        table
    }

    #[test]
    fn an_address_belongs_to_the_last_function_at_or_below_it() {
        let bytes = table(&[(100, "a::b"), (200, "c"), (300, "d::é")]);
        let symbols = Symbols::parse(&bytes).unwrap();
        assert_eq!(symbols.len(), 3);
        assert_eq!(symbols.find(99), None);
        assert_eq!(symbols.find(100), Some(Symbol { name: "a::b", offset: 0 }));
        assert_eq!(symbols.find(199), Some(Symbol { name: "a::b", offset: 99 }));
        assert_eq!(symbols.find(200), Some(Symbol { name: "c", offset: 0 }));
        assert_eq!(symbols.find(u64::MAX).unwrap().name, "d::é");
    }

    #[test]
    fn an_absent_or_empty_table_names_nothing() {
        assert!(Symbols::parse(&[0; 4096]).is_none());
        assert!(Symbols::parse(&[]).is_none());
        assert_eq!(Symbols::parse(&table(&[])).unwrap().find(1), None);
    }

    #[test]
    fn a_damaged_table_is_refused_or_harmless() {
        let good = table(&[(100, "first"), (200, "second"), (300, "third")]);
        for at in 0..HEADER_BYTES + 3 * ENTRY_BYTES {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                if let Some(symbols) = Symbols::parse(&bad) {
                    for address in [0, 100, 150, 250, 350, u64::MAX] {
                        symbols.find(address);
                    }
                }
            }
        }
        for end in 0..good.len() - 100 {
            assert!(Symbols::parse(&good[..end]).is_none(), "cut at {end}");
        }
        assert!(Symbols::parse(&table(&[(2, "b"), (1, "a")])).is_none(), "out of order");
    }
}
