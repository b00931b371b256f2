//! Whose key it is: two principals that pick the same key must never meet (H10).

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use sha2::{Digest, Sha256};

/// The longest scope or endpoint that is stored as it is, in bytes; a longer one is stored as its digest (H12).
const LONGEST_VERBATIM: usize = 128;
/// How a digested value begins. A literal value that begins so is digested too, so that it cannot pose as another's.
const DIGEST_TAG: &str = "sha256:";

/// Who owns the keys of a request: usually the authenticated principal, or the tenant.
///
/// There is no default (H10). A layer over a service with one tenant says so with [`Scope::shared`].
///
/// ```
/// use idempotency::Scope;
/// #[derive(Clone)]
/// struct Principal(String);
///
/// let by_principal = Scope::from_extension(|p: &Principal| Some(p.0.clone()));
/// let by_header = Scope::from_fn(|parts| parts.headers.get("x-tenant")?.to_str().ok().map(str::to_owned));
/// ```
#[derive(Clone)]
pub struct Scope(Source);

type OfHead = dyn Fn(&Parts) -> Option<ScopeId> + Send + Sync;

#[derive(Clone)]
enum Source {
    /// The one scope, made once.
    Shared(ScopeId),
    Function(Arc<OfHead>),
}

impl Scope {
    /// One key space for every caller: right only where all callers are one party.
    #[must_use]
    pub fn shared() -> Self {
        Self(Source::Shared(ScopeId::shared()))
    }

    /// The scope that `f` reads from a request's head. `None` and the empty string refuse the request with
    /// `scope-unavailable`; they never fall back to a shared space.
    pub fn from_fn<F, T>(f: F) -> Self
    where
        F: Fn(&Parts) -> Option<T> + Send + Sync + 'static,
        T: AsRef<str>,
    {
        Self(Source::Function(Arc::new(move |parts| ScopeId::new(f(parts)?.as_ref()))))
    }

    /// The scope that `f` reads from an extension which an authentication middleware outside has inserted.
    /// A request without that extension is refused with `scope-unavailable`.
    pub fn from_extension<E, F, T>(f: F) -> Self
    where
        E: Send + Sync + 'static,
        F: Fn(&E) -> Option<T> + Send + Sync + 'static,
        T: AsRef<str>,
    {
        Self::from_fn(move |parts| f(parts.extensions.get::<E>()?))
    }

    /// The scope of this request, or `None` where it cannot be told.
    #[must_use]
    pub fn of(&self, parts: &Parts) -> Option<ScopeId> {
        match &self.0 {
            Source::Shared(id) => Some(id.clone()),
            Source::Function(f) => f(parts),
        }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::Shared(_) => "Scope::shared()",
            Source::Function(_) => "Scope::from_fn(..)",
        })
    }
}

/// A scope as it is stored: at most 128 bytes, compared byte for byte.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ScopeId(Arc<str>);

impl ScopeId {
    pub(crate) fn from_stored(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// Of any non-empty text; longer than 128 bytes, it is stored as `sha256:` and 64 hex digits.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(bounded(text)))
    }

    /// The scope of [`Scope::shared`]: the empty text, which no principal can have.
    #[must_use]
    pub fn shared() -> Self {
        Self(Arc::from(""))
    }

    /// The stored text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ScopeId {
    // A principal may be a mail address or a token: it is not for logs (H9).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScopeId(#{})", short_hash(self.0.as_bytes()))
    }
}

/// `text` itself, or its digest where it is too long for an index, looks like a digest, or holds a NUL.
pub(crate) fn bounded(text: &str) -> Arc<str> {
    // Not every database has a NUL in its texts.
    if text.len() <= LONGEST_VERBATIM && !text.starts_with(DIGEST_TAG) && !text.contains('\0') {
        return Arc::from(text);
    }
    let mut stored = String::with_capacity(DIGEST_TAG.len() + 64);
    stored.push_str(DIGEST_TAG);
    push_hex(&mut stored, &Sha256::digest(text.as_bytes()));
    Arc::from(stored)
}

/// Eight hex digits that tell two values apart in a log line without showing either.
pub(crate) fn short_hash(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(8);
    push_hex(&mut hex, &Sha256::digest(bytes)[..4]);
    hex
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for nibble in [byte >> 4, byte & 0xf] {
            text.push(char::from_digit(nibble.into(), 16).unwrap_or('0'));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Parts {
        http::Request::new(()).into_parts().0
    }

    // H10, case K12
    #[test]
    fn a_function_that_yields_nothing_or_an_empty_text_gives_no_scope() {
        assert!(Scope::from_fn(|_| None::<String>).of(&parts()).is_none());
        assert!(Scope::from_fn(|_| Some("")).of(&parts()).is_none());
        assert!(Scope::from_extension(|s: &String| Some(s.clone())).of(&parts()).is_none());
    }

    // H10
    #[test]
    fn the_shared_scope_is_no_principals_scope() {
        assert_eq!(Scope::shared().of(&parts()).unwrap().as_str(), "");
        assert!(ScopeId::new("").is_none());
    }

    // H12
    #[test]
    fn a_long_scope_is_digested_and_a_literal_digest_cannot_pose_as_it() {
        let long = "a".repeat(129);
        let digested = ScopeId::new(&long).unwrap();
        assert_eq!(digested.as_str().len(), 71);
        let posing = ScopeId::new(digested.as_str()).unwrap();
        assert_ne!(posing, digested);
        assert_eq!(ScopeId::new(&"a".repeat(128)).unwrap().as_str().len(), 128);
    }

    // H9
    #[test]
    fn debug_shows_no_scope() {
        assert!(!format!("{:?}", ScopeId::new("alice@example.com").unwrap()).contains("alice"));
    }
}
