//! One entity tag (RFC 9110 section 8.8.3).

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderValue;

/// An entity tag: `"xyzzy"`, or `W/"xyzzy"` where it is weak.
///
/// What stands between the quotes is opaque: bytes of 0x21, 0x23 to 0x7E and 0x80 to 0xFF (RFC 9110 section 8.8.3). Two
/// ways to compare (section 8.8.3.2): strong for `If-Match`, weak for `If-None-Match`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct EntityTag {
    is_weak: bool,
    opaque: Bytes,
}

/// The error of [`EntityTag::parse`] and [`EntityTag::strong`]: the bytes are no entity tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an entity tag (RFC 9110 section 8.8.3)")]
pub struct NotATag;

/// `etagc`: no blank, no control character, no quote, no DEL.
pub(super) const fn is_etagc(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x7e | 0x80..=0xff)
}

impl EntityTag {
    pub(super) fn from_parts(is_weak: bool, opaque: &[u8]) -> Self {
        Self { is_weak, opaque: Bytes::copy_from_slice(opaque) }
    }

    /// A strong tag of these bytes, which stand between the quotes.
    ///
    /// # Errors
    /// [`NotATag`] where a byte may not stand there: blanks, control characters, `"`.
    pub fn strong(opaque: &str) -> Result<Self, NotATag> {
        if opaque.bytes().all(is_etagc) { Ok(Self::from_parts(false, opaque.as_bytes())) } else { Err(NotATag) }
    }

    /// The same tag, weak.
    #[must_use]
    pub fn weak(mut self) -> Self {
        self.is_weak = true;
        self
    }

    /// Reads the value of an `ETag` field. Blanks around it do not count.
    ///
    /// # Errors
    /// [`NotATag`] for everything else, lists and `*` included.
    pub fn parse(field_value: &[u8]) -> Result<Self, NotATag> {
        let value = super::list::trim_ows(field_value);
        let (is_weak, quoted) = value.strip_prefix(b"W/").map_or((false, value), |rest| (true, rest));
        match quoted {
            [b'"', opaque @ .., b'"'] if opaque.iter().copied().all(is_etagc) => Ok(Self::from_parts(is_weak, opaque)),
            _ => Err(NotATag),
        }
    }

    /// Whether it is weak.
    #[must_use]
    pub fn is_weak(&self) -> bool {
        self.is_weak
    }

    /// The bytes between the quotes.
    #[must_use]
    pub fn opaque(&self) -> &[u8] {
        &self.opaque
    }

    /// Strong comparison: both are strong and equal.
    #[must_use]
    pub fn strong_eq(&self, other: &Self) -> bool {
        !self.is_weak && !other.is_weak && self.opaque == other.opaque
    }

    /// Weak comparison: equal between the quotes.
    #[must_use]
    pub fn weak_eq(&self, other: &Self) -> bool {
        self.opaque == other.opaque
    }

    /// The value of an `ETag` field, or of one member of a list.
    #[must_use]
    pub fn to_header_value(&self) -> HeaderValue {
        let mut value = BytesMut::with_capacity(self.opaque.len() + 4);
        if self.is_weak {
            value.put_slice(b"W/");
        }
        value.put_u8(b'"');
        value.put_slice(&self.opaque);
        value.put_u8(b'"');
        match HeaderValue::from_maybe_shared(value.freeze()) {
            Ok(value) => value,
            Err(_) => unreachable!("every byte of an entity tag may stand in a field"),
        }
    }
}

impl fmt::Debug for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\"{}\"", if self.is_weak { "W/" } else { "" }, self.opaque.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(text: &str) -> EntityTag {
        EntityTag::parse(text.as_bytes()).unwrap()
    }

    // RFC 9110 section 8.8.3.2, the table of its examples.
    #[test]
    fn the_two_comparisons() {
        for (a, b, strong, weak) in [
            ("W/\"1\"", "W/\"1\"", false, true),
            ("W/\"1\"", "W/\"2\"", false, false),
            ("W/\"1\"", "\"1\"", false, true),
            ("\"1\"", "\"1\"", true, true),
        ] {
            assert_eq!(tag(a).strong_eq(&tag(b)), strong, "{a} {b}");
            assert_eq!(tag(a).weak_eq(&tag(b)), weak, "{a} {b}");
        }
    }

    // D2
    #[test]
    fn what_is_no_tag() {
        for text in [
            "",
            "a",
            "\"",
            "\"a",
            "a\"",
            "\"a b\"",
            "\"a\"b\"",
            "w/\"a\"",
            "W/a",
            "W/",
            "*",
            "\"\u{7f}\"",
            "\"a\",\"b\"",
        ] {
            assert_eq!(EntityTag::parse(text.as_bytes()), Err(NotATag), "{text}");
        }
        assert_eq!(EntityTag::strong("a b"), Err(NotATag));
        assert_eq!(EntityTag::parse(b"\"\xff\"").unwrap().opaque(), b"\xff");
        assert_eq!(tag("\"\"").opaque(), b"");
        assert_eq!(tag("\"*\"").opaque(), b"*");
    }

    #[test]
    fn debug_shows_the_tag() {
        assert_eq!(format!("{:?}", tag("W/\"a\"")), "W/\"a\"");
    }
}
