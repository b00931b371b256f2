//! What a handler may know of its own attempt (H28).

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::{Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::lookup::LookupKey;
use crate::scope::ScopeId;
use crate::store::{Checkpoint, Claim, ClaimRequest, Fence, LeaseControl};

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
    deadline: Deadline,
    control: Option<Arc<dyn LeaseControl>>,
    dispatched: AtomicBool,
}

impl Attempt {
    /// `asked_at`: when the claim was sent. A lease counts from there, since the store's answer may have taken long (S20).
    pub(crate) fn new<C: Claim>(asked: &ClaimRequest, claim: &C, asked_at: Instant) -> Self {
        let ends = claim.lease().and_then(|lease| asked_at.checked_add(lease));
        Self::build(asked, claim.attempt(), (claim.fence(), ends), claim.control())
    }

    /// An attempt that holds no lease.
    pub(crate) fn without_lease(asked: &ClaimRequest) -> Self {
        Self::build(asked, 1, (None, None), None)
    }

    fn build(
        asked: &ClaimRequest,
        number: u64,
        (fence, deadline): (Option<Fence>, Option<Instant>),
        control: Option<Arc<dyn LeaseControl>>,
    ) -> Self {
        Self(Arc::new(Inner {
            lookup: asked.lookup().clone(),
            fingerprint: *asked.fingerprint(),
            number,
            fence,
            deadline: Deadline(Mutex::new(deadline)),
            control,
            dispatched: AtomicBool::new(false),
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

    /// When the lease ends unless it is renewed again, by this host's clock and counted from before it was asked for: the
    /// store's own end is later. It moves on while renewals succeed, and while a guard of this attempt keeps everybody else
    /// from the record. Once it has passed, another attempt may be running.
    /// `None` for transactional stores.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline.get()
    }

    /// Says that the handler is about to call somebody else, in a way that cannot be undone: call it before the call
    /// goes out, and go on only if it succeeds (S22).
    ///
    /// From then on a crash, a panic, an error of the service, a broken body, 5xx, 408, 425 and 429 mean that what came
    /// of it is *unknown*. What follows then is the store's [`OnUnknown`](crate::store::OnUnknown), by default 409
    /// `outcome-unknown` until an operator has settled the key, or its retention is over. Other 4xx are kept as decisions. The handler's own
    /// [`Outcome`](crate::Outcome) has the last word, as always.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: another attempt owns the key; do not call. [`ErrorKind::Setup`]: the store has no leases,
    /// so nothing outside its transaction can be held. Anything else: it could not be recorded; do not call.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it recorded or not; the attempt itself counts as not dispatched.
    pub async fn dispatching(&self) -> Result<(), Error> {
        let Some(control) = &self.0.control else {
            return Err(Error::with_source(ErrorKind::Setup, "this attempt holds no lease; use a store in lease mode"));
        };
        control.dispatching().await?;
        self.0.dispatched.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Whether [`Attempt::dispatching`] has succeeded.
    #[must_use]
    pub fn is_dispatched(&self) -> bool {
        self.0.dispatched.load(Ordering::SeqCst)
    }

    /// What an earlier attempt at this operation has left behind, where the store keeps checkpoints (S23).
    #[must_use]
    pub fn last_checkpoint(&self) -> Option<&Checkpoint> {
        self.0.control.as_ref()?.checkpoint()
    }

    pub(crate) fn control(&self) -> Option<&Arc<dyn LeaseControl>> {
        self.0.control.as_ref()
    }

    /// Whether a lease has ended by this host's clock.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// A renewal that was asked for at `asked_at` has succeeded.
    pub(crate) fn renewed(&self, asked_at: Instant, lease: Duration) {
        self.0.deadline.set(asked_at.checked_add(lease));
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

/// What a claim that was answered after its lease comes to.
pub(crate) fn overdue() -> Error {
    Error::with_source(ErrorKind::Unavailable, "the claim was answered after its lease had ended")
}

/// When a lease ends, as far as this host can tell.
struct Deadline(Mutex<Option<Instant>>);

impl Deadline {
    fn get(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, ends: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = ends;
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
        Attempt::build(&asked, number, (Some(Fence(number)), None), None)
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
