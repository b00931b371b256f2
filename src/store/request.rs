//! What a claim asks for.

use std::fmt;
use std::time::Duration;

use uuid::Uuid;

use crate::fingerprint::{Fingerprint, Match};
use crate::lookup::LookupKey;

/// What a request is, in each profile that it was computed in. Two requests that are equal here are equal under every
/// stored fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprints {
    current: Fingerprint,
    previous: Vec<Fingerprint>,
}

/// One request's question to a store. Computed once, it travels through every retry of the question (S4, S6).
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    lookup: LookupKey,
    fingerprints: Fingerprints,
    token: Token,
    retention: Duration,
}

impl ClaimRequest {
    /// A claim of `lookup` by a request with this fingerprint, whose record is kept for `retention` from acceptance.
    #[must_use]
    pub fn new(lookup: LookupKey, fingerprint: Fingerprint, retention: Duration) -> Self {
        let fingerprints = Fingerprints { current: fingerprint, previous: Vec::new() };
        Self { lookup, fingerprints, token: Token::random(), retention }
    }

    /// The same request computed in other profiles as well, so that it can be compared with what was stored under them
    /// (H18). Replaces what was set before.
    #[must_use]
    pub fn with_previous(mut self, previous: Vec<Fingerprint>) -> Self {
        self.fingerprints.previous = previous;
        self
    }

    /// Under what the operation is found.
    #[must_use]
    pub fn lookup(&self) -> &LookupKey {
        &self.lookup
    }

    /// What the request is. This is what a store keeps of it.
    #[must_use]
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprints.current
    }

    /// What the request is in other profiles. To be compared with, and never stored.
    #[must_use]
    pub fn previous(&self) -> &[Fingerprint] {
        &self.fingerprints.previous
    }

    pub(crate) fn fingerprints(&self) -> &Fingerprints {
        &self.fingerprints
    }

    /// Whose claim it is: tells one asker from another.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// How long the record is kept, from acceptance.
    #[must_use]
    pub fn retention(&self) -> Duration {
        self.retention
    }

    /// The same question by a new asker.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { token: Token::random(), ..self.clone() }
    }

    /// Whether the stored fingerprint is this request's, by the first of its own fingerprints that has the stored
    /// profile. Every comparison goes through here.
    #[must_use]
    pub fn compare(&self, stored: &Fingerprint) -> Match {
        let all = std::iter::once(self.fingerprint()).chain(self.previous());
        all.map(|own| own.compare(stored))
            .find(|compared| *compared != Match::OtherProfile)
            .unwrap_or(Match::OtherProfile)
    }
}

/// The random name of one claim, by which its owner recognises its own record.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(Uuid);

impl Token {
    pub(crate) fn random() -> Self {
        // Not from the system each time, which takes longer than all else that a claim needs.
        Self(uuid::Builder::from_random_bytes(rand::random()).into_uuid())
    }

    /// A token that a store has kept.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// Its 16 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The fencing token of a lease: a later owner of a key has a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::Profile;
    use crate::key::Key;
    use crate::lookup::Endpoint;
    use crate::scope::ScopeId;

    fn fingerprint(profile: u8, digest: u8) -> Fingerprint {
        Fingerprint::new(Profile::from_bytes([profile; 8]), [digest; 32])
    }

    fn asked(previous: &[(u8, u8)]) -> ClaimRequest {
        let lookup = LookupKey::new(ScopeId::shared(), Key::new("k").unwrap(), Endpoint::none());
        ClaimRequest::new(lookup, fingerprint(3, 3), Duration::from_secs(60))
            .with_previous(previous.iter().map(|&(profile, digest)| fingerprint(profile, digest)).collect())
    }

    // H18
    #[test]
    fn a_request_is_compared_in_the_stored_profile() {
        let request = asked(&[(1, 1), (2, 2)]);
        for profile in 1..=3 {
            assert_eq!(request.compare(&fingerprint(profile, profile)), Match::Same);
            assert_eq!(request.compare(&fingerprint(profile, 9)), Match::Different);
        }
        assert_eq!(request.compare(&fingerprint(4, 4)), Match::OtherProfile);
        assert_eq!(asked(&[]).compare(&fingerprint(1, 9)), Match::OtherProfile);
    }

    // S4: the question stays the same, whoever asks it again.
    #[test]
    fn a_question_asked_again_has_all_its_fingerprints() {
        let request = asked(&[(1, 1)]);
        assert_eq!(request.again().fingerprints(), request.fingerprints());
        assert_ne!(request.again().token(), request.token());
    }
}
