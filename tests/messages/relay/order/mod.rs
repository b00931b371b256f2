//! The order promise (M31), with processes: three relays that are killed, stalled and cut off, and one reader that reads the
//! log from its start and keeps first occurrences.

mod child;
mod logs;
mod run;

use std::future::Future;

use idempotency::testing::outbox::Harness;

use crate::support::outbox_lab::{Lab, MariaDbLab, PostgresLab, SqliteLab};
use logs::{FileLog, NatsLog};
use run::{Outcome, Plan, run};

/// 50 keys, 10,000 events.
const WHOLE: Plan = Plan { keys: 50, each: 200, window_per_key: 1, faults: 14 };

fn assert_kept(outcome: &Outcome) {
    println!("{outcome:?} in {:?}", outcome.took);
    assert_eq!(outcome.missing, 0, "{outcome:?}");
    assert_eq!(outcome.invented, 0, "{outcome:?}");
    assert_eq!(outcome.disordered, 0, "{outcome:?}");
    // M40: what comes twice is bounded by what was out when relays were killed or stalled.
    assert!(outcome.copies - outcome.events <= run::WINDOW * 3 * outcome.interruptions.max(1), "{outcome:?}");
}

/// The same without the one thing that makes the order: it must be seen.
fn assert_broken(outcome: &Outcome) {
    assert_eq!((outcome.missing, outcome.invented), (0, 0), "{outcome:?}");
    assert!(outcome.disordered > 0, "four events of a key were out and nothing was seen: {outcome:?}");
}

const BROKEN: Plan = Plan { keys: 50, each: 40, window_per_key: 4, faults: 3 };

// M31, M32, M33, case B07
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_order_holds_on_postgres_with_a_file() {
    assert_kept(&run(&PostgresLab::new().await, &FileLog::new(), &WHOLE).await);
}

// M31, M32, M33, case B07
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_order_holds_on_mariadb_with_a_file() {
    assert_kept(&run(&MariaDbLab::new().await, &FileLog::new(), &WHOLE).await);
}

// M31, M32, M39
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_order_holds_on_sqlite_with_a_file() {
    assert_kept(&run(&SqliteLab::new().await, &FileLog::new(), &WHOLE).await);
}

// M31, M32, M33: the broker's connections are cut with half the window out.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_order_holds_on_postgres_with_nats() {
    assert_kept(&run(&PostgresLab::new().await, &NatsLog::new().await, &WHOLE).await);
}

// M31, M32
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_order_holds_on_mariadb_with_nats() {
    assert_kept(&run(&MariaDbLab::new().await, &NatsLog::new().await, &WHOLE).await);
}

// M31, M32, M39
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_order_holds_on_sqlite_with_nats() {
    assert_kept(&run(&SqliteLab::new().await, &NatsLog::new().await, &WHOLE).await);
}

// M32
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_window_of_four_per_key_fails_the_order_test() {
    assert_broken(&run(&PostgresLab::new().await, &FileLog::new(), &BROKEN).await);
}

/// Where relays of other processes find the same database, and how their sessions are ended.
pub trait Elsewhere: Lab + Harness {
    const ENGINE: &'static str;
    fn place(&self) -> impl Future<Output = String> + Send;
    fn end_sessions(&self) -> impl Future<Output = ()> + Send;
}

impl Elsewhere for PostgresLab {
    const ENGINE: &'static str = "postgres";

    async fn place(&self) -> String {
        sqlx::query_scalar("SELECT current_schema()::text").fetch_one(self.pool()).await.unwrap()
    }

    async fn end_sessions(&self) {
        // Of the relays alone: writers of this test have no retries.
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1";
        let name = child::session_name(&self.place().await);
        sqlx::query(end).bind(name).execute(self.pool()).await.unwrap();
    }
}

impl Elsewhere for MariaDbLab {
    const ENGINE: &'static str = "mysql";

    async fn place(&self) -> String {
        sqlx::raw_sql("CREATE TABLE IF NOT EXISTS relay_sessions (id BIGINT PRIMARY KEY)")
            .execute(self.pool())
            .await
            .unwrap();
        sqlx::query_scalar("SELECT DATABASE()").fetch_one(self.pool()).await.unwrap()
    }

    async fn end_sessions(&self) {
        // Each session of a relay has said who it is.
        let all: Vec<i64> = sqlx::query_scalar("SELECT id FROM relay_sessions").fetch_all(self.pool()).await.unwrap();
        for session in all {
            // Most have ended by themselves.
            let _ = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("KILL {session}"))).execute(self.pool()).await;
        }
    }
}

impl Elsewhere for SqliteLab {
    const ENGINE: &'static str = "sqlite";

    async fn place(&self) -> String {
        sqlx::query_scalar("SELECT file FROM pragma_database_list WHERE name = 'main'")
            .fetch_one(self.pool())
            .await
            .unwrap()
    }

    async fn end_sessions(&self) {}
}
