//! What of a request is fingerprinted.

use std::fmt;

use http::{HeaderMap, Method};

/// A borrowed view of a request whose body is in memory.
#[derive(Clone, Copy)]
pub struct RequestView<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path as the client sent it, before any router cut a prefix off.
    pub path: &'a str,
    /// The query as the client sent it, without `?`. A `?` with nothing after it is `Some("")`, which is not `None`.
    pub query: Option<&'a str>,
    /// All headers; which of them count is up to the [`Fingerprinter`](super::Fingerprinter).
    pub headers: &'a HeaderMap,
    /// The whole body as received. No body is an empty one.
    pub body: &'a [u8],
}

impl fmt::Debug for RequestView<'_> {
    /// Leaves out query, headers and body: they hold what logs must not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestView")
            .field("method", self.method)
            .field("path", &self.path)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}
