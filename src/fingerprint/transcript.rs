//! The encoding that is hashed: every part has a tag or a length, so two different requests never give the same bytes.

use sha2::{Digest, Sha256};

use super::Profile;

/// Starts every transcript, so that these digests never equal digests made for another purpose.
const DOMAIN: &[u8] = b"idempotency/fingerprint\0";

/// A hash that grows by parts.
pub(super) struct Transcript(Sha256);

impl Transcript {
    pub(super) fn new(profile: Profile) -> Self {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        hash.update(profile.to_bytes());
        Transcript(hash)
    }

    /// One byte that says what follows.
    pub(super) fn tag(&mut self, tag: u8) {
        self.0.update([tag]);
    }

    /// A number of parts that follow.
    pub(super) fn count(&mut self, count: usize) {
        self.0.update((count as u64).to_be_bytes());
    }

    /// Bytes with their length in front.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.update(bytes);
    }

    /// Bytes that end by themselves: the caller's encoding says where.
    pub(super) fn self_delimiting(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}
