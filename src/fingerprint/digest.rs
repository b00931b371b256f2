//! A fingerprint and how two of them compare.

use std::fmt;

use super::Profile;

/// The digest of a request and the profile that it was made under.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    profile: Profile,
    digest: [u8; 32],
}

/// Whether a request is the one that a stored fingerprint was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// The same request.
    Same,
    /// Another request.
    Different,
    /// Not known: the fingerprints were made under different profiles (another version of this crate, or other
    /// options). To be treated as the same request, because an honest retry must not be refused.
    OtherProfile,
}

impl Fingerprint {
    /// Bytes of the stored form: 8 of the profile, 32 of the digest.
    pub const LEN: usize = 40;

    /// Puts a fingerprint together from its parts.
    #[must_use]
    pub fn new(profile: Profile, digest: [u8; 32]) -> Self {
        Fingerprint { profile, digest }
    }

    /// What it was made under.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// The SHA-256 digest; HMAC-SHA-256 under [`keyed`](super::Fingerprinter::keyed).
    #[must_use]
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The stored form: the profile, then the digest.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 40] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.profile.to_bytes());
        bytes[8..].copy_from_slice(&self.digest);
        bytes
    }

    /// Reads the stored form; `None` if it has not exactly [`Fingerprint::LEN`] bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (profile, digest) = bytes.split_first_chunk::<8>()?;
        Some(Fingerprint::new(Profile::from_bytes(*profile), digest.try_into().ok()?))
    }

    /// Compares the fingerprint of a request with a stored one.
    #[must_use]
    pub fn compare(&self, stored: &Fingerprint) -> Match {
        if self.profile != stored.profile {
            Match::OtherProfile
        } else if self.digest == stored.digest {
            Match::Same
        } else {
            Match::Different
        }
    }
}

impl fmt::Debug for Fingerprint {
    /// Shows the first 4 bytes of the digest, as logs do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.digest;
        write!(f, "Fingerprint({:?}, #{a:02x}{b:02x}{c:02x}{d:02x})", self.profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(profile: u8, digest: u8) -> Fingerprint {
        Fingerprint::new(Profile::from_bytes([profile; 8]), [digest; 32])
    }

    #[test]
    fn only_equal_profiles_are_compared() {
        // H18
        assert_eq!(fingerprint(1, 2).compare(&fingerprint(1, 2)), Match::Same);
        assert_eq!(fingerprint(1, 2).compare(&fingerprint(1, 3)), Match::Different);
        assert_eq!(fingerprint(1, 2).compare(&fingerprint(2, 2)), Match::OtherProfile);
        assert_eq!(fingerprint(1, 2).compare(&fingerprint(2, 3)), Match::OtherProfile);
    }

    #[test]
    fn the_stored_form_reads_back() {
        // H18, case F12
        let bytes = fingerprint(1, 2).to_bytes();
        assert_eq!(bytes[..8], [1; 8]);
        assert_eq!(bytes[8..], [2; 32]);
        assert_eq!(Fingerprint::from_bytes(&bytes), Some(fingerprint(1, 2)));
    }

    #[test]
    fn a_stored_form_of_another_length_is_none() {
        // H18
        for length in [0, 7, 8, 39, 41] {
            assert_eq!(Fingerprint::from_bytes(&vec![0; length]), None, "{length}");
        }
    }

    #[test]
    fn debug_shows_a_short_prefix() {
        // H9
        assert_eq!(format!("{:?}", fingerprint(1, 0xab)), "Fingerprint(Profile(0101010101010101), #abababab)");
    }
}
