//! What the broker's words on a channel mean for the events on it.

use lapin::message::BasicReturnMessage;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::{Confirmation, Error, ErrorKind};
use uuid::Uuid;

use crate::outbox::publish::{Answer, Reason};

/// What was heard of an event; `None` is nothing.
pub(super) type Heard = Option<lapin::Result<Confirmation>>;

/// What is known of the events of a channel.
pub(super) struct Judgement {
    /// `None`: nothing yet.
    pub(super) answers: Vec<Option<Answer>>,
    /// Where the broker closed the channel because of one event: it is among these.
    pub(super) suspects: Vec<Uuid>,
}

/// What is known of these events: all that are on a channel, with all that was heard there so far, and nothing left out that
/// was heard before something else.
pub(super) fn all(ids: &[Uuid], heard: &[Heard]) -> Judgement {
    // A message comes back before its own confirm, and the client hands out one that has come back with the next confirm of
    // any message. So what came back is told by its id.
    let returned: Vec<Option<Uuid>> = heard.iter().filter_map(returned).map(id_of).collect();
    let strange = returned.iter().any(|id| id.is_none_or(|id| !ids.contains(&id)));
    let ended = heard.iter().all(Option::is_some);
    let confirmed = heard.iter().all(|heard| matches!(heard, Some(Ok(_))));
    let mut answers: Vec<Option<Answer>> = (ids.iter().zip(heard))
        .map(|(id, heard)| match heard {
            Some(Ok(Confirmation::Ack(_) | Confirmation::Nack(_))) if returned.contains(&Some(*id)) => {
                // The broker confirms what it returns: it is done with it.
                Some(Answer::refused(Reason::Unroutable))
            }
            // A confirm that brought another one's message may have left its own behind, for one of those that are not in.
            Some(Ok(Confirmation::Ack(other))) if !strange && (other.is_none() || confirmed) => Some(Answer::ACKED),
            Some(Ok(Confirmation::Nack(_))) => Some(Answer::UNAVAILABLE),
            Some(Ok(_)) => ended.then_some(Answer::Unknown),
            Some(Err(_)) => Some(Answer::Unknown),
            None => None,
        })
        .collect();
    let unconfirmed: Vec<(usize, Answer)> = (heard.iter().enumerate())
        .filter_map(|(n, heard)| match heard {
            Some(Ok(_)) => None,
            Some(Err(error)) => Some((n, failed(error))),
            None => Some((n, Answer::Unknown)),
        })
        .collect();
    if let [(n, answer)] = unconfirmed[..]
        && heard[n].is_some()
    {
        // What closes a channel is never confirmed: it was this one.
        answers[n] = Some(answer);
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
pub(super) mod tests {
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

    fn ids(most: u128) -> Vec<Uuid> {
        (0..most).map(Uuid::from_u128).collect()
    }

    fn ack() -> Heard {
        Some(Ok(Confirmation::Ack(None)))
    }

    /// A confirm with this message, which had come back.
    pub(in super::super) fn with(id: u128) -> Heard {
        let mut delivery = lapin::message::Delivery::mock(0, "".into(), "nowhere".into(), false, vec![]);
        let text = Uuid::from_u128(id).to_string();
        delivery.properties = std::mem::take(&mut delivery.properties).with_message_id(text.into());
        let message = BasicReturnMessage { delivery, reply_code: 312, reply_text: "NO_ROUTE".into() };
        Some(Ok(Confirmation::Ack(Some(message))))
    }

    // M34: what closes a channel is told of one event where it can be no other.
    #[test]
    fn who_shares_a_channel_that_is_closed_is_unknown_unless_all_others_are_confirmed() {
        let closed = || {
            let kind = AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND);
            Some(Err(ErrorKind::ProtocolError(AMQPError::new(kind, "in any language".into())).into()))
        };
        let of = |heard: &[Heard]| {
            let Judgement { answers, suspects } = all(&ids(heard.len() as u128), heard);
            (answers, suspects.len())
        };
        let (acked, missing) = (Some(Answer::ACKED), Some(Answer::refused(Reason::Missing)));
        assert_eq!(of(&[closed()]), (vec![missing], 1));
        assert_eq!(of(&[ack(), closed(), ack()]), (vec![acked, missing, acked], 1));
        let unknown = Some(Answer::Unknown);
        assert_eq!(of(&[ack(), closed(), closed()]), (vec![acked, unknown, unknown], 2));
        assert_eq!(of(&[ack(), closed(), None]), (vec![acked, unknown, None], 2));
        let lost = || Some(Err(ErrorKind::MissingHeartbeatError.into()));
        assert_eq!(of(&[ack(), lost(), lost()]), (vec![acked, unknown, unknown], 0));
        assert_eq!(of(&[ack(), None]), (vec![acked, None], 0));
        let (nack, not_asked) = (Some(Ok(Confirmation::Nack(None))), Some(Ok(Confirmation::NotRequested)));
        assert_eq!(of(&[nack, not_asked]), (vec![Some(Answer::UNAVAILABLE), unknown], 0));
    }

    // Case B20: the client pairs what came back with any confirm.
    #[test]
    fn what_came_back_is_told_by_its_id_whatever_confirm_brings_it() {
        let of = |heard: &[Heard]| all(&ids(heard.len() as u128), heard).answers;
        let (acked, unroutable) = (Some(Answer::ACKED), Some(Answer::refused(Reason::Unroutable)));
        assert_eq!(of(&[with(1), ack(), ack()]), [acked, unroutable, acked]);
        assert_eq!(of(&[with(1), with(0)]), [unroutable, unroutable]);
        // 0 may have come back too, behind 1, and whatever waits there comes with the confirm that is not in.
        assert_eq!(of(&[with(1), ack(), None]), [None, unroutable, None]);
        assert_eq!(of(&[with(0), ack(), None]), [unroutable, acked, None]);
        let lost = Some(Err(ErrorKind::MissingHeartbeatError.into()));
        assert_eq!(of(&[with(1), ack(), lost]), [Some(Answer::Unknown), unroutable, Some(Answer::Unknown)]);
        // What nobody here has sent: then nothing is sure.
        assert_eq!(of(&[with(7), ack()]), [Some(Answer::Unknown); 2]);
    }
}
