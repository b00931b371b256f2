//! Events for people and for programs. Payloads are not shown.

use std::time::Duration;

use idempotency::outbox::{DeadLetter, FailingEvent, PendingEvent, Stats};
use serde_json::{Value, json};

use super::count;
use crate::arguments::Where;
use crate::failure::Failure;
use crate::{output, show};

pub(crate) fn stats(stats: &Stats, paused: &[(String, Option<String>)], as_json: bool) -> Result<(), Failure> {
    let counts = [
        ("pending", stats.pending),
        ("failing", stats.failing),
        ("blocked", stats.blocked),
        ("deferred", stats.deferred),
        ("dead", stats.dead),
    ];
    if as_json {
        let paused = paused.iter().map(|(destination, key)| json!({ "destination": destination, "key": key }));
        let mut document = json!({
            "oldest_age_seconds": stats.oldest_age.map(|age| age.as_secs_f64()),
            "paused": paused.collect::<Vec<_>>(),
        });
        for (name, number) in counts {
            document[name] = show::count(count(number));
        }
        return output::line(document);
    }
    for (name, number) in counts {
        let oldest = stats.oldest_age.filter(|_| name == "pending");
        let oldest = oldest.map_or_else(String::new, |age| format!(", the oldest for {}", show::time(age)));
        output::line(format_args!("{name:<10} {}{oldest}", count(number)))?;
    }
    for (destination, key) in paused {
        let place = Where { destination: destination.clone(), key: key.clone() };
        output::line(format_args!("paused     {}", self::place(&place)))?;
    }
    Ok(())
}

/// What a pause holds back.
pub(crate) fn place(place: &Where) -> String {
    match &place.key {
        None => format!("all events for {:?}", place.destination),
        Some(key) => format!("events of key {key:?} for {:?}", place.destination),
    }
}

pub(crate) fn failing(events: &[FailingEvent], as_json: bool) -> Result<(), Failure> {
    let each = events.iter().map(|failing| {
        let state = if failing.blocked { "blocked" } else { "failing" };
        (&failing.pending, state, failing.attempts, failing.failing_for, &*failing.error)
    });
    list(each, as_json)
}

pub(crate) fn dead(letters: &[DeadLetter], as_json: bool) -> Result<(), Failure> {
    list(letters.iter().map(|dead| (&dead.event, "dead", dead.attempts, dead.dead_for, &*dead.error)), as_json)
}

type Seen<'a> = (&'a PendingEvent, &'static str, u32, Duration, &'a str);

fn list<'a>(each: impl Iterator<Item = Seen<'a>>, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return output::line(Value::Array(each.map(document).collect()));
    }
    for (pending, state, attempts, since, error) in each {
        let event = pending.event();
        let key = event.key_ref().map_or_else(String::new, |key| format!(" of key {key:?}"));
        output::line(format_args!(
            "{state:<8} {} {:?}{key} for {:?}; {}, for {}: {}",
            pending.id(),
            event.kind(),
            event.destination(),
            show::number(attempts, "attempt"),
            show::time(since),
            show::plain(error),
        ))?;
    }
    Ok(())
}

fn document((pending, state, attempts, since, error): Seen<'_>) -> Value {
    let event = pending.event();
    json!({
        "id": pending.id().to_string(),
        "state": state,
        "destination": event.destination(),
        "topic": event.topic(),
        "type": event.kind(),
        "key": event.key_ref(),
        "attempts": attempts,
        "since_seconds": since.as_secs_f64(),
        "error": error,
    })
}
