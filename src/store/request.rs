//! What a claim asks for.

use std::fmt;
use std::time::Duration;

use uuid::Uuid;

use crate::fingerprint::{Fingerprint, Match};
use crate::lookup::LookupKey;

/// One request's question to a store. Computed once, it travels through every retry of the question (S4, S6).
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    lookup: LookupKey,
    fingerprint: Fingerprint,
    token: Token,
    retention: Duration,
}

impl ClaimRequest {
    /// A claim of `lookup` by a request with this fingerprint, whose record is kept for `retention` from acceptance.
    #[must_use]
    pub fn new(lookup: LookupKey, fingerprint: Fingerprint, retention: Duration) -> Self {
        Self { lookup, fingerprint, token: Token::random(), retention }
    }

    /// Under what the operation is found.
    #[must_use]
    pub fn lookup(&self) -> &LookupKey {
        &self.lookup
    }

    /// What the request is.
    #[must_use]
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
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

    /// Whether the stored fingerprint is this request's.
    #[must_use]
    pub fn compare(&self, stored: &Fingerprint) -> Match {
        self.fingerprint.compare(stored)
    }
}

/// The random name of one claim, by which its owner recognises its own record.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(Uuid);

impl Token {
    fn random() -> Self {
        Self(Uuid::new_v4())
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
