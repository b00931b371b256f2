//! What the broker's word means for the one event of its channel.

use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::{Confirmation, Error, ErrorKind};

use crate::outbox::publish::{Answer, Reason};

pub(super) fn confirmed(confirmation: &Confirmation) -> Answer {
    match confirmation {
        Confirmation::Ack(None) => Answer::ACKED,
        // The broker confirms what it returns: it is done with it.
        Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_)) => Answer::refused(Reason::Unroutable),
        Confirmation::Nack(None) => Answer::UNAVAILABLE,
        Confirmation::NotRequested => Answer::Unknown,
    }
}

/// A channel is closed because of what was last sent on it. Everything else is the connection's end.
pub(super) fn failed(error: &Error) -> Answer {
    let ErrorKind::ProtocolError(error) = error.kind() else { return Answer::Unknown };
    let AMQPErrorKind::Soft(error) = error.kind() else { return Answer::Unknown };
    match error {
        AMQPSoftError::NOTFOUND => Answer::refused(Reason::Missing),
        AMQPSoftError::ACCESSREFUSED => Answer::refused(Reason::Denied),
        AMQPSoftError::CONTENTTOOLARGE => Answer::never(Reason::TooLarge),
        // Too large as well, since RabbitMQ 3.8, or a property that the broker does not accept.
        AMQPSoftError::PRECONDITIONFAILED => Answer::never(Reason::Rejected),
        AMQPSoftError::RESOURCELOCKED => Answer::refused(Reason::Rejected),
        AMQPSoftError::NOROUTE | AMQPSoftError::NOCONSUMERS => Answer::refused(Reason::Unroutable),
    }
}

#[cfg(test)]
mod tests {
    use lapin::protocol::{AMQPError, AMQPHardError};

    use super::*;

    // M34, case B10: by codes.
    #[test]
    fn what_closes_a_channel_and_what_closes_a_connection() {
        let failed = |kind: AMQPErrorKind| {
            super::failed(&ErrorKind::ProtocolError(AMQPError::new(kind, "in any language".into())).into())
        };
        assert_eq!(failed(AMQPSoftError::NOTFOUND.into()), Answer::refused(Reason::Missing));
        assert_eq!(failed(AMQPSoftError::ACCESSREFUSED.into()), Answer::refused(Reason::Denied));
        assert_eq!(failed(AMQPSoftError::PRECONDITIONFAILED.into()), Answer::never(Reason::Rejected));
        assert_eq!(failed(AMQPHardError::CONNECTIONFORCED.into()), Answer::Unknown);
        assert_eq!(super::failed(&ErrorKind::MissingHeartbeatError.into()), Answer::Unknown);
        assert_eq!(confirmed(&Confirmation::Nack(None)), Answer::UNAVAILABLE);
        assert_eq!(confirmed(&Confirmation::NotRequested), Answer::Unknown);
    }
}
