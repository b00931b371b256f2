//! Why stored bytes are no answer.

/// Why stored bytes cannot be read as an answer: they were cut, or something else wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The bytes end too early, or a length in them reaches past their end.
    #[error("the stored answer is truncated")]
    Truncated,
    /// The bytes do not start as a stored answer does.
    #[error("the stored bytes are not an answer of this crate")]
    Foreign,
    /// The form has a version that this release does not know.
    #[error("the stored answer has form {0}, which this version of the crate cannot read")]
    Version(u8),
    /// A flag, a status, a length or a header field has a value that no release writes.
    #[error("the stored answer is damaged")]
    Damaged,
    /// There are more header fields than a header map can hold.
    #[error("the stored answer has too many header fields")]
    TooManyFields,
    /// Something follows the answer's end.
    #[error("the stored answer is followed by other bytes")]
    TrailingBytes,
}
