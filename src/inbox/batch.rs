//! Accepting many messages in one transaction (M7).

use std::collections::HashMap;

use super::message::is_same;
use super::running::Place;
use super::{Accept, Inbox, InboxDialect, Message};
use crate::db::InTransaction;
use crate::db::inbox::{Met, New, Rows, Whose};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, Of};

/// How many messages [`Inbox::accept_all`] takes at once. On Postgres each of them holds an advisory lock until the
/// transaction ends, and all transactions of a server share one table of locks.
pub const MOST_IN_A_BATCH: usize = 1_000;

/// What is known of a message before the database is asked. Numbers are those of the marks that it is asked for.
#[derive(Clone, Copy)]
enum Asked {
    /// It is this one.
    Mark(usize),
    /// The batch has it already.
    Again(usize),
    /// It runs in this process.
    Running,
}

impl<DB: InboxDialect> Inbox<DB> {
    /// Accepts up to [`MOST_IN_A_BATCH`] messages in a transaction of yours, and tells of each, in their order, what
    /// [`Inbox::accept`] would. One statement for all; on MariaDB up to three where some are there already, and more where
    /// rivals are about; on MySQL two a message. With [`poison_after`](super::InboxBuilder::poison_after) and a broker that
    /// does not count, one more for each message that is here for the first time.
    ///
    /// The second of two equal ids in a batch is a `Duplicate` of the first where the first is accepted, or a `Conflict`
    /// with it.
    ///
    /// A message that turns out to be bad later undoes its neighbours only if you roll the whole transaction back: put each
    /// one's work into a nested transaction to undo it alone. Its mark then stays, unless the nested transaction began
    /// before the message was accepted.
    ///
    /// # Errors
    /// As for [`Inbox::accept`]; [`ErrorKind::Setup`] for more than [`MOST_IN_A_BATCH`] messages. An error is about all of
    /// them.
    ///
    /// # Cancel safety
    /// As for [`Inbox::accept`].
    pub async fn accept_all(
        &self,
        tx: &mut impl InTransaction<DB>,
        messages: &[Message],
    ) -> Result<Vec<Accept<DB>>, Error> {
        if messages.len() > MOST_IN_A_BATCH {
            return Err(Error::with_source(ErrorKind::Setup, "at most 1,000 messages can be accepted at once"));
        }
        let shared = &self.shared;
        let (asked, places, marks) = self.sort(messages);
        let whose = if tx.is_writer() { Whose::Writers } else { Whose::Callers };
        let met =
            if marks.is_empty() { Vec::new() } else { shared.rows.accept(tx.connection(), &marks, whose).await? };
        let mut places = places.into_iter();
        // Of each mark, whether it was made and stands.
        let mut accepted = Vec::with_capacity(marks.len());
        let mut told = Vec::with_capacity(messages.len());
        for (message, asked) in messages.iter().zip(asked) {
            let rival = Met::Rival;
            let (met, mark) = match asked {
                Asked::Mark(number) | Asked::Again(number) => (met.get(number).unwrap_or(&rival), marks.get(number)),
                Asked::Running => (&rival, None),
            };
            let answer = match (met, mark, asked) {
                (Met::Nothing(_), Some(New { own, .. }), Asked::Mark(_)) => {
                    let attempt = shared.attempt(tx.connection(), message, own).await?;
                    let place = places.next();
                    match place {
                        Some(place) if !shared.is_poison(attempt) => {
                            accepted.push(true);
                            Accept::First(shared.guard(own.clone(), place))
                        }
                        _ => {
                            accepted.push(false);
                            shared.rows.retract(tx.connection(), own).await.map_err(DB::Inbox::error)?;
                            Accept::Poison
                        }
                    }
                }
                (Met::Nothing(_), Some(first), Asked::Again(number)) if accepted.get(number) == Some(&true) => {
                    let digest = first.digest.map(|digest| digest.as_bytes().to_vec());
                    same_or_not(is_same(digest.as_deref(), message))
                }
                (Met::Nothing(_), ..) => Accept::Poison,
                (Met::Mark(stored), ..) => same_or_not(is_same(stored.as_deref(), message)),
                (Met::Rival, ..) => Accept::Busy { retry_after: shared.retry_after },
            };
            if let (Asked::Mark(_), Met::Mark(_) | Met::Rival) = (asked, met) {
                accepted.push(false);
                places.next();
            }
            tell(shared.of(), &answer);
            told.push(answer);
        }
        Ok(told)
    }

    /// What is to be asked for, each message once, with its place among those that run in this process.
    fn sort(&self, messages: &[Message]) -> (Vec<Asked>, Vec<Place>, Vec<New>) {
        let (mut seen, mut places, mut marks) = (HashMap::new(), Vec::new(), Vec::new());
        let asked = messages.iter().map(|message| {
            if let Some(asked) = seen.get(message.id()) {
                return match *asked {
                    Asked::Mark(number) => Asked::Again(number),
                    other => other,
                };
            }
            let asked = match self.shared.running.enter(message.id()) {
                None => Asked::Running,
                Some(place) => {
                    places.push(place);
                    marks.push(self.shared.mark(message));
                    Asked::Mark(marks.len() - 1)
                }
            };
            seen.insert(message.id(), asked);
            asked
        });
        (asked.collect(), places, marks)
    }
}

fn same_or_not<DB: InboxDialect>(same: bool) -> Accept<DB> {
    if same { Accept::Duplicate } else { Accept::Conflict }
}

/// Names what was told in logs and counters.
fn tell<DB: InboxDialect>(of: Of<'_>, answer: &Accept<DB>) {
    of.emit(match answer {
        // It is told when it is committed or not.
        Accept::First(_) => return,
        Accept::Duplicate => Event::MessageDuplicate,
        Accept::Busy { .. } => Event::MessageBusy,
        Accept::Conflict => Event::MessageConflict,
        Accept::Poison => Event::MessagePoison,
    });
}
