//! Under what a record is found: scope, key and endpoint, with the digest that travels with them (S4).

use std::fmt;
use std::sync::Arc;

use http::Method;
use sha2::{Digest, Sha256};

use crate::key::Key;
use crate::scope::{ScopeId, bounded};

/// Frozen with the first schema (S30): a change would let old and new processes run one operation twice.
const DOMAIN: &[u8] = b"idempotency/lookup/1\0";

/// The endpoint as part of the look-up key (H11): method and path, or nothing.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Endpoint(Arc<str>);

impl Endpoint {
    /// Method and path, as in `POST /payments`; longer than 128 bytes, its digest.
    #[must_use]
    pub fn new(method: &Method, path: &str) -> Self {
        let method = method.as_str();
        let text = [method, " ", path].concat();
        Self(bounded(&text))
    }

    /// Any other text that tells operations apart, such as a gRPC method or a job's name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self(bounded(name))
    }

    /// Left out: one key is one operation in the whole scope.
    #[must_use]
    pub fn none() -> Self {
        Self(Arc::from(""))
    }

    /// The stored text, empty where the endpoint is left out.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Endpoint {
    // A path may hold identifiers of persons: it is not for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint(#{})", crate::scope::short_hash(self.0.as_bytes()))
    }
}

/// Scope, key and endpoint: what identifies one operation in a store.
#[derive(Clone)]
pub struct LookupKey {
    scope: ScopeId,
    key: Key,
    endpoint: Endpoint,
    digest: [u8; 32],
}

impl LookupKey {
    /// Joins the three parts and computes their digest, once.
    #[must_use]
    pub fn new(scope: ScopeId, key: Key, endpoint: Endpoint) -> Self {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        for part in [scope.as_str(), key.as_str(), endpoint.as_str()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        let digest = hash.finalize().into();
        Self { scope, key, endpoint, digest }
    }

    /// From the texts that a store has kept, which are not digested again. `None` for what no store of this crate keeps.
    #[must_use]
    pub fn from_stored(scope: &str, key: &str, endpoint: &str) -> Option<Self> {
        Some(Self::new(ScopeId::from_stored(scope), Key::new(key).ok()?, Endpoint(Arc::from(endpoint))))
    }

    /// Whose key.
    #[must_use]
    pub fn scope(&self) -> &ScopeId {
        &self.scope
    }

    /// The key itself.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Which endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// SHA-256 over the three parts, length-prefixed, so that no two triples share one by concatenation (H12).
    #[must_use]
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

impl PartialEq for LookupKey {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for LookupKey {}

impl fmt::Debug for LookupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookupKey")
            .field("scope", &self.scope)
            .field("key", &self.key)
            .field("endpoint", &self.endpoint)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(scope: &str, key: &str, endpoint: &str) -> LookupKey {
        LookupKey::new(ScopeId::new(scope).unwrap(), Key::new(key).unwrap(), Endpoint::named(endpoint))
    }

    // H12
    #[test]
    fn parts_never_collide_by_concatenation() {
        assert_ne!(lookup("ab", "c", "d"), lookup("a", "bc", "d"));
        assert_ne!(lookup("a", "b", "cd"), lookup("a", "bc", "d"));
        assert_eq!(lookup("a", "b", "c"), lookup("a", "b", "c"));
    }

    // S8, H12: what is read back is what was written, digested or not.
    #[test]
    fn stored_texts_are_read_back_as_they_are() {
        let long = "x".repeat(300);
        let pretender = format!("sha256:{}", "0".repeat(64));
        let spellings = [lookup("s", "k", "POST /x"), lookup(&long, "k", &long), lookup(&pretender, "k", "")];
        let shared = LookupKey::new(ScopeId::shared(), Key::new("k").unwrap(), Endpoint::none());
        for lookup in spellings.into_iter().chain([shared]) {
            let (scope, key, endpoint) = (lookup.scope().as_str(), lookup.key().as_str(), lookup.endpoint().as_str());
            assert_eq!(LookupKey::from_stored(scope, key, endpoint).unwrap(), lookup);
        }
        assert_eq!(LookupKey::from_stored("s", "", ""), None);
    }

    // S30: the encoding is frozen; this value may change only together with a migration.
    #[test]
    fn the_digest_is_frozen() {
        let digest = lookup("scope", "key", "POST /payments").digest;
        assert_eq!(digest[..4], FROZEN, "{digest:02x?}");
    }
    const FROZEN: [u8; 4] = [0x2b, 0xef, 0x95, 0x23];
}
