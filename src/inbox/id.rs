//! Which message it is (M2).

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// The longest part that is stored as it is, in bytes.
const LONGEST: usize = 255;

/// Before the digest of what is not stored as it is. No id begins so by itself in practice; one that does is stored as its
/// digest too, so that no two parts are stored alike.
const TAG: &[u8] = b"\0sha256:";

/// Names a message within one consumer: who sent it, and the sender's id for it.
///
/// Both are bytes and compared byte for byte: `A`, `a` and `a ` are three ids, and so are two spellings of one text in
/// Unicode. Nothing is trimmed, folded or cut. A part longer than 255 bytes is stored as its SHA-256.
///
/// The *source* is whatever keeps ids of different senders apart: the CloudEvents `source`, the name of a topic or queue,
/// of a webhook's sender. Where the format of a message has none, choose a constant.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct MessageId {
    source: Part,
    id: Part,
}

impl MessageId {
    /// # Errors
    /// [`MessageIdError`] where one of them is empty: all messages without an id would be one.
    pub fn new(source: impl AsRef<[u8]>, id: impl AsRef<[u8]>) -> Result<Self, MessageIdError> {
        let source = Part::new(source.as_ref()).ok_or(MessageIdError::EmptySource)?;
        let id = Part::new(id.as_ref()).ok_or(MessageIdError::EmptyId)?;
        Ok(Self { source, id })
    }

    /// Source and id as they are stored, for whoever looks into the tables.
    #[must_use]
    pub fn stored(&self) -> [&[u8]; 2] {
        [self.source.as_bytes(), self.id.as_bytes()]
    }

    pub(crate) fn source(&self) -> &Part {
        &self.source
    }

    pub(crate) fn id(&self) -> &Part {
        &self.id
    }
}

/// Shows the beginning of a digest: ids may be personal data.
impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hash = Sha256::new();
        for part in [&self.source, &self.id] {
            hash.update((part.as_bytes().len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        let [b0, b1, b2, b3, ..]: [u8; 32] = hash.finalize().into();
        write!(f, "MessageId(#{b0:02x}{b1:02x}{b2:02x}{b3:02x})")
    }
}

/// Why something is not the id of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageIdError {
    /// The source is empty.
    #[error("the source of a message is empty")]
    EmptySource,
    /// The id is empty.
    #[error("the id of a message is empty")]
    EmptyId,
}

/// A part of an identity in the form in which it is stored and compared.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Part(Arc<[u8]>);

impl Part {
    /// `None` for nothing.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return None;
        }
        if bytes.len() <= LONGEST && !bytes.starts_with(TAG) {
            return Some(Self(bytes.into()));
        }
        let mut stored = TAG.to_vec();
        for byte in Sha256::digest(bytes) {
            for nibble in [byte >> 4, byte & 15] {
                stored.push(b"0123456789abcdef"[usize::from(nibble)]);
            }
        }
        Some(Self(stored.into()))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(id: impl AsRef<[u8]>) -> MessageId {
        MessageId::new("s", id).unwrap()
    }

    // M2
    #[test]
    fn ids_are_bytes() {
        let spellings: [&[u8]; 9] =
            [b"A", b"a", b"a ", b" a", b"a\0", "\u{e9}".as_bytes(), "e\u{301}".as_bytes(), b"\xff", b"e"];
        for (n, one) in spellings.iter().enumerate() {
            for (m, other) in spellings.iter().enumerate() {
                assert_eq!(id(one) == id(other), n == m, "{one:?} {other:?}");
            }
        }
        assert_ne!(MessageId::new("ab", "c"), MessageId::new("a", "bc"));
        assert_eq!(MessageId::new("", "c"), Err(MessageIdError::EmptySource));
        assert_eq!(MessageId::new("s", ""), Err(MessageIdError::EmptyId));
    }

    // M2: never cut, and no part can be written that is stored as another one's digest.
    #[test]
    fn long_parts_are_stored_as_a_tagged_digest() {
        let long = vec![b'x'; 255];
        assert_eq!(id(&long).id().as_bytes(), &long[..]);
        let (mut longer, mut other) = (long.clone(), long);
        longer.push(b'1');
        other.push(b'2');
        assert_ne!(id(&longer), id(&other));
        let stored = id(&longer).id().as_bytes().to_vec();
        assert_eq!(stored.len(), TAG.len() + 64);
        assert_ne!(id(&stored), id(&longer));
        assert_eq!(FROZEN.as_bytes(), &stored[1..], "the form is frozen: {}", String::from_utf8_lossy(&stored[1..]));
    }
    const FROZEN: &str = "sha256:750e154db0ba5f2ab03552fe694e8a1c234b54467f44675708e74e8a26dc53a5";

    #[test]
    fn debug_shows_no_id() {
        assert!(!format!("{:?}", MessageId::new("secret", "secret").unwrap()).contains("secret"));
    }
}
