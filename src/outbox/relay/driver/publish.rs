//! One attempt at an event.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::super::plan::Reply;
use super::super::plan::schedule::Handout;
use super::told::{Load, Told};
use crate::db::OutboxDialect;
use crate::layer::unwind::Caught;
use crate::outbox::Outbox;
use crate::outbox::publish::{Answer, Publisher};

/// Hands an event to its publisher, under the relay's own deadline too. A publisher's panic is an outcome that
/// nobody knows.
pub(super) async fn publish<DB: OutboxDialect>(
    outbox: Outbox<DB>,
    publisher: Arc<dyn Publisher>,
    handout: Handout<Load>,
    limit: Duration,
) -> Told {
    // The codec is the host's, and may panic as a publisher may. Nothing was sent then.
    let decoded = Caught::calling(|| ready(outbox.decoded(handout.row.event.as_ref().clone()))).await;
    let Ok(Ok(event)) = decoded else {
        let error = "the stored payload cannot be decoded".into();
        return Told::Answered { handout, reply: Reply::Refused { permanent: false }, duplicate: false, error };
    };
    let attempt = Caught::calling(|| publisher.publish(Arc::new(event)));
    let (reply, duplicate, error): (Reply, bool, Arc<str>) = match timeout(limit, attempt).await {
        Ok(Ok(Answer::Acked { duplicate })) => (Reply::Acked, duplicate, "".into()),
        Ok(Ok(Answer::Refused { permanent, reason })) => {
            (Reply::Refused { permanent }, false, format!("refused: {reason}").into())
        }
        Ok(Ok(Answer::Unavailable { retry_after })) => {
            (Reply::Unavailable { retry_after }, false, "unavailable".into())
        }
        Ok(Ok(Answer::Unknown)) => (Reply::Unknown, false, "no answer".into()),
        Ok(Err(_panic)) => (Reply::Unknown, false, "the publisher panicked".into()),
        Err(_elapsed) => (Reply::Unknown, false, "no answer in time".into()),
    };
    Told::Answered { handout, reply, duplicate, error }
}
