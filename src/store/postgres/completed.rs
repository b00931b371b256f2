//! The keys that were done a moment ago. Whoever asks for one of them most likely asks for its answer, and a row can be
//! read without a transaction (S10).
//!
//! It is a guess and never the authority: the row decides, and without a live row the key is claimed as any other.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many keys one generation holds. Two generations are kept.
const GENERATION: usize = 8_192;

#[derive(Default)]
pub(super) struct Completed(Mutex<Generations>);

/// By the first bytes of the look-up digest: two keys that share them cost one of them a statement more.
#[derive(Default)]
struct Generations {
    young: HashSet<u64>,
    old: HashSet<u64>,
}

impl Completed {
    pub(super) fn contains(&self, digest: &[u8; 32]) -> bool {
        let (generations, key) = (self.lock(), short(digest));
        generations.young.contains(&key) || generations.old.contains(&key)
    }

    pub(super) fn insert(&self, digest: &[u8; 32]) {
        let mut generations = self.lock();
        if generations.young.len() >= GENERATION {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(short(digest));
    }

    pub(super) fn remove(&self, digest: &[u8; 32]) {
        let (mut generations, key) = (self.lock(), short(digest));
        generations.young.remove(&key);
        generations.old.remove(&key);
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        // Nothing panics under the lock; a guess may be read in any case.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn short(digest: &[u8; 32]) -> u64 {
    let [b0, b1, b2, b3, b4, b5, b6, b7, ..] = *digest;
    u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> [u8; 32] {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_le_bytes());
        digest
    }

    // S10
    #[test]
    fn it_knows_the_latest_keys_and_stays_bounded() {
        let completed = Completed::default();
        for number in 0..10 * GENERATION {
            completed.insert(&digest(number));
        }
        assert!((9 * GENERATION..10 * GENERATION).all(|number| completed.contains(&digest(number))));
        assert!(!completed.contains(&digest(0)));
        let generations = completed.lock();
        assert!(generations.young.len() + generations.old.len() <= 2 * GENERATION);
    }

    // S10
    #[test]
    fn a_key_that_was_wrongly_guessed_is_forgotten() {
        let completed = Completed::default();
        completed.insert(&digest(1));
        completed.remove(&digest(1));
        assert!(!completed.contains(&digest(1)));
    }
}
