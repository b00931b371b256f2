//! Why a message has no identity.

/// Why no identity was found in a message. The same bytes will never have one: such a message is a dead letter, and no
/// redelivery helps. The texts name the field and never what is in it.
///
/// A source or an id that is too long is no error: it is stored as its digest (M2).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// The field is not there.
    #[error("the message has no {0}")]
    Absent(String),
    /// The field is there and has nothing in it (M2).
    #[error("{0} is empty")]
    Empty(String),
    /// The field is there more than once, and nobody can say which one counts.
    #[error("{0} is there more than once")]
    Repeated(String),
    /// The field is no UTF-8 text; in a JSON body, neither a string nor a whole number.
    #[error("{0} is no text")]
    NotText(String),
    /// The body is not one JSON text (RFC 8259).
    #[error("the body is not JSON")]
    NotJson,
    /// The content type is a form of CloudEvents that is not read: a batch, or another format than JSON.
    #[error("this form of CloudEvents is not supported")]
    Unsupported,
}

impl IdError {
    pub(super) fn absent(what: &str) -> Self {
        Self::Absent(what.to_owned())
    }
}
