//! The two advisory locks of a claim. Their encoding is frozen with the first schema (S30): processes of different
//! versions must meet at the same locks.

use sha2::{Digest, Sha256};

use crate::fingerprint::Fingerprint;

const DOMAIN: &[u8] = b"idempotency/postgres-locks/1\0";

/// K stands for the look-up key, F for the key together with the request's fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Locks {
    pub(crate) key: i64,
    pub(crate) fingerprint: (i32, i32),
}

impl Locks {
    /// The locks of a claim on the table of `schema`.
    pub(crate) fn new(schema: &str, lookup: &[u8; 32], fingerprint: &Fingerprint) -> Self {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        hash.update((schema.len() as u64).to_be_bytes());
        hash.update(schema.as_bytes());
        hash.update(lookup);
        let digest: [u8; 32] = hash.finalize().into();
        let [k0, k1, k2, k3, k4, k5, k6, k7, f0, f1, f2, f3, ..] = digest;
        let [p0, p1, p2, ..] = *fingerprint.digest();
        // The profile's bytes folded into one: only requests of one profile compare their fingerprint bits.
        let profile = fingerprint.profile().to_bytes().iter().fold(0, |folded, byte| folded ^ byte);
        Self {
            key: i64::from_be_bytes([k0, k1, k2, k3, k4, k5, k6, k7]),
            fingerprint: (i32::from_be_bytes([f0, f1, f2, f3]), i32::from_be_bytes([p0, p1, p2, profile])),
        }
    }
}
