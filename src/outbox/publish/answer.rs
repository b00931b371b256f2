//! What became of an event that was handed to a destination.

use std::fmt;
use std::time::Duration;

/// What became of one attempt to publish an event.
///
/// A publisher must be sure of what it says: in doubt it is [`Unknown`](Self::Unknown). It tells by kinds of errors
/// (codes, statuses, types), never by their text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The destination has it, durably as far as that destination knows the word.
    Acked {
        /// The destination has said that it had the event already and kept no second copy. That is delivered as well.
        duplicate: bool,
    },
    /// The destination has judged this very event and does not take it. It was not kept.
    Refused {
        /// It will be refused however often it is sent. Otherwise it is tried again until its attempts are used up.
        permanent: bool,
        /// The kind of the refusal.
        reason: Reason,
    },
    /// The destination takes nothing at the moment: it cannot be reached, is overloaded, or asks to wait. Never counted
    /// as an attempt of the event.
    Unavailable {
        /// How long the destination itself asks to wait.
        retry_after: Option<Duration>,
    },
    /// It was sent, or may have been, and no answer came. The destination may have it.
    Unknown,
}

impl Answer {
    /// Taken, for the first time as far as the destination says.
    pub const ACKED: Self = Self::Acked { duplicate: false };
    /// Nothing can be published at the moment, and nobody said for how long.
    pub const UNAVAILABLE: Self = Self::Unavailable { retry_after: None };

    /// This event will never be taken.
    #[must_use]
    pub const fn never(reason: Reason) -> Self {
        Self::Refused { permanent: true, reason }
    }

    /// This event was not taken; somebody may set that right.
    #[must_use]
    pub const fn refused(reason: Reason) -> Self {
        Self::Refused { permanent: false, reason }
    }

    /// Whether the destination has the event for certain.
    #[must_use]
    pub const fn is_acked(self) -> bool {
        matches!(self, Self::Acked { .. })
    }
}

/// The kind of a refusal. Shown as a short name, for operators and metrics; it never carries text of a broker or of an
/// event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The destination is there and nobody would keep the event: no queue is bound, no stream takes the subject.
    Unroutable,
    /// Larger than the destination takes.
    TooLarge,
    /// What it was sent to does not exist: an exchange, a stream, a topic.
    Missing,
    /// Credentials or rights do not allow it.
    Denied,
    /// The protocol cannot express it: a topic with a space, a header with a line break.
    Malformed,
    /// The destination looked at it and said no.
    Rejected,
    /// An HTTP status that is a refusal.
    Status(u16),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unroutable => f.write_str("unroutable"),
            Self::TooLarge => f.write_str("too_large"),
            Self::Missing => f.write_str("missing"),
            Self::Denied => f.write_str("denied"),
            Self::Malformed => f.write_str("malformed"),
            Self::Rejected => f.write_str("rejected"),
            Self::Status(status) => write!(f, "status_{status}"),
        }
    }
}
