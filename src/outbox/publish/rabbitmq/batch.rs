//! Events that go out together on one channel.
//!
//! A client cannot pair a message that comes back with its confirm, only with its id. So a batch is closed before the first of
//! it is sent, and its ids are distinct.

use std::mem::replace;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lapin::BasicProperties;
use lapin::types::ShortString;
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;

use super::flight::Flight;
use crate::outbox::PendingEvent;
use crate::outbox::publish::Answer;

/// So many events share a channel at most.
const MOST: usize = 64;
/// So many batches are sent at once. While they are, the next one grows.
const AT_ONCE: usize = 8;

/// An event as it goes out.
#[derive(Clone)]
pub(super) struct Outgoing {
    pub(super) event: Arc<PendingEvent>,
    pub(super) routing_key: ShortString,
    pub(super) properties: BasicProperties,
}

impl Outgoing {
    pub(super) fn id(&self) -> Uuid {
        self.event.id()
    }
}

/// An event of a batch, and who waits for its answer.
pub(super) struct Member {
    pub(super) outgoing: Outgoing,
    pub(super) tell: Tell,
}

pub(super) type Tell = oneshot::Sender<Word>;

/// What is told to whoever waits.
pub(super) enum Word {
    Answer(Answer),
    /// Nobody else listens any more. The answer will come here. (In this order: dropped, it does not go to itself.)
    Listen(oneshot::Receiver<Word>, Flight),
}

/// Where events meet that are published at the same time.
pub(super) struct Gathering {
    last: Mutex<Arc<Batch>>,
    pub(super) turns: Semaphore,
}

pub(super) struct Batch(Mutex<State>);

enum State {
    Open(Vec<Member>),
    /// Its members go out, or went.
    Closed,
    /// Whoever led it is gone, and nothing was sent.
    Left,
}

/// What came of joining: the answer will come here.
pub(super) struct Seat {
    pub(super) answer: oneshot::Receiver<Word>,
    batch: Arc<Batch>,
    /// Who opened the batch sends it.
    pub(super) lead: Option<Lead>,
}

impl Seat {
    /// Nothing was sent, and somebody else has to.
    pub(super) fn was_left(&self) -> bool {
        matches!(*self.batch.lock(), State::Left)
    }
}

/// The duty to send a batch. Dropped, the others of the batch join another one.
pub(super) struct Lead(Arc<Batch>);

impl Gathering {
    pub(super) fn new() -> Self {
        Self { last: Mutex::new(Arc::new(Batch(Mutex::new(State::Closed)))), turns: Semaphore::new(AT_ONCE) }
    }

    pub(super) fn join(&self, outgoing: Outgoing) -> Seat {
        let (tell, answer) = oneshot::channel();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(member) = last.take_in(Member { outgoing, tell }) else {
            return Seat { answer, batch: Arc::clone(&last), lead: None };
        };
        let batch = Arc::new(Batch(Mutex::new(State::Open(vec![member]))));
        *last = Arc::clone(&batch);
        Seat { answer, batch: Arc::clone(&batch), lead: Some(Lead(batch)) }
    }
}

impl Batch {
    /// `Some`: it has no place for this one.
    fn take_in(&self, member: Member) -> Option<Member> {
        match &mut *self.lock() {
            State::Open(members)
                if members.len() < MOST && members.iter().all(|one| one.outgoing.id() != member.outgoing.id()) =>
            {
                members.push(member);
                None
            }
            _ => Some(member),
        }
    }

    fn end(&self, state: State) -> Vec<Member> {
        match replace(&mut *self.lock(), state) {
            State::Open(members) => members,
            State::Closed | State::Left => Vec::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lead {
    /// From now on nobody joins. Who does not wait any more is left out.
    pub(super) fn close(self) -> Vec<Member> {
        let mut members = self.0.end(State::Closed);
        members.retain(|member| !member.tell.is_closed());
        members
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if matches!(*state, State::Open(_)) {
            *state = State::Left;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::message;
    use super::*;
    use crate::outbox::Event;
    use crate::outbox::publish::testing::pending;

    fn outgoing(id: Uuid) -> Outgoing {
        let event = pending(Event::new("out", "", "t", "/s").id(id), SystemTime::now(), 0);
        let (routing_key, properties) = message::parts(&event).unwrap();
        Outgoing { event: event.into(), routing_key, properties }
    }

    fn fresh() -> Outgoing {
        outgoing(Uuid::new_v4())
    }

    #[test]
    fn a_batch_is_closed_has_distinct_ids_and_is_not_too_large() {
        let gathering = Gathering::new();
        let first = outgoing(Uuid::from_u128(1));
        let mut leader = gathering.join(first.clone());
        let _seats: Vec<_> = (1..MOST).map(|_| gathering.join(fresh())).collect();
        let mut beyond = gathering.join(fresh());
        assert_eq!(leader.lead.take().unwrap().close().len(), MOST);
        let twin = [gathering.join(first.clone()), gathering.join(first)];
        assert!(twin[0].lead.is_none() && twin[1].lead.is_some(), "two of one id are not together");
        assert_eq!(beyond.lead.take().unwrap().close().len(), 2);
        assert!(gathering.join(fresh()).lead.is_none(), "the twin's batch is open");
        drop(twin);
        assert!(gathering.join(fresh()).lead.is_some(), "nobody joins what nobody sends");
    }

    #[tokio::test]
    async fn who_is_left_knows_that_nothing_was_sent() {
        let gathering = Gathering::new();
        let (leader, mut follower) = (gathering.join(fresh()), gathering.join(fresh()));
        drop(leader);
        assert!((&mut follower.answer).await.is_err() && follower.was_left());

        let (mut leader, mut follower, gone) =
            (gathering.join(fresh()), gathering.join(fresh()), gathering.join(fresh()));
        drop(gone);
        let members = leader.lead.take().unwrap().close();
        assert_eq!(members.len(), 2, "nothing is sent for who is gone");
        drop(members);
        assert!((&mut follower.answer).await.is_err() && !follower.was_left());
    }
}
