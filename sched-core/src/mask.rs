//! # What it is
//! A set of CPUs of fixed width: which CPUs a task may run on.
//!
//! # How it works
//! [`Mask<N>`](Mask) is `N` words of 64 bits, a plain value. [`Mask64`], [`Mask256`] and [`Mask1024`] are the usual widths;
//! the embedder picks one in [`Config`](crate::Config).
//! Inside a task the mask lies in words of its own, so that it can be read without a lock ([`SharedMask`]).
//!
//! # Invariants
//! 1. A reader of a [`SharedMask`] sees each bit as some writer left it; bits written together may be seen apart.
//!
//! # Cost
//! Membership is one load and one test. Walking is one step per word and per member.

use core::{fmt, sync::atomic::Ordering};

use crate::{
    platform::CpuId,
    sync::{Family, Word},
};

/// A set of up to `64 * N` CPUs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mask<const N: usize> {
    words: [u64; N],
}

/// Up to 64 CPUs.
pub type Mask64 = Mask<1>;
/// Up to 256 CPUs.
pub type Mask256 = Mask<4>;
/// Up to 1024 CPUs.
pub type Mask1024 = Mask<16>;

impl<const N: usize> Mask<N> {
    /// No CPU.
    pub const EMPTY: Self = Self { words: [0; N] };
    /// Every CPU the width can name.
    pub const ALL: Self = Self { words: [u64::MAX; N] };

    /// Just `cpu`, or nothing where the width cannot name it.
    pub const fn only(cpu: CpuId) -> Self {
        Self::EMPTY.with(cpu)
    }

    /// This set and `cpu`. A CPU beyond the width changes nothing.
    pub const fn with(mut self, cpu: CpuId) -> Self {
        if cpu.index() / 64 < N {
            self.words[cpu.index() / 64] |= 1 << (cpu.index() % 64);
        }
        self
    }

    /// Whether `cpu` is in the set.
    #[inline]
    pub const fn contains(&self, cpu: CpuId) -> bool {
        cpu.index() / 64 < N && self.words[cpu.index() / 64] & 1 << (cpu.index() % 64) != 0
    }

    /// Whether no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// How many CPUs are in the set.
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// The CPUs of the set, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            let mut rest = word;
            core::iter::from_fn(move || {
                let bit = rest.checked_ilog2().map(|_| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(CpuId(at as u32 * 64 + bit))
            })
        })
    }
}

impl<const N: usize> FromIterator<CpuId> for Mask<N> {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        cpus.into_iter().fold(Self::EMPTY, Mask::with)
    }
}

impl<const N: usize> fmt::Debug for Mask<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|cpu| cpu.0)).finish()
    }
}

/// The width of a CPU mask, as a type. Implemented for [`Mask64`], [`Mask256`] and [`Mask1024`] alike.
pub trait CpuMask: Copy + fmt::Debug + Send + Sync + 'static {
    /// How many CPUs the width can name.
    const CPUS: usize;
    /// Every CPU the width can name.
    const ALL: Self;
    /// Where a task keeps its mask.
    type Shared<F: Family>: SharedMask<Self>;

    /// No CPU.
    const EMPTY: Self;

    /// Whether `cpu` is in the set.
    fn contains(&self, cpu: CpuId) -> bool;

    /// This set and `cpu`. A CPU beyond the width changes nothing.
    fn with(self, cpu: CpuId) -> Self;

    /// The CPUs from `64 * at` on, as bits; 0 beyond the width.
    fn word(&self, at: usize) -> u64;
}

/// A mask that is read without a lock.
pub trait SharedMask<M>: Send + Sync {
    /// Storage that holds `mask`.
    fn new(mask: M) -> Self;
    /// Puts `cpu` into the set, or takes it out. A CPU beyond the width changes nothing.
    fn set(&self, cpu: CpuId, member: bool);
    /// The CPUs from `64 * at` on, as bits; 0 beyond the width.
    fn word(&self, at: usize) -> u64;
    /// Writes the mask, word by word, each in the one order of all sequentially consistent operations.
    fn store(&self, mask: M);
    /// Reads the mask, word by word.
    fn load(&self) -> M;
    /// Whether `cpu` is in the set.
    fn contains(&self, cpu: CpuId) -> bool;
}

/// The word number `at` of the set of `cpu` alone.
#[inline(always)]
pub(crate) const fn word_of(cpu: CpuId, at: usize) -> u64 {
    if at == cpu.index() / 64 { 1 << (cpu.index() % 64) } else { 0 }
}

/// The CPUs of a set of `words` words, given word by word, in the order `from`, `from + 1`, ..., and from 0 on up to the one before `from`.
#[inline(always)]
pub(crate) fn ring<W: Fn(usize) -> u64>(words: usize, from: CpuId, word: W) -> Ring<W> {
    let at = from.index() / 64;
    debug_assert!(at < words);
    if words == 1 {
        return Ring { rest: word(0).rotate_right(from.0), base: from.0, wrap: 63, at, left: 0, words, below: 0, word };
    }
    let below = (1u64 << (from.index() % 64)) - 1;
    Ring { rest: word(at) & !below, base: at as u32 * 64, wrap: u32::MAX, at, left: words, words, below, word }
}

/// What [`ring`] returns. A single word is rotated. Of several, the one it begins in comes twice: its upper part first, its lower part last.
pub(crate) struct Ring<W> {
    word: W,
    words: usize,
    /// Members of the present word still to come.
    rest: u64,
    /// The CPU of bit 0.
    base: u32,
    /// The bits that a CPU number has.
    wrap: u32,
    at: usize,
    /// Words still to come.
    left: usize,
    /// The part of the first word that comes last.
    below: u64,
}

impl<W: Fn(usize) -> u64> Iterator for Ring<W> {
    type Item = CpuId;

    #[inline(always)]
    fn next(&mut self) -> Option<CpuId> {
        while self.rest == 0 {
            if self.left == 0 {
                return None;
            }
            self.left -= 1;
            self.at = if self.at + 1 == self.words { 0 } else { self.at + 1 };
            self.base = self.at as u32 * 64;
            self.rest = (self.word)(self.at) & if self.left == 0 { self.below } else { u64::MAX };
        }
        let bit = self.rest.trailing_zeros();
        self.rest &= self.rest - 1;
        Some(CpuId((self.base + bit) & self.wrap))
    }
}

/// The words of a [`Mask`], each atomic.
pub struct MaskWords<F: Family, const N: usize> {
    words: [F::Word; N],
}

impl<const N: usize> CpuMask for Mask<N> {
    const CPUS: usize = 64 * N;
    const ALL: Self = Self::ALL;
    const EMPTY: Self = Self::EMPTY;
    type Shared<F: Family> = MaskWords<F, N>;

    #[inline]
    fn contains(&self, cpu: CpuId) -> bool {
        Mask::contains(self, cpu)
    }

    fn with(self, cpu: CpuId) -> Self {
        Mask::with(self, cpu)
    }

    #[inline]
    fn word(&self, at: usize) -> u64 {
        self.words.get(at).copied().unwrap_or(0)
    }
}

impl<F: Family, const N: usize> SharedMask<Mask<N>> for MaskWords<F, N> {
    fn new(mask: Mask<N>) -> Self {
        Self { words: core::array::from_fn(|at| Word::new(mask.words[at])) }
    }

    fn set(&self, cpu: CpuId, member: bool) {
        let Some(word) = self.words.get(cpu.index() / 64) else { return };
        let (bit, mut seen) = (1 << (cpu.index() % 64), word.load(Ordering::SeqCst));
        loop {
            let new = if member { seen | bit } else { seen & !bit };
            match word.compare_exchange(seen, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => break,
                Err(other) => seen = other,
            }
        }
    }

    #[inline]
    fn word(&self, at: usize) -> u64 {
        self.words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn store(&self, mask: Mask<N>) {
        for (word, value) in self.words.iter().zip(mask.words) {
            word.store(value, Ordering::SeqCst);
        }
    }

    fn load(&self) -> Mask<N> {
        Mask { words: core::array::from_fn(|at| self.words[at].load(Ordering::SeqCst)) }
    }

    #[inline]
    fn contains(&self, cpu: CpuId) -> bool {
        self.words.get(cpu.index() / 64).is_some_and(|word| word.load(Ordering::SeqCst) & 1 << (cpu.index() % 64) != 0)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::sync::Spin;

    #[test]
    fn members_come_back_in_order_across_words() {
        let cpus = [CpuId(255), CpuId(0), CpuId(64), CpuId(63)];
        let mask: Mask256 = cpus.into_iter().collect();
        assert_eq!(mask.iter().map(|cpu| cpu.0).collect::<Vec<_>>(), [0, 63, 64, 255]);
        assert_eq!(mask.count(), 4);
        assert!(mask.contains(CpuId(64)) && !mask.contains(CpuId(65)));
    }

    #[test]
    fn a_ring_begins_anywhere_and_visits_every_member_once() {
        let cpus = [0, 1, 5, 63, 64, 70, 127, 128, 255];
        let mask: Mask256 = cpus.into_iter().map(CpuId).collect();
        for from in [0, 1, 2, 62, 63, 64, 65, 200, 255] {
            let visited: Vec<_> = ring(4, CpuId(from), |at| CpuMask::word(&mask, at)).map(|cpu| cpu.0).collect();
            let split = cpus.partition_point(|cpu| *cpu < from);
            assert_eq!(visited, [&cpus[split..], &cpus[..split]].concat(), "from {from}");
        }
        for from in [0, 1, 5, 6, 63] {
            let visited: Vec<_> = ring(1, CpuId(from), |_| 0x8000_0000_0000_0023).map(|cpu| cpu.0).collect();
            let cpus = [0, 1, 5, 63];
            let split = cpus.partition_point(|cpu| *cpu < from);
            assert_eq!(visited, [&cpus[split..], &cpus[..split]].concat(), "from {from}");
        }
    }

    #[test]
    fn single_members_come_and_go() {
        let shared = <Mask256 as CpuMask>::Shared::<Spin>::new(Mask256::EMPTY);
        for cpu in [0, 65, 255, 256] {
            shared.set(CpuId(cpu), true);
        }
        shared.set(CpuId(65), false);
        assert_eq!(shared.load(), [CpuId(0), CpuId(255)].into_iter().collect());
    }

    #[test]
    fn a_cpu_beyond_the_width_is_never_a_member() {
        assert!(Mask64::only(CpuId(64)).is_empty());
        assert!(!Mask64::ALL.contains(CpuId(64)));
        assert!(Mask64::ALL.contains(CpuId(63)));
        let shared = <Mask64 as CpuMask>::Shared::<Spin>::new(Mask64::ALL);
        assert!(!shared.contains(CpuId(u32::MAX)));
    }
}
