//! The key of one operation: what a client sends to say "this is the same operation as before".
//!
//! [`Key::parse`] reads a header value, [`Key::new`] takes text that needs no unquoting (from a body pointer, a message
//! id). Both give the same [`Key`] for the same text. [`KeyRules`] narrows what an endpoint accepts.

mod error;
mod params;
mod rules;
mod source;
mod syntax;

pub use error::KeyError;
pub use rules::KeyRules;
pub(crate) use source::FoundKey;
pub use source::{IDEMPOTENCY_KEY, KeySource};

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// The most bytes that a key may have, counted after unquoting.
pub const MAX_KEY_BYTES: usize = 255;

/// A well-formed key: 1 to [`MAX_KEY_BYTES`] bytes of printable ASCII, not only blanks.
///
/// Keys compare byte for byte. `Debug` shows a hash prefix only, because keys come from clients and often are
/// guessable: a log must not hold them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// Takes text as it is: no trimming, no unquoting.
    ///
    /// # Errors
    /// [`KeyError::Empty`], [`KeyError::OnlyBlanks`], [`KeyError::TooLong`] (over [`MAX_KEY_BYTES`] bytes),
    /// [`KeyError::ControlCharacter`] and [`KeyError::NotAscii`].
    pub fn new(text: &str) -> Result<Key, KeyError> {
        syntax::check_characters(text.as_bytes())?;
        match text.len() {
            0 => Err(KeyError::Empty),
            _ if text.bytes().all(|byte| byte == b' ') => Err(KeyError::OnlyBlanks),
            length if length > MAX_KEY_BYTES => Err(KeyError::TooLong),
            _ => Ok(Key(Arc::from(text))),
        }
    }

    /// Reads one header value, which is a structured-field string (`"abc"`, RFC 9651 section 3.3.3) or bare (`abc`);
    /// both are the same key.
    ///
    /// Blanks around the value do not count. Parameters after a quoted key must be well-formed and are ignored. A bare
    /// key is taken whole: `;`, `\` and inner blanks belong to it.
    ///
    /// # Errors
    /// What [`Key::new`] refuses, and [`KeyError::UnclosedQuote`], [`KeyError::BadEscape`],
    /// [`KeyError::BadParameter`], [`KeyError::TextAfterQuote`], [`KeyError::StrayQuote`] and
    /// [`KeyError::SeveralValues`].
    pub fn parse(field_value: &[u8]) -> Result<Key, KeyError> {
        Key::new(&syntax::unquote(field_value)?)
    }

    /// The text of the key, unquoted.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 8 hex digits of the key's SHA-256: enough to follow one key through logs, without showing it.
    #[must_use]
    pub fn hash_prefix(&self) -> String {
        let digest = Sha256::digest(self.0.as_bytes());
        digest.iter().take(4).fold(String::with_capacity(8), |mut hex, byte| {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(#{})", self.hash_prefix())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_counted_in_bytes_after_unquoting() {
        // H7, case K01
        assert_eq!(Key::parse("a".repeat(255).as_bytes()).unwrap().as_str().len(), 255);
        assert_eq!(Key::parse("a".repeat(256).as_bytes()), Err(KeyError::TooLong));
        let quoted = format!("\"{}\"", "\\\\".repeat(255));
        assert_eq!(Key::parse(quoted.as_bytes()).unwrap().as_str(), "\\".repeat(255));
        let quoted = format!("\"{}\"", "\\\\".repeat(256));
        assert_eq!(Key::parse(quoted.as_bytes()), Err(KeyError::TooLong));
    }

    #[test]
    fn a_key_of_three_kilobytes_is_refused_at_the_edge() {
        // case K02
        assert_eq!(Key::new(&"x9".repeat(1500)), Err(KeyError::TooLong));
    }

    #[test]
    fn unquoted_text_is_taken_as_it_is() {
        // H4
        assert_eq!(Key::new(" \"a\", b ").unwrap().as_str(), " \"a\", b ");
        assert_eq!(Key::new(""), Err(KeyError::Empty));
        assert_eq!(Key::new("  "), Err(KeyError::OnlyBlanks));
        assert_eq!(Key::new("a\u{0}"), Err(KeyError::ControlCharacter));
        assert_eq!(Key::new("a\u{7f}"), Err(KeyError::ControlCharacter));
        assert_eq!(Key::new("é"), Err(KeyError::NotAscii));
    }

    #[test]
    fn keys_compare_byte_for_byte() {
        // H8
        assert_ne!(Key::new("a").unwrap(), Key::new("A").unwrap());
        assert_ne!(Key::new("a").unwrap(), Key::new("a ").unwrap());
    }

    #[test]
    fn debug_shows_a_hash_prefix_only() {
        // H9, case K19. The prefix is that of SHA-256("abc"), FIPS 180-4's own example.
        let key = Key::new("abc").unwrap();
        assert_eq!(key.hash_prefix(), "ba7816bf");
        assert_eq!(format!("{key:?}"), "Key(#ba7816bf)");
    }
}
