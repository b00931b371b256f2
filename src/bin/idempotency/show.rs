//! Records for people and for programs.

use std::time::Duration;

use idempotency::policy::State;
use idempotency::store::{Count, Entry, Holder};
use serde_json::{Value, json};

/// Prints records, and sessions that hold keys which cannot be seen.
pub(crate) fn list(entries: &[Entry], holders: &[Holder], as_json: bool) {
    if as_json {
        let sessions = holders.iter().map(|holder| json!({ "state": "running", "holder": session(holder) }));
        println!("{}", Value::Array(entries.iter().map(record).chain(sessions).collect()));
        return;
    }
    for entry in entries {
        println!("{}", line(entry));
    }
    for holder in holders {
        println!("running   a key that only its own transaction sees, held by {}", held_by(holder));
    }
}

/// One record on one line.
pub(crate) fn line(entry: &Entry) -> String {
    let lookup = &entry.lookup;
    let mut text = format!(
        "{:<9} key {:?} of {:?}, {}; attempt {}, {} old",
        state(entry.state),
        lookup.key().as_str(),
        lookup.scope().as_str(),
        if lookup.endpoint().as_str().is_empty() { "any endpoint" } else { lookup.endpoint().as_str() },
        entry.attempt,
        time(entry.age),
    );
    if let Some(status) = entry.status {
        text += &format!("; answered {}", status.as_u16());
    }
    if let Some(step) = &entry.step {
        text += &format!("; done as far as {step:?}");
    }
    if let Some(left) = entry.lease_left {
        text += &format!("; its lease ends in {}", time(left));
    }
    match &entry.holder {
        Some(holder) => text += &format!("; held by {}", held_by(holder)),
        None => text += &format!("; kept for {}", time(entry.expires_in)),
    }
    text
}

fn held_by(holder: &Holder) -> String {
    let client = holder.client.as_deref().unwrap_or("a local client");
    format!("database session {} of {client}, open for {}", holder.pid, time(holder.open_for))
}

fn record(entry: &Entry) -> Value {
    json!({
        "scope": entry.lookup.scope().as_str(),
        "key": entry.lookup.key().as_str(),
        "endpoint": entry.lookup.endpoint().as_str(),
        "state": state(entry.state),
        "attempt": entry.attempt,
        "fence": entry.fence.map(|fence| fence.0),
        "age_seconds": entry.age.as_secs_f64(),
        "expires_in_seconds": entry.expires_in.as_secs_f64(),
        "lease_left_seconds": entry.lease_left.map(|left| left.as_secs_f64()),
        "status": entry.status.map(|status| status.as_u16()),
        "step": entry.step,
        "holder": entry.holder.as_ref().map(session),
    })
}

fn session(holder: &Holder) -> Value {
    json!({ "pid": holder.pid, "open_for_seconds": holder.open_for.as_secs_f64(), "client": holder.client })
}

fn state(state: State) -> &'static str {
    match state {
        State::Running => "running",
        State::Lapsed => "lapsed",
        State::Unknown => "unknown",
        State::Completed => "completed",
        State::Orphaned => "orphaned",
    }
}

/// A number and what it is worth, for programs.
pub(crate) fn count(count: Count) -> Value {
    let is = match count {
        Count::Exactly(_) => "exact",
        Count::AtLeast(_) => "at_least",
        Count::About(_) => "estimate",
    };
    json!({ "count": count.number(), "is": is })
}

/// The same for people, where there may be none.
pub(crate) fn or_unknown(count: Option<Count>) -> String {
    count.map_or_else(|| "not counted: the table is large, see --exact".to_owned(), |count| count.to_string())
}

/// Says that a change was made.
pub(crate) fn done(as_json: bool, what: &str) {
    if as_json {
        println!("{}", json!({ what: true }));
    } else {
        println!("{what}");
    }
}

/// In the largest unit that leaves a whole number of some size.
pub(crate) fn time(time: Duration) -> String {
    match time.as_secs() {
        0..120 => format!("{} s", time.as_secs()),
        120..7200 => format!("{} min", time.as_secs() / 60),
        7200..172_800 => format!("{} h", time.as_secs() / 3600),
        seconds => format!("{} d", seconds / 86400),
    }
}
