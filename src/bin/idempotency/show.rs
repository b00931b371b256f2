//! Records for people and for programs.

use std::time::Duration;

use idempotency::policy::State;
use idempotency::store::{Count, Entry, Holder};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output;

/// Prints records, and sessions that hold keys which cannot be seen.
pub(crate) fn list(entries: &[Entry], holders: &[Holder], as_json: bool) -> Result<(), Failure> {
    if as_json {
        let sessions = holders.iter().map(|holder| json!({ "state": "running", "holder": session(holder) }));
        return output::line(Value::Array(entries.iter().map(record).chain(sessions).collect()));
    }
    for entry in entries {
        output::line(line(entry))?;
    }
    for holder in holders {
        output::line(format_args!("running   a key that only its own transaction sees, held by {}", held_by(holder)))?;
    }
    Ok(())
}

/// Says where a list may have more than is shown.
pub(crate) fn limited(shown: usize, limit: u32) {
    if u32::try_from(shown).is_ok_and(|shown| shown >= limit) {
        output::remark(format_args!("idempotency: no more than {limit} are shown, see --limit"));
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
        if lookup.endpoint().as_str().is_empty() {
            "any endpoint".to_owned()
        } else {
            plain(lookup.endpoint().as_str())
        },
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
        // Without a token there is no record yet that could be kept.
        None if entry.token.is_none() => {}
        None => text += &format!("; kept for {}", time(entry.expires_in)),
    }
    text
}

/// What others have written, without what would move a terminal's cursor.
pub(crate) fn plain(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

/// `1 event`, `2 events`.
pub(crate) fn number(number: impl Into<u64>, what: &str) -> String {
    match number.into() {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

fn held_by(holder: &Holder) -> String {
    if holder.open_for.is_zero() {
        return format!("database session {} of another role, of which pg_read_all_stats shows more", holder.pid);
    }
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
        "expires_in_seconds": entry.token.map(|_| entry.expires_in.as_secs_f64()),
        "lease_left_seconds": entry.lease_left.map(|left| left.as_secs_f64()),
        "status": entry.status.map(|status| status.as_u16()),
        "step": entry.step,
        "holder": entry.holder.as_ref().map(session),
    })
}

fn session(holder: &Holder) -> Value {
    let open_for = Some(holder.open_for).filter(|open_for| !open_for.is_zero());
    json!({ "pid": holder.pid, "open_for_seconds": open_for.map(|open_for| open_for.as_secs_f64()), "client": holder.client })
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
pub(crate) fn done(as_json: bool, what: &str) -> Result<(), Failure> {
    if as_json { output::line(json!({ what: true })) } else { output::line(what) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_others_stays_on_its_line() {
        assert_eq!(plain("503 \"büsy\"\n\u{1b}[2J\u{9b}"), "503 \"büsy\"\\n\\u{1b}[2J\\u{9b}");
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!(
            [number(0_u32, "event"), number(1_u32, "event"), number(2_u64, "event")],
            ["0 events", "1 event", "2 events"]
        );
    }

    #[test]
    fn a_time_has_a_unit_of_its_size() {
        let texts = [0, 119, 120, 7199, 7200, 86_400, 172_800].map(|seconds| time(Duration::from_secs(seconds)));
        assert_eq!(texts, ["0 s", "119 s", "2 min", "119 min", "2 h", "24 h", "2 d"]);
    }
}
