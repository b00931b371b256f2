//! What has expired goes, from every table, and nothing else.

use serde_json::{Value, json};

use super::stats::{many, run};
use super::{code, json, text, tool};
use crate::service::Engine;

/// How an engine writes bytes, a truth and a time.
struct Written {
    bytes: &'static str,
    held: &'static str,
    hour_ago: &'static str,
    long_ago: &'static str,
    to_come: &'static str,
}

impl Written {
    fn on(url: &str) -> Self {
        match url.split_once(':').unwrap().0 {
            "sqlite" => Self {
                bytes: "x'616263'",
                held: "0",
                hour_ago: "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - 3600000000",
                long_ago: "CAST((julianday('now') - 2440627.5) * 86400000000 AS INTEGER)",
                to_come: "9000000000000000",
            },
            "postgres" => Self {
                bytes: r"'\x616263'",
                held: "false",
                hour_ago: "now() - interval '1 hour'",
                long_ago: "now() - interval '40 days'",
                to_come: "now() + interval '1 hour'",
            },
            _ => Self {
                bytes: "x'616263'",
                held: "0",
                hour_ago: "UTC_TIMESTAMP(6) - INTERVAL 1 HOUR",
                long_ago: "UTC_TIMESTAMP(6) - INTERVAL 40 DAY",
                to_come: "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR",
            },
        }
    }

    /// A row that has expired and one that has not, in every table but that of the keys.
    fn rows(&self) -> String {
        let Self { bytes, held, hour_ago, long_ago, to_come } = self;
        let of = |table: &str, columns: &str, values: String| {
            format!("INSERT INTO idempotency_{table} ({columns}) VALUES ({values});")
        };
        let mut text = String::new();
        for (n, expires) in [(1, hour_ago), (2, to_come)] {
            text += &of(
                "leases",
                "scope, id_key, endpoint, state, fingerprint, token, fence, attempt, held, locked_until, accepted_at, expires_at",
                format!("'s', 'k{n}', '', 1, {bytes}, {bytes}, 1, 1, {held}, {long_ago}, {long_ago}, {expires}"),
            );
            let xid = if bytes.starts_with('\'') { (", claim_xid", ", '1'") } else { ("", "") };
            let consumer = if n == 1 { bytes.to_string() } else { bytes.replace("63", "64") };
            text += &of(
                "inbox",
                &format!("consumer, source, id, token, accepted_at, expires_at{}", xid.0),
                format!("{consumer}, {bytes}, {bytes}, {bytes}, {long_ago}, {expires}{}", xid.1),
            );
            text += &of(
                "inbox_failures",
                "consumer, source, id, failures, expires_at",
                format!("{consumer}, {bytes}, {bytes}, 1, {expires}"),
            );
        }
        for (n, died) in [(1, hour_ago), (2, long_ago)] {
            text += &of(
                "outbox_dead",
                "id, bucket, seq, destination, aggregatetype, type, source, payload, enqueued_at, redrives, attempts, error, died_at",
                format!(
                    "'6d5e4f30-4c1e-4b7e-9f53-2f6b4f0f6b1{n}', 0, {n}, 'd', 't', 'k', 's', {bytes}, {long_ago}, 0, 1, '', {died}"
                ),
            );
        }
        text
    }
}

fn purged(url: &str, more: &[&str]) -> (i32, Value) {
    let output = tool(url, &[&["--yes", "--json", "purge"], more].concat());
    (code(&output), json(&output))
}

// S9, S31, case O01
async fn every_table_is_purged(engine: Engine) {
    let url = engine.url();
    assert_eq!(code(&tool(&url, &["purge", "--yes"])), 4, "without tables");
    assert_eq!(code(&tool(&url, &["--yes", "migrate"])), 0);
    run(&url, many(&url, 5_000)).await;
    run(&url, Written::on(&url).rows()).await;
    let asked = tool(&url, &["purge"]);
    assert_eq!((code(&asked), text(&asked).contains("[y/N]")), (3, true), "{}", text(&asked));
    let all = json!({ "deleted": 2_503, "keys": 2_500, "leases": 1, "inbox": 2 });
    assert_eq!(purged(&url, &[]), (0, all));
    // Dead letters have no time of their own: how long they are kept is the service's setting.
    let none = json!({ "deleted": 0, "keys": 0, "leases": 0, "inbox": 0, "dead_letters": 0 });
    assert_eq!(purged(&url, &["--dead-letters", "50d"]), (1, none));
    let human = tool(&url, &["purge", "--yes", "--dead-letters", "30d", "--batch", "1"]);
    assert_eq!(code(&human), 0);
    assert_eq!(text(&human), "keys         0\nleases       0\ninbox        0\ndead letters 1\n1 row deleted\n");
    // Nothing else has gone.
    let left =
        |arguments: &[&str], name: &str| json(&tool(&url, &[&["--json"], arguments].concat()))[name]["count"].clone();
    assert_eq!(left(&["stats"], "records"), 2_500);
    assert_eq!(left(&["--leases", "stats"], "records"), 1);
    assert_eq!((left(&["inbox", "stats"], "marks"), left(&["inbox", "stats"], "failing")), (1.into(), 1.into()));
    assert_eq!(left(&["outbox", "stats"], "dead"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_table_is_purged_on_sqlite() {
    let engine = Engine::sqlite();
    let url = engine.url();
    std::fs::write(url.trim_start_matches("sqlite:"), "").unwrap();
    every_table_is_purged(engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_table_is_purged_on_postgres() {
    every_table_is_purged(Engine::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_table_is_purged_on_mariadb() {
    every_table_is_purged(Engine::mysql().await).await;
}
