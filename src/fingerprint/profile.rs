//! Under which algorithm and options a fingerprint was made.

use std::fmt;

use sha2::{Digest, Sha256};

/// The algorithm version (byte 0) and a digest of the options (7 bytes).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Profile([u8; 8]);

/// The version of the encoding that `transcript.rs`, `json.rs` and `multipart.rs` define. A change to one of them needs a
/// new version, once a release has this one.
pub(super) const ALGORITHM: u8 = 1;

impl Profile {
    /// The profile of the current algorithm under the options that `options` encodes.
    pub(super) fn of_options(options: &[u8]) -> Self {
        let digest = Sha256::digest(options);
        let mut bytes = [ALGORITHM; 8];
        bytes[1..].copy_from_slice(&digest[..7]);
        Profile(bytes)
    }

    /// The stored form.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 8] {
        self.0
    }

    /// Reads the stored form. Every value is a profile, perhaps one of another version of this crate.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        Profile(bytes)
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Profile({:016x})", u64::from_be_bytes(self.0))
    }
}
