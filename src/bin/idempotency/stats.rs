//! How the records stand.

use idempotency::store::{Count, KeyStats, Operate};
use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::place::Place;
use crate::{output, progress, show};

pub(crate) async fn stats(place: &Place, arguments: &Arguments, exact: bool) -> Result<(), Failure> {
    let progress = progress::waiting(arguments, "counting");
    let stats = place.store.stats(most(exact)).await;
    progress.finish_and_clear();
    let stats = stats?;
    if arguments.json {
        return output::line(as_json(&stats));
    }
    output::line(format_args!("records    {}", stats.records))?;
    output::line(format_args!("expired    {}{}", stats.expired, overdue(stats.overdue)))?;
    for (name, count) in states(&stats) {
        output::line(format_args!("{name:<10} {}", show::or_unknown(count)))?;
    }
    Ok(())
}

/// How far a count may go.
pub(crate) fn most(exact: bool) -> u64 {
    if exact { u64::MAX } else { KeyStats::MOST }
}

/// What is told of expired rows beside their number.
pub(crate) fn overdue(overdue: Option<std::time::Duration>) -> String {
    overdue.map_or_else(String::new, |overdue| format!(", the longest for {}", show::time(overdue)))
}

fn states(stats: &KeyStats) -> [(&'static str, Option<Count>); 5] {
    [
        ("running", stats.running),
        ("lapsed", stats.lapsed),
        ("unknown", stats.unknown),
        ("orphaned", stats.orphaned),
        ("completed", stats.completed),
    ]
}

fn as_json(stats: &KeyStats) -> Value {
    let mut text = json!({
        "records": show::count(stats.records),
        "expired": show::count(stats.expired),
        "overdue_seconds": stats.overdue.map(|overdue| overdue.as_secs_f64()),
    });
    for (name, count) in states(stats) {
        text[name] = count.map_or(Value::Null, show::count);
    }
    text
}
