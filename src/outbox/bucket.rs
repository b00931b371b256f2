//! Where an event stands in the outbox.

use sha2::{Digest, Sha256};
use uuid::Uuid;

const DOMAIN: &[u8] = b"idempotency/outbox-bucket/1\0";

/// One of the 64 parts of an outbox. All events of one key are in one of them, and at any time one relay works on it.
///
#[doc = include_str!("../../docs/outbox_buckets.md")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(u8);

impl Bucket {
    /// How many there are.
    pub const COUNT: u8 = 64;

    /// By its number. `None` from 64 on.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number < Self::COUNT { Some(Self(number)) } else { None }
    }

    /// Of an event for this destination.
    #[must_use]
    pub fn of(destination: &str, key: Option<&str>, id: &Uuid) -> Self {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        hash.update((destination.len() as u64).to_be_bytes());
        hash.update(destination);
        match key {
            Some(key) => {
                hash.update([1]);
                hash.update(key);
            }
            None => {
                hash.update([0]);
                hash.update(id.as_bytes());
            }
        }
        let [first, ..]: [u8; 32] = hash.finalize().into();
        Self(first >> 2)
    }

    /// Its number, 0 to 63.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// All of them, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }
}

/// The row of a pending event. Within a bucket a later row has the larger number; there are holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// In which part of the outbox.
    pub bucket: Bucket,
    /// Its number there, from 1.
    pub seq: i64,
}
