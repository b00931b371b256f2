//! Behind PgBouncer in transaction mode: each transaction may meet another server connection, and whatever a session
//! keeps is met by somebody else (cases T12 and T13).

use std::time::Duration;

use axum::http::StatusCode;
use idempotency::PostgresStore;
use idempotency::store::{Claim, Isolation, Kept, Purge, Settlement, Store, Verdict};
use idempotency::testing::store::{self as kit, answer, completed, request};
use sqlx::{PgPool, Postgres, Row, Transaction};

use crate::support::app::{effects, send};
use crate::support::postgres::{PostgresHarness, options, pool_on, pooled_options};

// Case T13: no statement has a name.
idempotency::store_conformance!(
    unnamed_statements,
    PostgresHarness::pooled(pooled_options().statement_cache_capacity(0), Isolation::ReadCommitted)
);

/// How many prepared statements PgBouncer follows for each client. `None` where this version cannot (before 1.21).
async fn statements_followed() -> Option<u32> {
    let console = pool_on(pooled_options().database("pgbouncer").statement_cache_capacity(0), 1).await;
    let settings = sqlx::raw_sql("SHOW CONFIG").fetch_all(&console).await.unwrap();
    let setting = |name: &str| settings.iter().find(|row| row.get::<&str, _>(0) == name).map(|row| row.get(1));
    assert_eq!(setting("pool_mode"), Some("transaction"), "PGBOUNCER_URL leads to another mode");
    setting("max_prepared_statements").map(|most: &str| most.parse().unwrap()).filter(|most| *most > 0)
}

// Case T13: with named statements where PgBouncer follows them; where it does not they cannot work, which is why the
// cache must be off.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn named_statements_work_where_pgbouncer_follows_them_and_nowhere_else() {
    if statements_followed().await.is_some() {
        let harness = PostgresHarness::pooled(pooled_options(), Isolation::ReadCommitted).await;
        kit::a_fresh_key_is_claimed_and_its_answer_replayed(&harness).await;
        kit::a_mismatch_outranks_in_progress(&harness).await;
        kit::of_many_identical_claims_one_is_owner(&harness).await;
        kit::different_keys_do_not_disturb_each_other(&harness).await;
        kit::an_honest_retry_is_never_a_mismatch(&harness).await;
        kit::a_dropped_claim_future_leaves_nothing_behind(&harness).await;
        Box::pin(kit::a_dropped_settlement_is_done_or_undone(&harness)).await;
        return;
    }
    // A database of its own: nobody else's transactions move this one about.
    let own = Own::new().await;
    let client = || pool_on(pooled_options().database(&own.name), 1);
    let (one, two) = (client().await, client().await);
    // Prepared on the only server connection there is; then somebody else has that one.
    const PID: &str = "SELECT pg_backend_pid()";
    let prepared_on: i32 = sqlx::query_scalar(PID).fetch_one(&one).await.unwrap();
    // PgBouncer takes a moment to give a server connection to the next one, and may open another meanwhile.
    let mut held = two.begin().await.unwrap();
    for _ in 0..50 {
        let holds: i32 =
            sqlx::query_scalar("SELECT pg_backend_pid() + 0").persistent(false).fetch_one(&mut *held).await.unwrap();
        if holds == prepared_on {
            break;
        }
        held.rollback().await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        held = two.begin().await.unwrap();
    }
    let error = sqlx::query(PID).execute(&one).await.expect_err("it works without being followed");
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    assert_eq!(code.as_deref(), Some("26000"), "no such statement");
    held.rollback().await.unwrap();
    own.drop().await;
}

/// A database that this test alone uses, and so server connections that nobody else has touched.
struct Own {
    name: String,
    direct: PgPool,
}

impl Own {
    async fn new() -> Self {
        let name = format!("d_{}", uuid::Uuid::new_v4().simple());
        let direct = pool_on(options(), 2).await;
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&direct).await.unwrap();
        Self { name, direct }
    }

    async fn pool(&self, size: u32) -> PgPool {
        pool_on(pooled_options().database(&self.name).statement_cache_capacity(0), size).await
    }

    /// How many connections PgBouncer has to it, once all of them are idle.
    async fn idle_servers(&self) -> usize {
        for _ in 0..200 {
            let row = sqlx::query(
                "SELECT count(*), count(*) FILTER (WHERE state = 'idle') FROM pg_stat_activity WHERE datname = $1",
            )
            .bind(&self.name)
            .fetch_one(&self.direct)
            .await
            .unwrap();
            let (all, idle): (i64, i64) = (row.get(0), row.get(1));
            if all == idle {
                return usize::try_from(all).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("a server connection stays in a transaction");
    }

    async fn drop(self) {
        let text = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&self.direct).await.unwrap();
    }
}

/// What the session behind this transaction keeps: advisory locks, prepared statements, settings.
async fn kept_by_session(transaction: &mut Transaction<'static, Postgres>) -> (i32, Vec<String>) {
    let rows = sqlx::raw_sql(
        "SELECT 'lock ' || classid || ' ' || objid FROM pg_locks
         WHERE locktype = 'advisory' AND pid = pg_backend_pid()
         UNION ALL SELECT 'statement ' || statement FROM pg_prepared_statements
         UNION ALL SELECT 'setting ' || name FROM pg_settings WHERE source = 'session' AND name NOT IN
             -- What PgBouncer itself carries over from client to server, and what the asking transaction sets.
             ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings',
              'transaction_isolation', 'transaction_read_only', 'transaction_deferrable')
         UNION ALL SELECT 'mark' WHERE coalesce(current_setting('idempotency.unkeyed', true), '') <> ''",
    )
    .fetch_all(&mut **transaction)
    .await
    .unwrap();
    let pid = sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(&mut **transaction).await.unwrap().get(0);
    (pid, rows.iter().map(|row| row.get(0)).collect())
}

/// The same of all server connections: as many transactions at once as there are.
async fn kept_by_sessions(pool: &PgPool, servers: usize) -> Vec<String> {
    let (mut transactions, mut pids, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..servers {
        let mut transaction = pool.begin().await.unwrap();
        let (pid, found) = kept_by_session(&mut transaction).await;
        pids.push(pid);
        kept.extend(found);
        transactions.push(transaction);
    }
    for transaction in transactions {
        transaction.rollback().await.unwrap();
    }
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), servers, "some server connection was not looked at");
    kept
}

fn kept() -> Kept {
    Kept { answer: answer("done"), retention: Duration::from_secs(3600) }
}

/// One claim of each verdict and one end of each kind, under keys of this name.
async fn all_verdicts(store: &PostgresStore, name: &str) {
    let key = |verdict: &str| format!("{name} {verdict}");
    let ask = async |verdict: &str, body| store.claim(&request(&key(verdict), body)).await.unwrap();
    completed(store, &request(&key("commit"), 1), answer("done")).await;
    assert!(matches!(ask("commit", 1).await, Verdict::Replay(_)));
    assert!(matches!(ask("commit", 2).await, Verdict::Mismatch));
    let Verdict::Claimed(claim) = ask("refused", 1).await else { panic!("not free") };
    // Both ways of the probe: somebody runs this request; somebody runs another one.
    assert!(matches!(ask("refused", 1).await, Verdict::InProgress { .. }));
    assert!(matches!(ask("refused", 2).await, Verdict::Mismatch));
    claim.settle(Settlement::Refuse(kept())).await.unwrap();
    assert!(matches!(ask("refused", 1).await, Verdict::Replay(_)));
    let Verdict::Claimed(claim) = ask("abandoned", 1).await else { panic!("not free") };
    claim.settle(Settlement::Abandon).await.unwrap();
    drop(ask("dropped", 1).await);
    // The handler ends the transaction itself; with a key, and without one.
    let app = effects(store.clone(), async |mut tx| {
        sqlx::raw_sql("COMMIT").execute(&mut *tx).await.unwrap();
        StatusCode::CREATED
    });
    for status in [500, 409] {
        assert_eq!(send(&app, Some(&key("orphaned")), "{}").await.status, status);
    }
    assert_eq!(send(&app, None, "{}").await.status, 500);
    for status in [StatusCode::CREATED, StatusCode::IM_A_TEAPOT] {
        let app = effects(store.clone(), move |tx| async move {
            drop(tx);
            status
        });
        assert_eq!(send(&app, None, "{}").await.status, status);
    }
    store.purge(10).await.unwrap();
}

// Cases T12 and T13: after claims of every verdict, many at once and over several server connections, no session keeps
// a lock, a statement or a setting of ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_of_a_claim_stays_on_a_server_connection() {
    let own = Own::new().await;
    let pool = own.pool(16).await;
    let store = PostgresStore::builder(pool.clone()).schema("app").build().await.unwrap();
    store.migrate().await.unwrap();
    let tasks = (0..6).map(|task| {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0..10 {
                all_verdicts(&store, &format!("{task} {round}")).await;
            }
        })
    });
    for task in futures_util::future::join_all(tasks).await {
        task.unwrap();
    }
    let servers = own.idle_servers().await;
    assert!(servers > 1, "one server connection shows nothing");
    let checker = own.pool(u32::try_from(servers).unwrap()).await;
    assert_eq!(kept_by_sessions(&checker, servers).await, Vec::<String>::new());
    // Would it be seen? One of each kind, left behind on purpose.
    let left =
        "SELECT pg_advisory_lock(7, 7); SET idle_in_transaction_session_timeout = 777777; PREPARE left_over AS SELECT 7;
        SET idempotency.unkeyed = 'open'";
    sqlx::raw_sql(left).execute(&checker).await.unwrap();
    let servers = own.idle_servers().await;
    assert_eq!(kept_by_sessions(&checker, servers).await.len(), 4);
    own.drop().await;
}
