//! What the broker's words on a channel mean for the events on it.

use lapin::message::BasicReturnMessage;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::{Confirmation, Error, ErrorKind};
use uuid::Uuid;

use crate::outbox::publish::{Answer, Reason};

/// What was heard of an event; `None` is nothing.
pub(super) type Heard = Option<lapin::Result<Confirmation>>;

/// What became of the events of a channel.
pub(super) struct Judgement {
    pub(super) answers: Vec<Answer>,
    /// Where the broker closed the channel because of one event: it is among these.
    pub(super) suspects: Vec<Uuid>,
}

/// What became of these events: all that were on a channel, with all that was heard there.
pub(super) fn all(ids: &[Uuid], heard: &[Heard]) -> Judgement {
    // A message comes back before its own confirm, and the client hands it out with the next confirm of any message.
    // So what came back is told by its id, and only with all confirms that are in.
    let returned: Vec<Option<Uuid>> = heard.iter().filter_map(returned).map(id_of).collect();
    let strange = returned.iter().any(|id| id.is_none_or(|id| !ids.contains(&id)));
    let mut answers: Vec<Answer> = (ids.iter().zip(heard))
        .map(|(id, heard)| match heard {
            Some(Ok(Confirmation::Ack(_) | Confirmation::Nack(_))) if returned.contains(&Some(*id)) => {
                // The broker confirms what it returns: it is done with it.
                Answer::refused(Reason::Unroutable)
            }
            Some(Ok(Confirmation::Ack(_))) if !strange => Answer::ACKED,
            Some(Ok(Confirmation::Nack(_))) => Answer::UNAVAILABLE,
            _ => Answer::Unknown,
        })
        .collect();
    let unconfirmed: Vec<(usize, Answer)> = (heard.iter().enumerate())
        .filter_map(|(n, heard)| match heard {
            Some(Ok(_)) => None,
            Some(Err(error)) => Some((n, failed(error))),
            None => Some((n, Answer::Unknown)),
        })
        .collect();
    if let [(n, answer)] = unconfirmed[..] {
        // What closes a channel is never confirmed: it was this one.
        answers[n] = answer;
    }
    let closed = unconfirmed.iter().any(|(_, answer)| *answer != Answer::Unknown);
    let suspects = unconfirmed.iter().filter(|_| closed).map(|(n, _)| ids[*n]).collect();
    Judgement { answers, suspects }
}

fn returned(heard: &Heard) -> Option<&BasicReturnMessage> {
    match heard {
        Some(Ok(Confirmation::Ack(message) | Confirmation::Nack(message))) => message.as_ref(),
        _ => None,
    }
}

fn id_of(message: &BasicReturnMessage) -> Option<Uuid> {
    Uuid::try_parse(message.delivery.properties.message_id().as_ref()?.as_str()).ok()
}

/// A channel is closed because of a message on it. Everything else is the connection's end.
fn failed(error: &Error) -> Answer {
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
    }

    // M34: what closes a channel is told of one event where it can be no other.
    #[test]
    fn who_shares_a_channel_that_is_closed_is_unknown_unless_all_others_are_confirmed() {
        let ids: Vec<_> = (0..4).map(Uuid::from_u128).collect();
        let closed = || {
            let kind = AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND);
            Some(Err(ErrorKind::ProtocolError(AMQPError::new(kind, "in any language".into())).into()))
        };
        let ack = || Some(Ok(Confirmation::Ack(None)));
        let of = |heard: &[Heard]| {
            let Judgement { answers, suspects } = all(&ids[..heard.len()], heard);
            (answers, suspects.len())
        };
        let missing = Answer::refused(Reason::Missing);
        assert_eq!(of(&[closed()]), (vec![missing], 1));
        assert_eq!(of(&[ack(), closed(), ack()]), (vec![Answer::ACKED, missing, Answer::ACKED], 1));
        let unknown = Answer::Unknown;
        assert_eq!(of(&[ack(), closed(), closed()]), (vec![Answer::ACKED, unknown, unknown], 2));
        assert_eq!(of(&[ack(), closed(), None]), (vec![Answer::ACKED, unknown, unknown], 2));
        let lost = || Some(Err(ErrorKind::MissingHeartbeatError.into()));
        assert_eq!(of(&[ack(), lost(), lost()]), (vec![Answer::ACKED, unknown, unknown], 0));
        assert_eq!(of(&[ack(), None]), (vec![Answer::ACKED, unknown], 0));
        let (nack, not_asked) = (Some(Ok(Confirmation::Nack(None))), Some(Ok(Confirmation::NotRequested)));
        assert_eq!(of(&[nack, not_asked]), (vec![Answer::UNAVAILABLE, unknown], 0));
    }
}
