//! Redrives and discards.

use idempotency::outbox::{DeadLetters, Outbox};
use idempotency::{Error, OutboxDialect};
use serde_json::json;
use uuid::Uuid;

use crate::arguments::{Arguments, EventArguments};
use crate::confirm::confirmed;
use crate::failure::Failure;
use crate::progress;

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

pub(crate) async fn events<DB: OutboxDialect>(
    outbox: &Outbox<DB>,
    arguments: &Arguments,
    events: &EventArguments,
    change: Change,
) -> Result<(), Failure> {
    match (events.ids.is_empty(), events.which.is_empty(), events.all) {
        (false, true, false) if events.dry_run => {
            Err(Failure::usage("a dry run counts dead letters, and takes no ids"))
        }
        (false, true, false) => by_id(outbox, arguments, &events.ids, change).await,
        (true, false, false) | (true, true, true) => letters(outbox, arguments, events, change).await,
        _ => Err(Failure::usage("name either ids, or which dead letters (--destination …), or --all of them")),
    }
}

/// Failing events and dead letters.
async fn by_id<DB: OutboxDialect>(
    outbox: &Outbox<DB>,
    arguments: &Arguments,
    ids: &[Uuid],
    change: Change,
) -> Result<(), Failure> {
    confirmed(arguments, &change.asked(&format!("{} events", ids.len())))?;
    let (mut done, mut unknown) = (0, Vec::new());
    for id in ids {
        if change.one(outbox, *id).await? {
            done += 1;
        } else {
            unknown.push(id.to_string());
        }
    }
    if arguments.json {
        println!("{}", json!({ change.done(): done, "unknown": unknown }));
    } else {
        println!("{done} events {}", change.done());
        unknown.iter().for_each(|id| println!("{id} is no failing event and no dead letter"));
    }
    if unknown.is_empty() { Ok(()) } else { Err(Failure::NothingMatched) }
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
    let total = outbox.count_dead(&letters, events.limit).await;
    counting.finish_and_clear();
    let total = total?;
    if events.dry_run {
        if arguments.json {
            println!("{}", json!({ "dead": total }));
        } else {
            println!("{total} dead letters");
        }
        return if total == 0 { Err(Failure::NothingMatched) } else { Ok(()) };
    }
    let done = if total == 0 {
        0
    } else {
        confirmed(arguments, &change.asked(&format!("{total} dead letters")))?;
        in_batches(outbox, arguments, &letters, total, change).await?
    };
    if arguments.json {
        println!("{}", json!({ change.done(): done }));
    } else {
        println!("{done} dead letters {}", change.done());
    }
    if done == 0 { Err(Failure::NothingMatched) } else { Ok(()) }
}

async fn in_batches<DB: OutboxDialect>(
    outbox: &Outbox<DB>,
    arguments: &Arguments,
    letters: &DeadLetters,
    total: u64,
    change: Change,
) -> Result<u64, Failure> {
    let progress = progress::towards(arguments, total, "dead letters");
    let mut done = 0;
    while done < total {
        let most = u32::try_from(total - done).unwrap_or(BATCH).min(BATCH);
        let now = change.some(outbox, letters, most).await?;
        if now == 0 {
            break;
        }
        done += now;
        progress.set_position(done);
    }
    progress.finish_and_clear();
    Ok(done)
}
