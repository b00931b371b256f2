//! Redrives and discards.

use std::collections::BTreeSet;

use idempotency::outbox::{DeadLetters, Outbox};
use idempotency::{Error, OutboxDialect};
use serde_json::json;
use uuid::Uuid;

use crate::arguments::{Arguments, EventArguments};
use crate::confirm::confirmed;
use crate::failure::Failure;
use crate::{output, progress, show};

/// So many dead letters a statement.
const BATCH: u32 = 500;

#[derive(Clone, Copy)]
pub(crate) enum Change {
    Redrive,
    Discard,
}

impl Change {
    fn done(self) -> &'static str {
        match self {
            Self::Redrive => "redriven",
            Self::Discard => "discarded",
        }
    }

    fn asked(self, what: &str) -> String {
        match self {
            Self::Redrive => format!("Publish {what} anew?"),
            Self::Discard => format!("Drop {what} for good?"),
        }
    }

    async fn one<DB: OutboxDialect>(self, outbox: &Outbox<DB>, id: Uuid) -> Result<bool, Error> {
        match self {
            Self::Redrive => outbox.redrive(id).await,
            Self::Discard => outbox.discard(id).await,
        }
    }

    async fn some<DB: OutboxDialect>(
        self,
        outbox: &Outbox<DB>,
        letters: &DeadLetters,
        most: u32,
    ) -> Result<u64, Error> {
        match self {
            Self::Redrive => outbox.redrive_dead(letters, most).await,
            Self::Discard => outbox.discard_dead(letters, most).await,
        }
    }
}

/// Whether it is clear which events are meant.
pub(crate) fn check(events: &EventArguments) -> Result<(), Failure> {
    match (events.ids.is_empty(), events.which.is_empty(), events.all) {
        (false, true, false) if events.dry_run || events.limit.is_some() => {
            Err(Failure::usage("--dry-run and --limit are for dead letters, not for ids"))
        }
        (false, true, false) | (true, false, false) | (true, true, true) => Ok(()),
        _ => Err(Failure::usage("name either ids, or which dead letters (--destination …), or --all of them")),
    }
}

pub(crate) async fn events<DB: OutboxDialect>(
    outbox: &Outbox<DB>,
    arguments: &Arguments,
    events: &EventArguments,
    change: Change,
) -> Result<(), Failure> {
    if events.ids.is_empty() {
        return letters(outbox, arguments, events, change).await;
    }
    let ids: BTreeSet<Uuid> = events.ids.iter().copied().collect();
    by_id(outbox, arguments, &ids, change).await
}

/// Failing events and dead letters.
async fn by_id<DB: OutboxDialect>(
    outbox: &Outbox<DB>,
    arguments: &Arguments,
    ids: &BTreeSet<Uuid>,
    change: Change,
) -> Result<(), Failure> {
    let all = show::number(u64::try_from(ids.len()).unwrap_or(u64::MAX), "event");
    confirmed(arguments, &change.asked(&all))?;
    let (mut done, mut unknown, mut failed) = (0_u64, Vec::new(), None);
    for id in ids {
        match change.one(outbox, *id).await {
            Ok(true) => done += 1,
            Ok(false) => unknown.push(id.to_string()),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    // What was done before a failure is done.
    if arguments.json {
        output::line(json!({ change.done(): done, "unknown": unknown }))?;
    } else {
        output::line(format_args!("{} {}", show::number(done, "event"), change.done()))?;
        unknown.iter().try_for_each(|id| output::line(format_args!("{id} is no failing event and no dead letter")))?;
    }
    match failed {
        Some(error) => Err(error.into()),
        None if unknown.is_empty() => Ok(()),
        None => Err(Failure::NothingMatched),
    }
}

/// Those that are dead now: what dies again meanwhile comes last, and is for the next run.
async fn letters<DB: OutboxDialect>(
    outbox: &Outbox<DB>,
    arguments: &Arguments,
    events: &EventArguments,
    change: Change,
) -> Result<(), Failure> {
    let letters = events.which.letters();
    let counting = progress::waiting(arguments, "counting");
    let total = outbox.count_dead(&letters, events.limit.unwrap_or(u32::MAX)).await;
    counting.finish_and_clear();
    let total = total?;
    if events.dry_run {
        if arguments.json {
            output::line(json!({ "dead": total }))?;
        } else {
            output::line(show::number(total, "dead letter"))?;
        }
        return if total == 0 { Err(Failure::NothingMatched) } else { Ok(()) };
    }
    let (done, ended) = if total == 0 {
        (0, Ok(()))
    } else {
        confirmed(arguments, &change.asked(&show::number(total, "dead letter")))?;
        in_batches(outbox, arguments, &letters, total, change).await
    };
    // What was done before a failure is done.
    if arguments.json {
        output::line(json!({ change.done(): done }))?;
    } else {
        output::line(format_args!("{} {}", show::number(done, "dead letter"), change.done()))?;
    }
    ended?;
    if done == 0 { Err(Failure::NothingMatched) } else { Ok(()) }
}

/// How many it were, and why not all.
async fn in_batches<DB: OutboxDialect>(
    outbox: &Outbox<DB>,
    arguments: &Arguments,
    letters: &DeadLetters,
    total: u64,
    change: Change,
) -> (u64, Result<(), Error>) {
    let progress = progress::towards(arguments, total, "dead letters");
    let mut done = 0;
    while done < total {
        let most = u32::try_from(total - done).unwrap_or(BATCH).min(BATCH);
        match change.some(outbox, letters, most).await {
            Ok(0) => break,
            Ok(now) => done += now,
            Err(error) => {
                progress.finish_and_clear();
                return (done, Err(error));
            }
        }
        progress.set_position(done);
    }
    progress.finish_and_clear();
    (done, Ok(()))
}
