//! The two advisory locks of a claim. Their encoding is frozen with the first schema (S30): processes of different
//! versions must meet at the same locks.

use sha2::{Digest, Sha256};

use crate::fingerprint::Fingerprint;

const DOMAIN: &[u8] = b"idempotency/postgres-locks/1\0";

/// K stands for the look-up key, F for the key with the fingerprint's profile (first half) and the fingerprint (second
/// half): only requests of one profile compare their fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Locks {
    pub(crate) key: i64,
    pub(crate) fingerprint: (i32, i32),
}

impl Locks {
    /// K alone.
    pub(crate) fn of_key(schema: &str, lookup: &[u8; 32]) -> i64 {
        let [k0, k1, k2, k3, k4, k5, k6, k7, ..] = digest(schema, lookup);
        i64::from_be_bytes([k0, k1, k2, k3, k4, k5, k6, k7])
    }

    /// The locks of a claim on the table of `schema`.
    pub(crate) fn new(schema: &str, lookup: &[u8; 32], fingerprint: &Fingerprint) -> Self {
        let [k0, k1, k2, k3, k4, k5, k6, k7, f0, f1, f2, f3, ..] = digest(schema, lookup);
        let [r0, r1, r2, r3, ..] = *fingerprint.digest();
        // Version and digest of the profile, folded into the key's own bits: fewer bits would let an honest retry that
        // crosses a deployment look like another request.
        let [p0, p1, p2, p3, p4, p5, p6, p7] = fingerprint.profile().to_bytes();
        let half = [f0 ^ p0 ^ p4, f1 ^ p1 ^ p5, f2 ^ p2 ^ p6, f3 ^ p3 ^ p7];
        Self {
            key: i64::from_be_bytes([k0, k1, k2, k3, k4, k5, k6, k7]),
            fingerprint: (i32::from_be_bytes(half), i32::from_be_bytes([r0, r1, r2, r3])),
        }
    }
}

fn digest(schema: &str, lookup: &[u8; 32]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(DOMAIN);
    hash.update((schema.len() as u64).to_be_bytes());
    hash.update(schema.as_bytes());
    hash.update(lookup);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::Profile;

    fn locks(schema: &str, lookup: u8, profile: [u8; 8], request: u8) -> Locks {
        Locks::new(schema, &[lookup; 32], &Fingerprint::new(Profile::from_bytes(profile), [request; 32]))
    }

    // S30: processes of all versions must meet at the same locks.
    #[test]
    fn the_encoding_is_frozen() {
        let frozen = locks("public", 1, [1, 2, 3, 4, 5, 6, 7, 8], 9);
        assert_eq!((frozen.key, frozen.fingerprint.0, frozen.fingerprint.1), FROZEN, "{frozen:?}");
    }
    const FROZEN: (i64, i32, i32) = (3_727_246_988_167_057_697, -1_807_156_219, 151_587_081);

    // H18, H21: two profiles never share a first half, whatever single byte tells them apart.
    #[test]
    fn profiles_do_not_share_a_lock() {
        let base = [1, 0, 0, 0, 0, 0, 0, 0];
        for byte in 0..8 {
            for value in 1..=255_u8 {
                let mut other = base;
                other[byte] ^= value;
                assert_ne!(locks("s", 1, base, 1).fingerprint.0, locks("s", 1, other, 1).fingerprint.0);
            }
        }
        let (one, two) = (locks("s", 1, base, 1), locks("s", 1, base, 2));
        assert_eq!((one.key, one.fingerprint.0), (two.key, two.fingerprint.0));
        assert_ne!(one.fingerprint.1, two.fingerprint.1);
        assert_ne!(one.key, locks("t", 1, base, 1).key);
    }
}
