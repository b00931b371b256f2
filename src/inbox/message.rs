//! What an inbox must know of a message.

use sha2::{Digest, Sha256};

use super::MessageId;

/// A message as an inbox sees it: its id, a digest of its payload, and how often it was delivered, if the broker says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    id: MessageId,
    payload: Option<PayloadDigest>,
    deliveries: Option<u64>,
}

impl Message {
    /// A message with this payload. Only the bytes of the body count (M5): headers change from one delivery to the next.
    #[must_use]
    pub fn new(id: MessageId, payload: impl AsRef<[u8]>) -> Self {
        Self::digested(id, PayloadDigest::of(payload.as_ref()))
    }

    /// A message whose payload was digested elsewhere.
    #[must_use]
    pub fn digested(id: MessageId, payload: PayloadDigest) -> Self {
        Self { id, payload: Some(payload), deliveries: None }
    }

    /// A message whose payload is not compared, because its bytes differ between deliveries. It is never a `Conflict`.
    #[must_use]
    pub fn without_payload(id: MessageId) -> Self {
        Self { id, payload: None, deliveries: None }
    }

    /// How often the broker has delivered it, this time included: its own count is surer than any that is kept here,
    /// since it also counts deliveries that killed their process (M6).
    #[must_use]
    pub fn with_deliveries(mut self, deliveries: u64) -> Self {
        self.deliveries = Some(deliveries);
        self
    }

    /// Which message it is.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        &self.id
    }

    /// The digest of its payload, where that is compared.
    #[must_use]
    pub fn payload(&self) -> Option<PayloadDigest> {
        self.payload
    }

    /// How often the broker has delivered it, this time included, where it says so.
    #[must_use]
    pub fn deliveries(&self) -> Option<u64> {
        self.deliveries
    }
}

/// The SHA-256 of a payload's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PayloadDigest([u8; 32]);

impl PayloadDigest {
    /// Of these bytes.
    #[must_use]
    pub fn of(payload: &[u8]) -> Self {
        Self(Sha256::digest(payload).into())
    }

    /// One that was computed elsewhere.
    #[must_use]
    pub fn from_bytes(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// What a mark that is there means for a message (M5).
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub(super) fn is_same(stored: Option<&[u8]>, message: &Message) -> bool {
    match (stored, message.payload()) {
        (Some(stored), Some(payload)) => stored == payload.as_bytes(),
        // One of the two deliveries is not compared.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // M5: a Conflict takes two payloads that are known and differ.
    #[test]
    fn payloads_are_compared_where_both_are_known() {
        let id = MessageId::new("s", "1").unwrap();
        let (one, none) = (Message::new(id.clone(), "one"), Message::without_payload(id));
        let other = PayloadDigest::of(b"other");
        let stored = one.payload().map(|digest| digest.as_bytes().to_vec());
        assert!(is_same(stored.as_deref(), &one));
        assert!(!is_same(Some(other.as_bytes()), &one));
        assert!(is_same(None, &one));
        assert!(is_same(Some(other.as_bytes()), &none));
    }
}
