//! Why a key is refused.

/// Why a key is refused. `Display` tells a client what to mend and never quotes what it sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Nothing between the quotes, or nothing at all.
    #[error("the key is empty")]
    Empty,
    /// Blanks and nothing else.
    #[error("the key holds only blanks")]
    OnlyBlanks,
    /// More than [`MAX_KEY_BYTES`](super::MAX_KEY_BYTES) bytes after unquoting.
    #[error("the key is longer than {} bytes", super::MAX_KEY_BYTES)]
    TooLong,
    /// Fewer bytes than [`KeyRules::min_length`](super::KeyRules::min_length) asks for.
    #[error("the key is shorter than this endpoint accepts")]
    TooShort,
    /// Not a UUID where [`KeyRules::uuid_only`](super::KeyRules::uuid_only) asks for one.
    #[error("the key is not a UUID in the form 8-4-4-4-12 hexadecimal digits")]
    NotUuid,
    /// A byte below 0x20, or 0x7f.
    #[error("the key holds a control character")]
    ControlCharacter,
    /// A byte above 0x7f.
    #[error("the key holds a character outside ASCII")]
    NotAscii,
    /// A value that starts with a double quote and has no closing one.
    #[error("the key starts with a double quote that is not closed")]
    UnclosedQuote,
    /// A backslash in a quoted key that is followed by neither a double quote nor a backslash.
    #[error("the quoted key has a backslash that escapes neither a double quote nor a backslash")]
    BadEscape,
    /// Something after the closing quote that is not a parameter.
    #[error("there is text after the key's closing double quote")]
    TextAfterQuote,
    /// A parameter after the closing quote that RFC 9651 section 4.2.3.2 does not allow.
    #[error("a parameter after the quoted key is malformed")]
    BadParameter,
    /// A bare key with a double quote inside.
    #[error("a key without surrounding double quotes may not contain one")]
    StrayQuote,
    /// A comma-joined list, or several header lines.
    #[error("there is more than one key; send exactly one, and quote it if it contains a comma")]
    SeveralValues,
}
