//! Tables by digest.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// SHA-256.
pub(crate) type Digest = [u8; 32];

/// A table by digest.
pub(crate) type DigestMap<V> = HashMap<Digest, V, DigestState>;

/// Hashes digests. They are uniform already, but whoever chooses what is digested can search for digests that begin
/// alike; so two words of them are mixed with two random ones of this table.
#[derive(Clone)]
pub(crate) struct DigestState([u64; 2]);

impl Default for DigestState {
    fn default() -> Self {
        let random = RandomState::new();
        Self([random.hash_one(0), random.hash_one(1)])
    }
}

impl BuildHasher for DigestState {
    type Hasher = DigestHasher;

    fn build_hasher(&self) -> DigestHasher {
        DigestHasher { random: self.0, hash: 0 }
    }
}

pub(crate) struct DigestHasher {
    random: [u64; 2],
    hash: u64,
}

impl DigestHasher {
    fn mix(&mut self, first: u64, second: u64) {
        let [a, b] = self.random;
        let product = u128::from(first ^ a ^ self.hash) * u128::from(second ^ b);
        let [low, high] = halves(product);
        self.hash = low ^ high;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half, and the high one")]
fn halves(word: u128) -> [u64; 2] {
    [word as u64, (word >> 64) as u64]
}

impl Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        for pair in bytes.chunks(16) {
            let mut words = [0; 16];
            words[..pair.len()].copy_from_slice(pair);
            let [first, second] = halves(u128::from_le_bytes(words));
            self.mix(first, second);
        }
    }

    /// The length of a digest is always the same.
    fn write_usize(&mut self, _: usize) {}

    /// Once more by an odd number: a product can have its differences in bits that the table does not look at.
    fn finish(&self) -> u64 {
        let [low, high] = halves(u128::from(self.hash) * 0x9e37_79b9_7f4a_7c15);
        low ^ high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Whoever can search for digests that are alike in one half finds no digests that meet in the table.
    #[test]
    fn digests_that_begin_or_end_alike_are_spread() {
        for (state, place) in (0..500).flat_map(|_| [0, 8, 16, 31].map(|place| (DigestState::default(), place))) {
            let low_bits: std::collections::HashSet<_> = (0..=255)
                .map(|byte| {
                    let mut digest = [7; 32];
                    digest[place] = byte;
                    state.hash_one(digest) & 0xfff
                })
                .collect();
            assert!(low_bits.len() > 200, "byte {place}: {}", low_bits.len());
        }
        assert_ne!(DigestState::default().hash_one([7; 32]), DigestState::default().hash_one([7; 32]));
    }
}
