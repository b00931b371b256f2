//! The named lock that stands before an INSERT on MySQL. Its encoding is frozen with the first schema (S30): processes
//! of different versions must meet at the same lock.

use sha2::{Digest, Sha256};

use crate::db::sql::Hex;

const DOMAIN: &[u8] = b"idempotency/mysql-lock/1\0";

/// As many bytes of the digest as fit, with `idem:` before their digits, into the 64 characters of a lock's name.
const BYTES: usize = 29;

/// The digits of the name: named locks belong to the whole server, so the database is part of it.
pub(crate) fn name(database: &str, lookup: &[u8; 32]) -> Hex {
    let mut hash = Sha256::new();
    hash.update(DOMAIN);
    hash.update((database.len() as u64).to_be_bytes());
    hash.update(database.as_bytes());
    hash.update(lookup);
    let digest: [u8; 32] = hash.finalize().into();
    Hex::new(&digest[..BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;

    // S30: processes of all versions must meet at the same lock.
    #[test]
    fn the_encoding_is_frozen() {
        assert_eq!(name("app", &[1; 32]).as_str(), FROZEN);
        assert!("idem:".len() + FROZEN.len() <= 64);
        assert_ne!(name("app", &[1; 32]).as_str(), name("app", &[2; 32]).as_str());
        assert_ne!(name("app", &[1; 32]).as_str(), name("other", &[1; 32]).as_str());
    }
    const FROZEN: &str = "7c37e65f688e30a210ba1935ffce11d92a7eefa621938a15eefd266d5d";
}
