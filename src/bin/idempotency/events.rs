//! Events on their way: how they stand, and what a person decides about them.

mod change;
mod show;

use idempotency::OutboxDialect;
use idempotency::outbox::{Outbox, Stats};
use idempotency::store::Count;
use serde_json::json;

use crate::arguments::{Arguments, OutboxCommand, Where};
use crate::confirm::confirmed;
use crate::failure::Failure;
use crate::output;
use change::Change;

/// The longest name of an event, in bytes. A pause of a longer one would hold nothing back.
const LONGEST: usize = 255;

pub(crate) async fn run<DB: OutboxDialect>(
    outbox: &Outbox<DB>,
    arguments: &Arguments,
    command: &OutboxCommand,
) -> Result<(), Failure> {
    match command {
        OutboxCommand::Stats => {
            let (stats, paused) = (outbox.stats().await?, outbox.paused().await?);
            show::stats(&stats, &paused, arguments.json)
        }
        OutboxCommand::List { dead: true, which, limit } => {
            let letters = outbox.dead_letters(&which.letters(), *limit).await?;
            show::dead(&letters, arguments.json)?;
            matched(letters.len(), *limit)
        }
        OutboxCommand::List { limit, .. } => {
            let events = outbox.failing(*limit).await?;
            show::failing(&events, arguments.json)?;
            matched(events.len(), *limit)
        }
        OutboxCommand::Pause(place) => pause(outbox, arguments, place).await,
        OutboxCommand::Resume(place) => resume(outbox, arguments, place).await,
        OutboxCommand::Redrive(events) => change::events(outbox, arguments, events, Change::Redrive).await,
        OutboxCommand::Discard(events) => change::events(outbox, arguments, events, Change::Discard).await,
    }
}

/// What is wrong before anybody is asked.
pub(crate) fn check(command: &OutboxCommand) -> Result<(), Failure> {
    match command {
        OutboxCommand::List { dead: false, which, .. } if !which.is_empty() => {
            Err(Failure::usage("only dead letters are told apart: give --dead"))
        }
        OutboxCommand::Pause(Where { destination, key }) => {
            let is_name = |text: &str| text.len() <= LONGEST && !text.contains(|c: char| c.is_control());
            if destination.is_empty() || !is_name(destination) || !key.as_deref().is_none_or(is_name) {
                return Err(Failure::usage("no event has such a destination or key (1 to 255 bytes)"));
            }
            Ok(())
        }
        OutboxCommand::Redrive(events) | OutboxCommand::Discard(events) => change::check(events),
        _ => Ok(()),
    }
}

fn matched(number: usize, limit: u32) -> Result<(), Failure> {
    crate::show::limited(number, limit);
    if number == 0 { Err(Failure::NothingMatched) } else { Ok(()) }
}

/// One more than is told stands for all above.
fn count(number: u64) -> Count {
    if number < Stats::MOST { Count::Exactly(number) } else { Count::AtLeast(Stats::MOST) }
}

async fn pause<DB: OutboxDialect>(outbox: &Outbox<DB>, arguments: &Arguments, place: &Where) -> Result<(), Failure> {
    confirmed(arguments, &format!("Hold back {}, for every relay, until they are resumed?", show::place(place)))?;
    match &place.key {
        None => outbox.pause(&place.destination).await?,
        Some(key) => outbox.pause_key(&place.destination, key).await?,
    }
    crate::show::done(arguments.json, "paused")
}

async fn resume<DB: OutboxDialect>(outbox: &Outbox<DB>, arguments: &Arguments, place: &Where) -> Result<(), Failure> {
    let is_meant =
        |(destination, key): &(String, Option<String>)| *destination == place.destination && *key == place.key;
    if !outbox.paused().await?.iter().any(is_meant) {
        if arguments.json {
            output::line(json!({ "resumed": false }))?;
        }
        return Err(Failure::NothingMatched);
    }
    confirmed(arguments, &format!("Go on publishing {}?", show::place(place)))?;
    match &place.key {
        None => outbox.resume(&place.destination).await?,
        Some(key) => outbox.resume_key(&place.destination, key).await?,
    }
    crate::show::done(arguments.json, "resumed")
}
