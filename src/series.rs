//! Every series of metrics, in one place: names, kinds, labels, and the calls that count.
//!
//! Without the feature `metrics` each call is nothing. Labels have values from sets that are fixed when a process starts:
//! names in this crate's text, and names that the host gives to its tables, layers, inboxes and destinations when it builds
//! them. Nothing of a request is among them (H9), not even the template of its path: a layer's name is text of the host's
//! source.

#[cfg(any(feature = "metrics", feature = "postgres", feature = "sqlite", feature = "mysql"))]
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "metrics")]
use crate::events::{Kind, Of};

#[cfg(any(feature = "metrics", test))]
mod name {
    /// Events by name: see `events`.
    pub(super) const EVENTS: &str = "idempotency_events_total";
    pub(super) const CLAIM: &str = "idempotency_claim_seconds";
    pub(super) const SETTLE: &str = "idempotency_settle_seconds";
    pub(super) const RUNNING: &str = "idempotency_running";
    pub(super) const DETACHED: &str = "idempotency_detached";
    pub(super) const WAITING: &str = "idempotency_waiting";
    pub(super) const RENEWALS: &str = "idempotency_lease_renewals_total";
    pub(super) const PURGED: &str = "idempotency_purged_rows_total";
    pub(super) const PURGE_LAG: &str = "idempotency_purge_lag_seconds";
    #[cfg(any(test, feature = "postgres", feature = "sqlite", feature = "mysql"))]
    pub(super) const PUBLISHED: &str = "idempotency_outbox_published_total";
    #[cfg(any(test, feature = "postgres", feature = "sqlite", feature = "mysql"))]
    pub(super) const FAILED: &str = "idempotency_outbox_failed_attempts_total";
    #[cfg(any(test, feature = "postgres", feature = "sqlite", feature = "mysql"))]
    pub(super) const EVENTS_OF_OUTBOX: &str = "idempotency_outbox_events";
    #[cfg(any(test, feature = "postgres", feature = "sqlite", feature = "mysql"))]
    pub(super) const OLDEST: &str = "idempotency_outbox_oldest_seconds";
}

/// Name, kind, label, what it says: the table of `docs/telemetry.md`, which a test compares with it.
#[cfg(test)]
pub(crate) const ALL: &[[&str; 4]] = &[
    [name::EVENTS, "counter", "`event`, `route`, `consumer`, `destination`", "what has happened: see below"],
    [name::CLAIM, "histogram", "`outcome`, `route`", "how long the store took to answer a claim"],
    [name::SETTLE, "histogram", "`outcome`, `route`", "how long it took to store an answer and commit"],
    [name::RUNNING, "gauge", "", "handlers that run under a key now"],
    [name::DETACHED, "gauge", "", "those among them, and claims, whose client has left"],
    [name::WAITING, "gauge", "", "requests that wait for another one of their key"],
    [name::RENEWALS, "counter", "`outcome`", "renewals of leases: `renewed`, `failed` or `lost`"],
    [name::PURGED, "counter", "`table`", "rows that a purger has deleted, by the name you gave the table"],
    [name::PURGE_LAG, "gauge", "`table`", "how long the oldest expired row waits for its purge"],
    [name::PUBLISHED, "counter", "`destination`", "events that a destination has acked, by this process"],
    [name::FAILED, "counter", "`destination`", "attempts to publish that have failed and counted"],
    [
        name::EVENTS_OF_OUTBOX,
        "gauge",
        "`state`",
        "events: `pending`, `failing`, `blocked`, `deferred`, `dead`; 10,000 stands for more",
    ],
    [name::OLDEST, "gauge", "", "the age of the oldest pending event"],
];

/// An event has happened.
#[cfg(feature = "metrics")]
pub(crate) fn event(event: &'static str, of: Of<'_>) {
    let counter = match of {
        Of::Process => metrics::counter!(name::EVENTS, "event" => event),
        Of::Route(route) => metrics::counter!(name::EVENTS, "event" => event, "route" => route),
        Of::Named(kind, name) => {
            let label = match kind {
                Kind::Consumer => "consumer",
                Kind::Destination => "destination",
            };
            metrics::counter!(name::EVENTS, "event" => event, label => Arc::clone(name))
        }
    };
    counter.increment(1);
}

/// How long something took, of a layer that has a name or none.
#[cfg(feature = "metrics")]
fn took(name: &'static str, outcome: &'static str, route: Option<&'static str>, took: Duration) {
    let histogram = match route {
        None => metrics::histogram!(name, "outcome" => outcome),
        Some(route) => metrics::histogram!(name, "outcome" => outcome, "route" => route),
    };
    histogram.record(took.as_secs_f64());
}

/// A claim was answered.
pub(crate) fn claimed(outcome: &'static str, route: Option<&'static str>, after: Duration) {
    #[cfg(feature = "metrics")]
    took(name::CLAIM, outcome, route, after);
    let _ = (outcome, route, after);
}

/// When something began that is measured; nothing where nobody measures.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch {
    #[cfg(feature = "metrics")]
    began: std::time::Instant,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self {
            #[cfg(feature = "metrics")]
            began: std::time::Instant::now(),
        }
    }

    /// A settlement was answered.
    pub(crate) fn settled(self, outcome: &'static str, route: Option<&'static str>) {
        #[cfg(feature = "metrics")]
        took(name::SETTLE, outcome, route, self.began.elapsed());
        let _ = (outcome, route);
    }
}

/// One more while it lives.
macro_rules! counted {
    ($($(#[$doc:meta])* $guard:ident: $name:ident;)*) => {
        $(
            $(#[$doc])*
            pub(crate) struct $guard(());

            impl $guard {
                pub(crate) fn begin() -> Self {
                    #[cfg(feature = "metrics")]
                    metrics::gauge!(name::$name).increment(1.0);
                    Self(())
                }
            }

            impl Drop for $guard {
                fn drop(&mut self) {
                    #[cfg(feature = "metrics")]
                    metrics::gauge!(name::$name).decrement(1.0);
                }
            }
        )*
    };
}

counted! {
    /// A handler that runs.
    Running: RUNNING;
    /// A request that waits.
    Waiting: WAITING;
}

/// The two ends of a request that runs apart from its client: whichever is dropped last.
#[cfg(feature = "metrics")]
pub(crate) mod detached {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU8, Ordering};

    const LEFT: u8 = 1;
    const ENDED: u8 = 2;

    pub(crate) struct Client(Arc<AtomicU8>);
    pub(crate) struct Story(Arc<AtomicU8>);

    pub(crate) fn pair() -> (Client, Story) {
        let state = Arc::new(AtomicU8::new(0));
        (Client(Arc::clone(&state)), Story(state))
    }

    impl Drop for Client {
        fn drop(&mut self) {
            if self.0.swap(LEFT, Ordering::AcqRel) != ENDED {
                metrics::gauge!(super::name::DETACHED).increment(1.0);
            }
        }
    }

    impl Drop for Story {
        fn drop(&mut self) {
            if self.0.swap(ENDED, Ordering::AcqRel) == LEFT {
                metrics::gauge!(super::name::DETACHED).decrement(1.0);
            }
        }
    }
}

/// A lease was renewed, or not.
pub(crate) fn renewal(outcome: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!(name::RENEWALS, "outcome" => outcome).increment(1);
    let _ = outcome;
}

/// Rows that a purger has deleted from one of its tables.
pub(crate) fn purged(table: &'static str, rows: u64) {
    #[cfg(feature = "metrics")]
    metrics::counter!(name::PURGED, "table" => table).increment(rows);
    let _ = (table, rows);
}

/// How long the oldest expired row of a table has been waiting for its purge, as far as the last batch tells.
pub(crate) fn purge_lag(table: &'static str, lag: Duration) {
    #[cfg(feature = "metrics")]
    metrics::gauge!(name::PURGE_LAG, "table" => table).set(lag.as_secs_f64());
    let _ = (table, lag);
}

/// What a relay has published to one of its destinations since it last said so, and attempts that failed.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub(crate) fn relayed(destination: &Arc<str>, published: u64, failed: u64) {
    #[cfg(feature = "metrics")]
    if published + failed > 0 {
        metrics::counter!(name::PUBLISHED, "destination" => Arc::clone(destination)).increment(published);
        metrics::counter!(name::FAILED, "destination" => Arc::clone(destination)).increment(failed);
    }
    let _ = (destination, published, failed);
}

/// How an outbox stands.
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub(crate) fn outbox(stats: &crate::outbox::Stats) {
    #[cfg(feature = "metrics")]
    {
        let states = [
            ("pending", stats.pending),
            ("failing", stats.failing),
            ("blocked", stats.blocked),
            ("deferred", stats.deferred),
            ("dead", stats.dead),
        ];
        for (state, count) in states {
            // Never above `Stats::MOST`.
            metrics::gauge!(name::EVENTS_OF_OUTBOX, "state" => state)
                .set(f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
        }
        metrics::gauge!(name::OLDEST).set(stats.oldest_age.unwrap_or_default().as_secs_f64());
    }
    let _ = stats;
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const GUIDE: &str = include_str!("../docs/telemetry.md");
    const DASHBOARD: &str = include_str!("../docs/grafana.json");

    // Q: names in one table.
    #[test]
    fn the_guide_lists_every_series_and_no_other() {
        let listed: Vec<&str> = GUIDE.lines().filter(|line| line.starts_with("| `idempotency_")).collect();
        let expected: Vec<String> = ALL
            .iter()
            .map(|[name, kind, label, what]| format!("| `{name}` | {kind} | {label} | {what} |").replace("|  |", "| |"))
            .collect();
        assert_eq!(listed, expected);
    }

    #[test]
    fn the_guide_lists_every_event() {
        for name in crate::events::names() {
            assert!(GUIDE.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn the_dashboard_shows_every_series_and_asks_for_no_other() {
        let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
        let of = |series: &str| ALL.iter().find(|[name, ..]| *name == series).map_or("", |[_, _, labels, _]| *labels);
        let mut asked = std::collections::BTreeSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().unwrap() {
                let text = target["expr"].as_str().unwrap();
                let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let labels = text.split("by (").skip(1).flat_map(|by| by.split(')').next().unwrap().split(", "));
                let has = |label: &str| words.clone().any(|word| of(word).contains(&format!("`{label}`")));
                for label in labels.filter(|label| *label != "le") {
                    assert!(has(label), "no series of {text} has {label}");
                }
                for word in words.filter(|word| word.starts_with("idempotency_")) {
                    let word =
                        ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
                    asked.insert(word.to_owned());
                }
            }
        }
        let known: std::collections::BTreeSet<String> = ALL.iter().map(|[name, ..]| (*name).to_owned()).collect();
        assert_eq!(asked, known);
    }
}
