//! What a handler may know of its own attempt (H28).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::fingerprint::Fingerprint;
use crate::lookup::LookupKey;
use crate::scope::ScopeId;
use crate::store::{Claim, ClaimRequest, Fence};

const DOMAIN: &[u8] = b"idempotency/attempt/1\0";

/// The attempt that a handler is running, from the request's extensions or by the axum extractor of this name. Only
/// requests with a key have one.
#[derive(Clone)]
pub struct Attempt(Arc<Inner>);

struct Inner {
    lookup: LookupKey,
    fingerprint: Fingerprint,
    number: u64,
    fence: Option<Fence>,
    deadline: Option<Instant>,
}

impl Attempt {
    pub(crate) fn new<C: Claim>(asked: &ClaimRequest, claim: &C) -> Self {
        Self::from_parts(asked, claim.attempt(), claim.fence(), claim.lease())
    }

    pub(crate) fn from_parts(asked: &ClaimRequest, number: u64, fence: Option<Fence>, lease: Option<Duration>) -> Self {
        Self(Arc::new(Inner {
            lookup: asked.lookup().clone(),
            fingerprint: *asked.fingerprint(),
            number,
            fence,
            deadline: lease.and_then(|lease| Instant::now().checked_add(lease)),
        }))
    }

    /// Whose operation it is.
    #[must_use]
    pub fn scope(&self) -> &ScopeId {
        self.0.lookup.scope()
    }

    /// Which attempt at the operation this is, counted from 1. A transactional store keeps nothing of attempts that
    /// failed, and says 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// The fencing token of a lease; `None` for transactional stores.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.0.fence
    }

    /// When the lease that was taken for this attempt ends unless it is renewed; `None` for transactional stores.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// An id for one step of the operation: equal for all its attempts, after a crash too, and different for every
    /// other operation and step. Use it as the idempotency key of a call to somebody else. It does not reveal the
    /// caller's key.
    ///
    /// It is made of scope, key and fingerprint. So it changes where the layer's fingerprint options change between two
    /// attempts, [`previous_fingerprint`](crate::IdempotencyLayer::previous_fingerprint) or not, and it comes again where a key is used again for the same request after its retention has ended: it is
    /// no primary key for rows that are kept longer.
    #[must_use]
    pub fn derive(&self, step: &str) -> Uuid {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        for part in [
            self.0.lookup.scope().as_str().as_bytes(),
            self.0.lookup.key().as_str().as_bytes(),
            self.0.fingerprint.digest(),
            step.as_bytes(),
        ] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest: [u8; 32] = hash.finalize().into();
        let [b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15, ..] = digest;
        // UUIDv8: sixteen bytes of our own making (RFC 9562 section 5.8).
        Uuid::new_v8([b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15])
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("lookup", &self.0.lookup)
            .field("number", &self.0.number)
            .field("fence", &self.0.fence)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::Profile;
    use crate::key::Key;
    use crate::lookup::Endpoint;

    fn attempt(scope: &str, key: &str, body: u8, number: u64) -> Attempt {
        let lookup = LookupKey::new(ScopeId::new(scope).unwrap(), Key::new(key).unwrap(), Endpoint::none());
        let fingerprint = Fingerprint::new(Profile::from_bytes([1; 8]), [body; 32]);
        let asked = ClaimRequest::new(lookup, fingerprint, Duration::from_secs(60));
        Attempt::from_parts(&asked, number, Some(Fence(number)), None)
    }

    // D5
    #[test]
    fn a_derived_id_is_the_operations_own_and_the_same_for_all_its_attempts() {
        let id = attempt("a", "k", 1, 1).derive("charge");
        assert_eq!(id, attempt("a", "k", 1, 7).derive("charge"));
        assert_eq!(id.get_version_num(), 8);
        for other in [attempt("b", "k", 1, 1), attempt("a", "l", 1, 1), attempt("a", "k", 2, 1)] {
            assert_ne!(id, other.derive("charge"));
        }
        assert_ne!(id, attempt("a", "k", 1, 1).derive("refund"));
    }

    // H9
    #[test]
    fn debug_shows_neither_key_nor_scope() {
        let shown = format!("{:?}", attempt("alice-secret", "key-secret", 1, 1));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
