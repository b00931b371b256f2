//! Bodies that can be sent again.

use bytes::Buf;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{Either, Empty, Full, StreamBody};

/// A request body, as far as it can be sent a second time with the same bytes.
///
/// A request whose body cannot be sent again gets one attempt. Implement it for a body type of your own.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whether it can be sent again",
    note = "use `http_body_util::Full`, or implement `RepeatBody` for a body type of your own"
)]
pub trait RepeatBody: Sized {
    /// The same body from its start; `None` where that cannot be had.
    fn repeat(&self) -> Option<Self>;
}

impl<D: Buf + Clone> RepeatBody for Full<D> {
    fn repeat(&self) -> Option<Self> {
        Some(self.clone())
    }
}

impl<D> RepeatBody for Empty<D> {
    fn repeat(&self) -> Option<Self> {
        Some(Self::new())
    }
}

impl RepeatBody for String {
    fn repeat(&self) -> Option<Self> {
        Some(self.clone())
    }
}

impl<L: RepeatBody, R: RepeatBody> RepeatBody for Either<L, R> {
    fn repeat(&self) -> Option<Self> {
        Some(match self {
            Self::Left(body) => Self::Left(body.repeat()?),
            Self::Right(body) => Self::Right(body.repeat()?),
        })
    }
}

/// Never: what is in it is not known.
impl<D, E> RepeatBody for BoxBody<D, E> {
    fn repeat(&self) -> Option<Self> {
        None
    }
}

/// Never: what is in it is not known.
impl<D, E> RepeatBody for UnsyncBoxBody<D, E> {
    fn repeat(&self) -> Option<Self> {
        None
    }
}

/// Never: a stream is read once.
impl<S> RepeatBody for StreamBody<S> {
    fn repeat(&self) -> Option<Self> {
        None
    }
}
