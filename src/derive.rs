//! Ids that are computed from what they stand for (D1).

use std::fmt;

use sha2::{Digest, Sha256};
use uuid::Uuid;

const DOMAIN: &[u8] = b"idempotency/deterministic-id/1\0";

const NAMESPACE: u8 = 0;
const TEXT: u8 = 1;
const INTEGER: u8 = 2;
const BYTES: u8 = 3;
const UUID: u8 = 4;
const BOOL: u8 = 5;

/// An id that is the same whenever and wherever it is computed from the same parts.
///
#[doc = include_str!("../docs/deterministic_ids.md")]
#[derive(Clone)]
pub struct DeterministicId(Sha256);

impl DeterministicId {
    /// Ids of one kind. The namespace keeps those of different kinds apart: name the kind, and whose it is
    /// (`shop.example/order-line`).
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        Self(Sha256::new_with_prefix(DOMAIN)).item(NAMESPACE, namespace.as_bytes())
    }

    /// Adds a part: text, an integer, bytes, a UUID or a `bool`. Order counts, and so does the type: `"1"` is not `1`.
    #[must_use]
    pub fn part(self, part: impl IdPart) -> Self {
        part.write(self)
    }

    /// The id, a UUIDv8 (RFC 9562 section 5.8).
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        let digest: [u8; 32] = self.0.clone().finalize().into();
        let [b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15, ..] = digest;
        Uuid::new_v8([b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15])
    }

    fn item(mut self, tag: u8, bytes: &[u8]) -> Self {
        self.0.update([tag]);
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
        self
    }
}

impl fmt::Debug for DeterministicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeterministicId(..)")
    }
}

/// A UUIDv5 (RFC 9562 section 5.5, SHA-1), where other systems compute their ids so. It is another id than that of
/// [`DeterministicId`]: `name` is one run of bytes, and who puts several parts into it must keep them apart himself.
#[must_use]
pub fn uuid_v5(namespace: Uuid, name: &[u8]) -> Uuid {
    Uuid::new_v5(&namespace, name)
}

/// What an id can be made of. Sealed. Not floats: two ways to compute one number differ in its last bit.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of a deterministic id",
    note = "use text, an integer, bytes, a UUID or a bool; write a decimal as text, in one form"
)]
pub trait IdPart: sealed::Sealed {
    #[doc(hidden)]
    fn write(&self, id: DeterministicId) -> DeterministicId;
}

mod sealed {
    #[expect(unnameable_types, reason = "this is what seals `IdPart`")]
    pub trait Sealed {}
}

macro_rules! parts {
    ($($type:ty, $tag:ident, |$value:ident| $bytes:expr;)*) => {$(
        impl sealed::Sealed for $type {}

        impl IdPart for $type {
            fn write(&self, id: DeterministicId) -> DeterministicId {
                let $value = self;
                id.item($tag, $bytes)
            }
        }
    )*};
}

parts! {
    str, TEXT, |text| text.as_bytes();
    String, TEXT, |text| text.as_bytes();
    [u8], BYTES, |bytes| bytes;
    Vec<u8>, BYTES, |bytes| bytes;
    Uuid, UUID, |uuid| uuid.as_bytes();
    bool, BOOL, |value| &[u8::from(*value)];
    u8, INTEGER, |value| &i128::from(*value).to_be_bytes();
    u16, INTEGER, |value| &i128::from(*value).to_be_bytes();
    u32, INTEGER, |value| &i128::from(*value).to_be_bytes();
    u64, INTEGER, |value| &i128::from(*value).to_be_bytes();
    i8, INTEGER, |value| &i128::from(*value).to_be_bytes();
    i16, INTEGER, |value| &i128::from(*value).to_be_bytes();
    i32, INTEGER, |value| &i128::from(*value).to_be_bytes();
    i64, INTEGER, |value| &i128::from(*value).to_be_bytes();
    i128, INTEGER, |value| &value.to_be_bytes();
}

impl<const N: usize> sealed::Sealed for [u8; N] {}

impl<const N: usize> IdPart for [u8; N] {
    fn write(&self, id: DeterministicId) -> DeterministicId {
        id.item(BYTES, self)
    }
}

impl<T: sealed::Sealed + ?Sized> sealed::Sealed for &T {}

impl<T: IdPart + ?Sized> IdPart for &T {
    fn write(&self, id: DeterministicId) -> DeterministicId {
        (**self).write(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../docs/deterministic_ids.md");

    /// The rows of the document's table: namespace, parts in JSON, id.
    fn vectors() -> Vec<(String, Vec<serde_json::Value>, Uuid)> {
        let rows = DOCUMENT.lines().filter(|line| line.starts_with("| `"));
        rows.map(|row| {
            let cells: Vec<&str> = row.split('`').collect();
            (cells[1].to_owned(), serde_json::from_str(cells[3]).unwrap(), cells[5].parse().unwrap())
        })
        .collect()
    }

    fn computed(namespace: &str, parts: &[serde_json::Value]) -> Uuid {
        let id = parts.iter().fold(DeterministicId::new(namespace), |id, part| match part {
            serde_json::Value::String(text) => id.part(text),
            serde_json::Value::Bool(value) => id.part(*value),
            serde_json::Value::Number(number) => match number.as_u64() {
                Some(value) => id.part(value),
                None => id.part(number.as_i64().unwrap()),
            },
            part => match (part["bytes"].as_str(), part["uuid"].as_str()) {
                (Some(hex), _) => {
                    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
                    id.part((0..hex.len()).step_by(2).map(byte).collect::<Vec<u8>>())
                }
                (_, Some(uuid)) => id.part(uuid.parse::<Uuid>().unwrap()),
                _ => panic!("{part}"),
            },
        });
        id.uuid()
    }

    // D1
    #[test]
    fn the_published_vectors_hold() {
        let vectors = vectors();
        assert_eq!(vectors.len(), 10);
        let computed: Vec<_> = vectors.iter().map(|(namespace, parts, _)| computed(namespace, parts)).collect();
        let published: Vec<_> = vectors.iter().map(|(_, _, id)| *id).collect();
        assert_eq!(computed, published);
        assert!(computed.iter().all(|id| id.get_version_num() == 8));
        let different: std::collections::HashSet<_> = computed.iter().collect();
        assert_eq!(different.len(), 10);
    }

    // D1
    #[test]
    fn types_and_borders_of_parts_count() {
        let id = || DeterministicId::new("test");
        let all = [
            id(),
            id().part("1"),
            id().part(1u64),
            id().part(b"1"),
            id().part(true),
            id().part(""),
            id().part("").part(""),
            id().part("ab").part("c"),
            id().part("a").part("bc"),
            id().part("abc"),
            id().part(-1i32),
            // No normalisation: the same letter to a reader, other bytes.
            id().part("\u{e9}"),
            id().part("e\u{301}"),
            DeterministicId::new("test1"),
        ];
        let different: std::collections::HashSet<Uuid> = all.iter().map(DeterministicId::uuid).collect();
        assert_eq!(different.len(), all.len());
    }

    // D1: a column that grows from 32 to 64 bits changes no id.
    #[test]
    fn an_integer_is_its_value_whatever_its_width() {
        let id = |part: &dyn Fn(DeterministicId) -> DeterministicId| part(DeterministicId::new("test")).uuid();
        let seven = id(&|id| id.part(7u64));
        assert!(
            [id(&|id| id.part(7u8)), id(&|id| id.part(7i32)), id(&|id| id.part(7i128))].iter().all(|x| *x == seven)
        );
    }

    // RFC 9562 appendix A.4.
    #[test]
    fn uuid_v5_is_that_of_the_rfc() {
        let id = uuid_v5(Uuid::NAMESPACE_DNS, b"www.example.com");
        assert_eq!(id.to_string(), "2ed6657d-e927-568b-95e1-2665a8aea6a2");
        assert_ne!(id, DeterministicId::new("").part(Uuid::NAMESPACE_DNS).part(&b"www.example.com"[..]).uuid());
    }
}
