//! The preconditions of one request.

use std::time::SystemTime;

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method};

use super::evaluate::{self, Current, Verdict};
use super::list::{Malformed, TagList};

/// What a request demands of the resource that it is for (RFC 9110 section 13.1).
///
/// With the feature `axum` it is an extractor, which answers 400 where a field does not parse. Judge a write in its
/// handler, in the transaction that writes, and write only what was judged: see [`versioned`](super::versioned).
///
/// ```
/// use http::{HeaderMap, Method};
/// use idempotency::precondition::{Current, Preconditions, Verdict, Version};
///
/// let version = Version::new();
/// let mut headers = HeaderMap::new();
/// headers.insert("if-match", version.to_tag().to_header_value());
/// let preconditions = Preconditions::parse(&Method::PUT, &headers)?;
/// assert_eq!(preconditions.judge(Some(&Current::tagged(version.to_tag()))), Verdict::Proceed);
/// assert_eq!(preconditions.judge(Some(&Current::tagged(Version::new().to_tag()))), Verdict::Failed);
/// assert_eq!(preconditions.judge(None), Verdict::Failed);
/// # Ok::<(), idempotency::precondition::Malformed>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preconditions {
    pub(super) method: Method,
    pub(super) if_match: Option<TagList>,
    pub(super) if_none_match: Option<TagList>,
    pub(super) if_modified_since: Option<SystemTime>,
    pub(super) if_unmodified_since: Option<SystemTime>,
    pub(super) accepts_weakened: bool,
}

impl Preconditions {
    /// Reads the fields of a request.
    ///
    /// A date that is none is ignored, as RFC 9110 sections 13.1.3 and 13.1.4 demand; so is one beside the entity tags
    /// that replace it.
    ///
    /// # Errors
    /// [`Malformed`] where `If-Match` or `If-None-Match` does not parse.
    pub fn parse(method: &Method, headers: &HeaderMap) -> Result<Self, Malformed> {
        Ok(Self {
            method: method.clone(),
            if_match: TagList::parse(headers.get_all(IF_MATCH))?,
            if_none_match: TagList::parse(headers.get_all(IF_NONE_MATCH))?,
            if_modified_since: date(headers, &IF_MODIFIED_SINCE),
            if_unmodified_since: date(headers, &IF_UNMODIFIED_SINCE),
            accepts_weakened: false,
        })
    }

    /// Those that a [`PreconditionLayer`](super::PreconditionLayer) has read, with its settings; else as
    /// [`Preconditions::parse`].
    ///
    /// # Errors
    /// [`Malformed`] where `If-Match` or `If-None-Match` does not parse.
    pub fn of(parts: &Parts) -> Result<Self, Malformed> {
        match parts.extensions.get::<Self>() {
            Some(read) if read.method == parts.method => Ok(read.clone()),
            _ => Self::parse(&parts.method, &parts.headers),
        }
    }

    /// Lets `If-Match` accept tags that a proxy weakened on the way (`W/"a"` for `"a"`), as compressing proxies do.
    ///
    /// The proxy changes the bytes and says so; the client then sends the weak tag back, and by the strong comparison of
    /// RFC 9110 it would match nothing, ever. Only for resources whose own tags are strong: a service that makes weak
    /// tags itself would take two representations for one.
    #[must_use]
    pub fn accept_weakened_tags(mut self) -> Self {
        self.accepts_weakened = true;
        self
    }

    /// `If-Match`.
    #[must_use]
    pub fn if_match(&self) -> Option<&TagList> {
        self.if_match.as_ref()
    }

    /// `If-None-Match`.
    #[must_use]
    pub fn if_none_match(&self) -> Option<&TagList> {
        self.if_none_match.as_ref()
    }

    /// Whether there are entity tags to judge by: what a service can ask for by 428 (RFC 6585 section 3).
    #[must_use]
    pub fn has_tags(&self) -> bool {
        self.if_match.is_some() || self.if_none_match.is_some()
    }

    /// Whether it is for a resource that must not exist yet: `If-None-Match: *`.
    #[must_use]
    pub fn creates_only(&self) -> bool {
        self.if_none_match == Some(TagList::Any)
    }

    /// What they say of the resource as it is, in the order of RFC 9110 section 13.2.2; `None` where it has no
    /// representation.
    ///
    /// Ask only where the answer without them were 2xx or 412 (section 13.2.1): a PATCH of a resource that is not there
    /// is 404 and a body that is wrong is 400, whatever the preconditions.
    #[must_use]
    pub fn judge(&self, current: Option<&Current>) -> Verdict {
        evaluate::evaluate(self, current)
    }
}

/// One line that is a date; everything else is no date.
fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?;
    if lines.next().is_some() {
        return None;
    }
    httpdate::parse_http_date(line.to_str().ok()?).ok()
}
