//! The encoding that is hashed: every part has a tag or a length, so two different requests never give the same bytes.

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use super::Profile;
use super::secret::Secret;

/// Starts every transcript, so that these digests never equal digests made for another purpose.
const DOMAIN: &[u8] = b"idempotency/fingerprint\0";

/// A hash that grows by parts.
pub(super) struct Transcript {
    hash: Hash,
    /// What was not hashed yet: many small parts are hashed as one, which is quicker.
    waiting: Vec<u8>,
}

/// How much may wait. Most requests fit, and small allocations are the cheapest.
const WAITING: usize = 1024;

enum Hash {
    Plain(Sha256),
    Keyed(Hmac<Sha256>),
}

impl Transcript {
    pub(super) fn new(profile: Profile, secret: Option<&Secret>) -> Self {
        let hash = secret.map_or_else(|| Hash::Plain(Sha256::new()), |secret| Hash::Keyed(secret.hash()));
        let mut transcript = Self { hash, waiting: Vec::with_capacity(WAITING) };
        transcript.update(DOMAIN);
        transcript.update(&profile.to_bytes());
        transcript
    }

    /// One byte that says what follows.
    pub(super) fn tag(&mut self, tag: u8) {
        self.update(&[tag]);
    }

    /// A number of parts that follow.
    pub(super) fn count(&mut self, count: usize) {
        self.update(&(count as u64).to_be_bytes());
    }

    /// Bytes with their length in front.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.update(bytes);
    }

    /// Bytes that end by themselves: the caller's encoding says where.
    pub(super) fn self_delimiting(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }

    fn update(&mut self, bytes: &[u8]) {
        if bytes.len() > WAITING - self.waiting.len() {
            self.hash.update(&self.waiting);
            self.waiting.clear();
            if bytes.len() > WAITING {
                return self.hash.update(bytes);
            }
        }
        self.waiting.extend_from_slice(bytes);
    }

    pub(super) fn finish(mut self) -> [u8; 32] {
        self.hash.update(&self.waiting);
        match self.hash {
            Hash::Plain(hash) => hash.finalize().into(),
            Hash::Keyed(hash) => hash.finalize().into_bytes().into(),
        }
    }
}

impl Hash {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hash::Plain(hash) => Digest::update(hash, bytes),
            Hash::Keyed(hash) => Mac::update(hash, bytes),
        }
    }
}
