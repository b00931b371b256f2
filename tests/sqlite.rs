//! The SQLite store, from outside: keys, crashes, handlers that end their transaction, cuts at every poll.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test may fail")]
#![allow(clippy::disallowed_methods, reason = "tests do what hosts and handlers do")]

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::process::{Command, Stdio};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Extensions, HeaderMap, StatusCode};
use idempotency::fingerprint::{Fingerprint, Profile};
use idempotency::record::{Answer, AnswerBody};
use idempotency::store::{Claim, ClaimRequest, Kept, Purge, Settled, Settlement, SqliteClaim, Store, Verdict};
use idempotency::{Endpoint, ErrorKind, Key, LookupKey, ScopeId, SqliteStore, Tx, TxError};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Sqlite, SqliteConnection, SqlitePool};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

const DAY: Duration = Duration::from_secs(86_400);

struct World {
    folder: TempDir,
    store: SqliteStore,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("db")).await.unwrap();
        prepare(&store).await;
        Self { folder, store }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("db")
    }

    /// What another process would have: connections, a queue and a name of its own.
    async fn rival(&self) -> SqliteStore {
        SqliteStore::open(self.path()).await.unwrap()
    }
}

async fn prepare(store: &SqliteStore) {
    store.migrate().await.unwrap();
    sqlx::raw_sql("CREATE TABLE orders (note TEXT NOT NULL)").execute(store.pool()).await.unwrap();
}

fn request_for(key: &str, fingerprint: u8, retention: Duration) -> ClaimRequest {
    let lookup = LookupKey::new(ScopeId::shared(), Key::new(key).unwrap(), Endpoint::named("POST /orders"));
    ClaimRequest::new(lookup, Fingerprint::new(Profile::from_bytes([1; 8]), [fingerprint; 32]), retention)
}

fn request(key: &str) -> ClaimRequest {
    request_for(key, 1, DAY)
}

fn kept(body: &str) -> Kept {
    let body = AnswerBody::Kept(Bytes::copy_from_slice(body.as_bytes()));
    Kept {
        answer: Answer { status: StatusCode::CREATED, headers: HeaderMap::new(), body, trailers: None },
        retention: DAY,
    }
}

/// A verdict in a word.
fn word<C>(verdict: &Verdict<C>) -> String {
    match verdict {
        Verdict::Claimed(_) => "claimed".to_owned(),
        Verdict::Replay(record) => match &record.answer.body {
            AnswerBody::Kept(body) => format!("replay {}", String::from_utf8_lossy(body)),
            AnswerBody::NotKept => "replay".to_owned(),
        },
        Verdict::InProgress { .. } => "in progress".to_owned(),
        Verdict::Mismatch => "mismatch".to_owned(),
        Verdict::Orphaned => "orphaned".to_owned(),
        _ => "?".to_owned(),
    }
}

async fn ask(store: &SqliteStore, request: &ClaimRequest) -> String {
    word(&store.claim(&request.again()).await.unwrap())
}

async fn claim(store: &SqliteStore, request: &ClaimRequest) -> SqliteClaim {
    match store.claim(&request.again()).await.unwrap() {
        Verdict::Claimed(claim) => claim,
        verdict => panic!("{}", word(&verdict)),
    }
}

/// The verdict once it is no longer "in progress": what a dropped claim leaves is taken back in the background.
async fn settled_verdict(store: &SqliteStore, request: &ClaimRequest) -> Verdict<SqliteClaim> {
    let since = Instant::now();
    loop {
        match store.claim(&request.again()).await.unwrap() {
            Verdict::InProgress { .. } if since.elapsed() < Duration::from_secs(3) => {
                sleep(Duration::from_millis(1)).await;
            }
            verdict => return verdict,
        }
    }
}

fn extensions(claim: &SqliteClaim) -> Extensions {
    let mut extensions = Extensions::new();
    claim.attach(&mut extensions);
    extensions
}

async fn take(claim: &SqliteClaim) -> Tx<Sqlite> {
    Tx::take(&extensions(claim)).await.unwrap()
}

async fn write(connection: &mut SqliteConnection, note: &str) {
    sqlx::query("INSERT INTO orders VALUES (?)").bind(note).execute(connection).await.unwrap();
}

async fn orders(store: &SqliteStore, note: &str) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM orders WHERE note = ?").bind(note).fetch_one(store.pool()).await.unwrap()
}

/// The whole of a guarded request that writes and commits.
async fn work(store: &SqliteStore, claim: SqliteClaim, note: &str) {
    write(&mut *take(&claim).await, note).await;
    assert!(matches!(claim.settle(Settlement::Commit(kept(note))).await.unwrap(), Settled::Recorded));
    assert_eq!(orders(store, note).await, 1);
}

/// Nobody holds the write lock or a place in the queue.
async fn assert_writable(store: &SqliteStore) {
    let free = async {
        let key = uuid::Uuid::new_v4().to_string();
        let claim = claim(store, &request(&key)).await;
        work(store, claim, &key).await;
    };
    timeout(Duration::from_secs(4), free).await.expect("the queue is stuck");
}

// H20, H21, H22; S16: the same answers to other processes, also while the handler holds the write lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_one_owner_and_its_answer_replays() {
    let world = World::new().await;
    let rival = world.rival().await;
    let asked = request("k");
    let other = request_for("k", 2, DAY);
    let owner = claim(&world.store, &asked).await;
    for store in [&world.store, &rival] {
        assert_eq!(ask(store, &asked).await, "in progress");
        assert_eq!(ask(store, &other).await, "mismatch");
    }
    let mut tx = take(&owner).await;
    write(&mut tx, "k").await;
    for store in [&world.store, &rival] {
        let since = Instant::now();
        assert_eq!(ask(store, &asked).await, "in progress");
        assert_eq!(ask(store, &other).await, "mismatch");
        assert!(since.elapsed() < Duration::from_secs(3), "a duplicate waited for the write lock");
    }
    drop(tx);
    assert_eq!(orders(&world.store, "k").await, 0);
    assert!(matches!(owner.settle(Settlement::Commit(kept("done"))).await.unwrap(), Settled::Recorded));
    for store in [&world.store, &rival] {
        assert_eq!(ask(store, &asked).await, "replay done");
        assert_eq!(ask(store, &other).await, "mismatch");
    }
    assert_eq!(orders(&rival, "k").await, 1);
}

// H18: a fingerprint of another profile counts as a match.
#[tokio::test]
async fn another_profile_is_never_a_mismatch() {
    let world = World::new().await;
    let owner = claim(&world.store, &request("k")).await;
    let fingerprint = Fingerprint::new(Profile::from_bytes([2; 8]), [9; 32]);
    let later = ClaimRequest::new(request("k").lookup().clone(), fingerprint, DAY);
    assert_eq!(ask(&world.store, &later).await, "in progress");
    owner.settle(Settlement::Commit(kept("a"))).await.unwrap();
    assert_eq!(ask(&world.store, &later).await, "replay a");
}

// Keys compare byte for byte.
#[tokio::test]
async fn keys_that_differ_in_case_or_blanks_are_different() {
    let world = World::new().await;
    let mut claims = Vec::new();
    for key in ["abc", "ABC", "Abc", "abc.", "a"] {
        claims.push(claim(&world.store, &request(key)).await);
    }
    assert_eq!(claims.len(), 5);
}

// H20: N identical requests at once, in two processes: one runs.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_at_once_one_wins() {
    let world = World::new().await;
    let rival = world.rival().await;
    for round in 0..20 {
        let asked = request(&format!("k{round}"));
        let verdicts = join_all((0..24).map(|n| {
            let store = if n % 2 == 0 { world.store.clone() } else { rival.clone() };
            let asked = asked.again();
            tokio::spawn(async move { store.claim(&asked).await.unwrap() })
        }))
        .await;
        let verdicts: Vec<_> = verdicts.into_iter().map(Result::unwrap).collect();
        let claimed = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Claimed(_))).count();
        assert_eq!(claimed, 1);
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Claimed(_) | Verdict::InProgress { .. })));
    }
}

// S3: whoever looked before the winner came and announces after it has settled finds the key done.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_race_with_a_whole_operation_do_not_repeat_it() {
    let world = World::new().await;
    let rival = world.rival().await;
    for round in 0..150 {
        let key = format!("k{round}");
        let racers = (0..6).map(|n| {
            let store = if n % 2 == 0 { world.store.clone() } else { rival.clone() };
            let key = key.clone();
            tokio::spawn(async move {
                if let Verdict::Claimed(owner) = store.claim(&request(&key)).await.unwrap() {
                    if round % 2 == 0 {
                        write(&mut *take(&owner).await, &key).await;
                    }
                    owner.settle(Settlement::Commit(kept(&key))).await.unwrap();
                    return 1;
                }
                0
            })
        });
        let runs: i32 = join_all(racers).await.into_iter().map(Result::unwrap).sum();
        assert_eq!(runs, 1, "{key}");
    }
}

// H31: Refuse keeps the answer and undoes the writes; S2: with the first acceptance time.
#[tokio::test]
async fn a_refusal_undoes_and_replays() {
    let world = World::new().await;
    for (key, writes) in [("with", true), ("without", false)] {
        let owner = claim(&world.store, &request(key)).await;
        let accepted = accepted_at(&world.store, key).await;
        sleep(Duration::from_millis(5)).await;
        if writes {
            write(&mut *take(&owner).await, key).await;
        }
        assert!(matches!(owner.settle(Settlement::Refuse(kept("no"))).await.unwrap(), Settled::Recorded));
        assert_eq!(ask(&world.store, &request(key)).await, "replay no");
        assert_eq!(orders(&world.store, key).await, 0);
        assert_eq!(accepted_at(&world.store, key).await, accepted);
    }
}

async fn accepted_at(store: &SqliteStore, key: &str) -> i64 {
    let query = sqlx::query_scalar("SELECT accepted_at FROM idempotency_keys WHERE id_key = ?");
    query.bind(key).fetch_one(store.pool()).await.unwrap()
}

// H31, S10: after Abandon an immediate retry finds the key free.
#[tokio::test]
async fn abandoning_frees_the_key_at_once() {
    let world = World::new().await;
    for writes in [true, false] {
        let owner = claim(&world.store, &request("k")).await;
        if writes {
            write(&mut *take(&owner).await, "k").await;
        }
        owner.settle(Settlement::Abandon).await.unwrap();
        assert_eq!(orders(&world.store, "k").await, 0);
        claim(&world.store, &request("k")).await.settle(Settlement::Abandon).await.unwrap();
    }
}

// A handler that takes no transaction is settled in one step.
#[tokio::test]
async fn a_commit_without_writes_is_kept() {
    let world = World::new().await;
    claim(&world.store, &request("k")).await.settle(Settlement::Commit(kept("a"))).await.unwrap();
    assert_eq!(ask(&world.store, &request("k")).await, "replay a");
}

// S16: a dropped claim is taken back by the store, for all processes; the handler's Tx may outlive it.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_claim_is_free_promptly() {
    let world = World::new().await;
    let rival = world.rival().await;
    for case in ["unused", "used", "held", "late"] {
        let owner = claim(&world.store, &request(case)).await;
        match case {
            "unused" => drop(owner),
            "used" => {
                write(&mut *take(&owner).await, case).await;
                drop(owner);
            }
            "held" => {
                let mut tx = take(&owner).await;
                write(&mut tx, case).await;
                drop(owner);
                assert_eq!(ask(&rival, &request(case)).await, "in progress");
                drop(tx);
            }
            _ => {
                let mut tx = take(&owner).await;
                write(&mut tx, case).await;
                let error = owner.settle(Settlement::Commit(kept("x"))).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::HeldTransaction);
                drop(tx);
            }
        }
        let since = Instant::now();
        let verdict = settled_verdict(&rival, &request(case)).await;
        assert_eq!(word(&verdict), "claimed", "{case}");
        assert!(since.elapsed() < Duration::from_secs(3), "{case}: {:?}", since.elapsed());
        assert_eq!(orders(&world.store, case).await, 0, "{case}");
        assert_writable(&world.store).await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    RawCommit,
    RawRollback,
    RawCommitAndBegin,
    NestedCancelled(usize),
    NestedForgotten,
    RolledBackByStatement,
}

async fn end(tx: &mut Tx<Sqlite>, ending: Ending) {
    match ending {
        Ending::RawCommit => {
            sqlx::raw_sql("COMMIT").execute(&mut **tx).await.unwrap();
        }
        Ending::RawRollback => {
            sqlx::raw_sql("ROLLBACK").execute(&mut **tx).await.unwrap();
        }
        Ending::RawCommitAndBegin => {
            sqlx::raw_sql("COMMIT; BEGIN; INSERT INTO orders VALUES ('later')").execute(&mut **tx).await.unwrap();
        }
        Ending::NestedCancelled(polls) => {
            use sqlx::Acquire;
            // A begin that is ready before it is cut is rolled back in the ordinary way when it is dropped.
            let mut complete = true;
            while complete {
                let nested = tx.as_transaction().begin();
                complete = cut(nested, polls).await.is_some();
            }
            // What it writes now may be in autocommit.
            sqlx::query("INSERT INTO orders VALUES ('after')").execute(&mut **tx).await.unwrap();
        }
        Ending::NestedForgotten => {
            use sqlx::Acquire;
            let nested = tx.as_transaction().begin().await.unwrap();
            std::mem::forget(nested);
        }
        Ending::RolledBackByStatement => {
            // A conflict clause that rolls the whole transaction back.
            sqlx::raw_sql("CREATE UNIQUE INDEX IF NOT EXISTS once ON orders (note) WHERE note = 'once'")
                .execute(&mut **tx)
                .await
                .unwrap();
            let twice = "INSERT INTO orders VALUES ('once'); INSERT OR ROLLBACK INTO orders VALUES ('once')";
            sqlx::raw_sql(twice).execute(&mut **tx).await.unwrap_err();
        }
    }
}

// H29: whoever ends the claim's transaction, whatever the outcome: an error, an orphan, and connections that work.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_was_ended_leaves_an_orphan() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteStore::connect_options(folder.path().join("db"));
    // One connection, so that a spoilt one is met again.
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    let store = SqliteStore::new(pool.clone()).await.unwrap();
    prepare(&store).await;
    let rival = SqliteStore::open(folder.path().join("db")).await.unwrap();
    let endings = [
        Ending::RawCommit,
        Ending::RawRollback,
        Ending::RawCommitAndBegin,
        Ending::NestedCancelled(1),
        Ending::NestedForgotten,
        Ending::RolledBackByStatement,
    ];
    let settlements = [Settlement::Commit(kept("x")), Settlement::Refuse(kept("x")), Settlement::Abandon];
    let mut number = 0;
    for ending in endings {
        for settlement in &settlements {
            number += 1;
            let key = format!("k{number}");
            let owner = claim(&store, &request(&key)).await;
            let mut tx = take(&owner).await;
            write(&mut tx, &key).await;
            end(&mut tx, ending).await;
            drop(tx);
            match owner.settle(settlement.clone()).await {
                Err(error) => assert_eq!(error.kind(), ErrorKind::TransactionEnded, "{ending:?} {settlement:?}"),
                Ok(settled) => panic!("{ending:?} {settlement:?}: {settled:?}"),
            }
            for store in [&store, &rival] {
                assert_eq!(ask(store, &request(&key)).await, "orphaned", "{ending:?} {settlement:?}");
                assert_eq!(ask(store, &request_for(&key, 2, DAY)).await, "mismatch");
            }
            assert_connection_is_clean(&pool).await;
            assert_writable(&store).await;
        }
    }
}

async fn assert_connection_is_clean(pool: &SqlitePool) {
    let mut connection = pool.acquire().await.unwrap();
    // Refused inside a transaction.
    sqlx::raw_sql("PRAGMA synchronous = FULL; BEGIN; ROLLBACK").execute(&mut *connection).await.unwrap();
    assert_eq!(sqlx::query_scalar::<_, i64>("PRAGMA busy_timeout").fetch_one(&mut *connection).await.unwrap(), 5_000);
    drop(connection);
    // And sqlx counts from nought.
    let transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    transaction.rollback().await.unwrap();
}

// H29: the same when the claim is dropped instead of settled.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_claim_that_was_ended_is_an_orphan_too() {
    let world = World::new().await;
    for (key, ending) in [("c", Ending::RawCommit), ("r", Ending::RawRollback)] {
        let owner = claim(&world.store, &request(key)).await;
        let mut tx = take(&owner).await;
        end(&mut tx, ending).await;
        drop(tx);
        drop(owner);
        assert_eq!(word(&settled_verdict(&world.store, &request(key)).await), "orphaned", "{ending:?}");
        assert_writable(&world.store).await;
    }
}

// A nested transaction that is committed or rolled back, awaited, is none of H29's business.
#[tokio::test]
async fn nested_transactions_work() {
    use sqlx::Acquire;
    let world = World::new().await;
    let owner = claim(&world.store, &request("k")).await;
    let mut tx = take(&owner).await;
    for (note, keep) in [("kept", true), ("undone", false)] {
        let mut nested = tx.as_transaction().begin().await.unwrap();
        write(&mut nested, note).await;
        if keep { nested.commit().await.unwrap() } else { nested.rollback().await.unwrap() }
    }
    drop(tx);
    owner.settle(Settlement::Commit(kept("a"))).await.unwrap();
    assert_eq!((orders(&world.store, "kept").await, orders(&world.store, "undone").await), (1, 0));
}

// H33: a deferred constraint refuses the COMMIT: nothing is kept, the key is free, the connection works.
#[tokio::test]
async fn a_refused_commit_keeps_nothing() {
    let world = World::new().await;
    let tables = "CREATE TABLE a (id INTEGER PRIMARY KEY); \
                  CREATE TABLE b (a INTEGER REFERENCES a (id) DEFERRABLE INITIALLY DEFERRED)";
    sqlx::raw_sql(tables).execute(world.store.pool()).await.unwrap();
    let owner = claim(&world.store, &request("k")).await;
    sqlx::raw_sql("INSERT INTO b VALUES (7)").execute(&mut *take(&owner).await).await.unwrap();
    let error = owner.settle(Settlement::Commit(kept("x"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CommitRefused);
    let again = claim(&world.store, &request("k")).await;
    work(&world.store, again, "k").await;
}

// S3, S11: an owner that has lost its row gives somebody else's verdict, never a second answer.
#[tokio::test]
async fn a_lost_row_is_superseded() {
    let world = World::new().await;
    let rival = world.rival().await;
    for (number, settlement) in
        [Settlement::Commit(kept("mine")), Settlement::Refuse(kept("mine"))].into_iter().enumerate()
    {
        let asked = request(&format!("k{number}"));
        let owner = claim(&world.store, &asked).await;
        sqlx::raw_sql("DELETE FROM idempotency_keys").execute(world.store.pool()).await.unwrap();
        claim(&rival, &asked).await.settle(Settlement::Commit(kept("theirs"))).await.unwrap();
        match owner.settle(settlement).await.unwrap() {
            Settled::Superseded(verdict) => assert_eq!(word(&verdict), "replay theirs"),
            Settled::Recorded => panic!("two answers"),
        }
    }
    // And cannot take a transaction.
    let owner = claim(&world.store, &request("late")).await;
    sqlx::raw_sql("DELETE FROM idempotency_keys").execute(world.store.pool()).await.unwrap();
    let taken = Tx::<Sqlite>::take(&extensions(&owner)).await;
    assert!(matches!(taken, Err(TxError::Begin(error)) if error.kind() == ErrorKind::LeaseLost));
    drop(owner);
    assert_writable(&world.store).await;
}

// H24: expired counts as absent, one winner; H44: never before settle + 60 s; S9: a purge takes the expired alone.
#[tokio::test(flavor = "multi_thread")]
async fn expired_records_count_as_absent() {
    let world = World::new().await;
    let short = Kept { retention: Duration::ZERO, ..kept("short") };
    for key in ["a", "b", "c"] {
        let claim = claim(&world.store, &request_for(key, 1, Duration::ZERO)).await;
        // A running claim never expires.
        assert_eq!(ask(&world.store, &request(key)).await, "in progress");
        claim.settle(Settlement::Commit(short.clone())).await.unwrap();
        assert_eq!(ask(&world.store, &request(key)).await, "replay short");
    }
    let running = claim(&world.store, &request_for("running", 1, Duration::ZERO)).await;
    assert_eq!(world.store.purge(500).await.unwrap(), 0);
    let age = "UPDATE idempotency_keys SET expires_at = expires_at - 61000000 WHERE state = 1 AND id_key <> 'c'";
    sqlx::raw_sql(age).execute(world.store.pool()).await.unwrap();
    let verdicts = join_all((0..8).map(|_| {
        let store = world.store.clone();
        // With another fingerprint: there is nothing left to compare with.
        tokio::spawn(async move { store.claim(&request_for("a", 2, DAY)).await.unwrap() })
    }))
    .await;
    let words: Vec<_> = verdicts.iter().map(|verdict| word(verdict.as_ref().unwrap())).collect();
    assert_eq!(words.iter().filter(|word| *word == "claimed").count(), 1, "{words:?}");
    assert_eq!(world.store.purge(500).await.unwrap(), 1, "b alone");
    assert_eq!(ask(&world.store, &request("c")).await, "replay short");
    running.settle(Settlement::Commit(kept("r"))).await.unwrap();
}

// Case C22: 50 writers on one file, two stores, zero "locked" errors. Each reads before it writes.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_writers_never_meet_a_lock() {
    let world = World::new().await;
    let rival = world.rival().await;
    let since = Instant::now();
    let writers = (0..50).map(|writer| {
        let store = if writer % 2 == 0 { world.store.clone() } else { rival.clone() };
        tokio::spawn(async move {
            for round in 0..4 {
                let key = format!("w{writer}-{round}");
                let owner = claim(&store, &request(&key)).await;
                let mut tx = take(&owner).await;
                let count: i64 = sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(&mut *tx).await.unwrap();
                write(&mut tx, &count.to_string()).await;
                drop(tx);
                owner.settle(Settlement::Commit(kept("a"))).await.unwrap();
            }
        })
    });
    for writer in join_all(writers).await {
        writer.unwrap();
    }
    println!("200 guarded writes by 50 writers in two stores: {:?}", since.elapsed());
    // Each saw the one before it: nothing was lost.
    let different: i64 =
        sqlx::query_scalar("SELECT count(DISTINCT note) FROM orders").fetch_one(world.store.pool()).await.unwrap();
    assert_eq!(different, 200);
}

// The write lock is taken at the first use: handlers that work before they write do not wait for one another.
#[tokio::test(flavor = "multi_thread")]
async fn handlers_that_wait_before_they_write_run_side_by_side() {
    let world = World::new().await;
    // Nobody gets past it before all have claimed.
    let work_before = std::sync::Arc::new(tokio::sync::Barrier::new(40));
    let handlers = (0..40).map(|number| {
        let (store, work_before) = (world.store.clone(), std::sync::Arc::clone(&work_before));
        tokio::spawn(async move {
            let key = format!("k{number}");
            let owner = claim(&store, &request(&key)).await;
            timeout(Duration::from_secs(20), work_before.wait()).await.expect("a claim holds up another key's");
            work(&store, owner, &key).await;
        })
    });
    for handler in join_all(handlers).await {
        handler.unwrap();
    }
}

// One queue, in order of arrival.
#[tokio::test(flavor = "multi_thread")]
async fn writers_come_in_order_of_arrival() {
    let world = World::new().await;
    let mut claims = Vec::new();
    for number in 0..12 {
        claims.push(claim(&world.store, &request(&format!("k{number}"))).await);
    }
    let first = claims.remove(0);
    let tx = take(&first).await;
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for (number, owner) in claims.into_iter().enumerate() {
        let order = std::sync::Arc::clone(&order);
        waiting.push(tokio::spawn(async move {
            let tx = take(&owner).await;
            order.lock().unwrap().push(number);
            drop(tx);
            owner.settle(Settlement::Abandon).await.unwrap();
        }));
        sleep(Duration::from_millis(5)).await;
    }
    assert!(order.lock().unwrap().is_empty(), "two writers at once");
    drop(tx);
    drop(first);
    for waiter in join_all(waiting).await {
        waiter.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..11).collect::<Vec<_>>());
}

// Writes of the host outside guarded requests wait their turn by the pool's busy timeout; inside one they wait for the
// request's own lock: the commonest mistake, which ends with "busy" and not with a hang.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_through_the_pool_waits_for_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteStore::connect_options(folder.path().join("db")).busy_timeout(Duration::from_millis(300));
    let store = SqliteStore::new(SqlitePoolOptions::new().connect_with(options).await.unwrap()).await.unwrap();
    prepare(&store).await;
    let owner = claim(&store, &request("k")).await;
    let tx = take(&owner).await;
    let since = Instant::now();
    let error = sqlx::raw_sql("INSERT INTO orders VALUES ('x')").execute(store.pool()).await.unwrap_err();
    assert!(idempotency::is_retryable::<Sqlite>(&error), "{error:?}");
    assert!(since.elapsed() >= Duration::from_millis(250));
    drop(tx);
    work(&store, owner, "k").await;
}

/// Polls `future` as its wakers say, at most `polls` times.
async fn cut<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// Polls `future` once, lets the others run for a while, and drops it: at other moments than its own polls.
async fn cut_later<F: Future>(future: F, micros: u64) -> Option<F::Output> {
    let mut future = pin!(future);
    let since = Instant::now();
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(done);
        }
        if since.elapsed() >= Duration::from_micros(micros) {
            return None;
        }
        tokio::task::yield_now().await;
    }
}

type Cut = usize;
const CUTS: Cut = 60;

async fn cut_at<F: Future>(future: F, cut_number: Cut) -> Option<F::Output> {
    if cut_number < 8 { cut(future, cut_number).await } else { cut_later(future, (cut_number as u64 - 8) * 20).await }
}

/// After whatever was cut: the key is free or done, and in the end the work is done once.
async fn assert_done_once(world: &World, rival: &SqliteStore, key: &str, cut: Cut) {
    match settled_verdict(rival, &request(key)).await {
        Verdict::Claimed(claim) => work(rival, claim, key).await,
        verdict => assert_eq!(word(&verdict), format!("replay {key}"), "cut {cut}"),
    }
    assert_eq!(orders(&world.store, key).await, 1, "cut {cut}");
    assert_eq!(ask(&world.store, &request(key)).await, format!("replay {key}"), "cut {cut}");
}

// Cases T05, T09: every future of the store dropped at any poll.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_may_be_cut_anywhere() {
    let world = World::new().await;
    let rival = world.rival().await;
    let mut cuts = 0;
    for n in 0..CUTS {
        let key = format!("k{n}");
        cuts += usize::from(cut_at(world.store.claim(&request(&key)), n).await.is_none());
        assert_done_once(&world, &rival, &key, n).await;
    }
    assert!(cuts > 3, "nothing was cut");
    assert_writable(&world.store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_use_may_be_cut_anywhere() {
    let world = World::new().await;
    let rival = world.rival().await;
    let mut cuts = 0;
    for n in 0..CUTS {
        let key = format!("k{n}");
        let owner = claim(&world.store, &request(&key)).await;
        let extensions = extensions(&owner);
        cuts += usize::from(cut_at(Tx::<Sqlite>::take(&extensions), n).await.is_none());
        if n % 2 == 0 {
            // Takeable again.
            work(&world.store, owner, &key).await;
        } else {
            drop(owner);
        }
        assert_done_once(&world, &rival, &key, n).await;
    }
    assert!(cuts > 3, "nothing was cut");
    assert_writable(&world.store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_may_be_cut_anywhere() {
    let world = World::new().await;
    let rival = world.rival().await;
    let mut cuts = 0;
    for n in 0..CUTS {
        for (name, settlement) in [("commit", None), ("abandon", Some(Settlement::Abandon))] {
            let key = format!("{name}{n}");
            let owner = claim(&world.store, &request(&key)).await;
            write(&mut *take(&owner).await, &key).await;
            let settlement = settlement.unwrap_or_else(|| Settlement::Commit(kept(&key)));
            cuts += usize::from(cut_at(owner.settle(settlement), n).await.is_none());
            assert_done_once(&world, &rival, &key, n).await;
        }
        let key = format!("refuse{n}");
        let owner = claim(&world.store, &request(&key)).await;
        write(&mut *take(&owner).await, &key).await;
        drop(cut_at(owner.settle(Settlement::Refuse(kept("no"))), n).await);
        match settled_verdict(&rival, &request(&key)).await {
            Verdict::Claimed(claim) => work(&rival, claim, &key).await,
            verdict => {
                assert_eq!(word(&verdict), "replay no");
                assert_eq!(orders(&world.store, &key).await, 0);
            }
        }
    }
    assert!(cuts > 3, "nothing was cut");
    assert_writable(&world.store).await;
}

// The handler itself cut with its transaction, in the middle of a statement: the next writer gets its turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_may_be_cut_anywhere() {
    let world = World::new().await;
    let rival = world.rival().await;
    for n in 0..CUTS {
        let key = format!("k{n}");
        let store = world.store.clone();
        let whole = async {
            let owner = claim(&store, &request(&key)).await;
            let mut tx = take(&owner).await;
            write(&mut tx, &key).await;
            drop(tx);
            owner.settle(Settlement::Commit(kept(&key))).await.unwrap();
        };
        let _ = cut_later(whole, n as u64 * 40).await;
        assert_done_once(&world, &rival, &key, n).await;
    }
    assert_writable(&world.store).await;
}

// H2: a guarded request without a key.
#[tokio::test(flavor = "multi_thread")]
async fn the_plain_transaction_commits_or_not() {
    let world = World::new().await;
    let lend = || {
        let unkeyed = world.store.unkeyed().unwrap();
        let mut extensions = Extensions::new();
        unkeyed.attach(&mut extensions);
        (unkeyed, extensions)
    };
    let (unkeyed, _) = lend();
    unkeyed.finish(true).await.unwrap();
    for (note, keep) in [("kept", true), ("undone", false)] {
        let (unkeyed, extensions) = lend();
        write(&mut Tx::<Sqlite>::take(&extensions).await.unwrap(), note).await;
        unkeyed.finish(keep).await.unwrap();
    }
    let (unkeyed, extensions) = lend();
    write(&mut Tx::<Sqlite>::take(&extensions).await.unwrap(), "dropped").await;
    drop(unkeyed);
    for ending in [Ending::RawCommit, Ending::RawRollback, Ending::NestedForgotten] {
        let (unkeyed, extensions) = lend();
        end(&mut Tx::<Sqlite>::take(&extensions).await.unwrap(), ending).await;
        assert_eq!(unkeyed.finish(true).await.unwrap_err().kind(), ErrorKind::TransactionEnded, "{ending:?}");
    }
    assert_writable(&world.store).await;
    let mut counts = Vec::new();
    for note in ["kept", "undone", "dropped"] {
        counts.push(orders(&world.store, note).await);
    }
    assert_eq!(counts, [1, 0, 0]);
}

// A pool of one, whose connection the handler itself keeps: an error after the bound, no hang; duplicates are answered.
#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_pool_is_an_error_and_not_a_hang() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteStore::connect_options(folder.path().join("db"));
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    let store = SqliteStore::new(pool.clone()).await.unwrap();
    prepare(&store).await;
    let owner = claim(&store, &request("k")).await;
    let connection = pool.acquire().await.unwrap();
    let taken = timeout(Duration::from_secs(8), Tx::<Sqlite>::take(&extensions(&owner))).await.expect("hangs");
    assert!(matches!(taken, Err(TxError::Begin(error)) if error.kind() == ErrorKind::Unavailable));
    assert_eq!(ask(&store, &request("k")).await, "in progress");
    drop(connection);
    work(&store, owner, "k").await;
}

// S30: any number of processes migrate at once, and again.
#[tokio::test(flavor = "multi_thread")]
async fn many_processes_migrate_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let done = join_all((0..8).map(|_| {
        let path = path.clone();
        tokio::spawn(async move {
            let store = SqliteStore::open(path).await.unwrap();
            store.migrate().await.unwrap();
            store.migrate().await.unwrap();
        })
    }))
    .await;
    assert!(done.into_iter().all(|done| done.is_ok()));
    assert!(SqliteStore::schema_sql(1).unwrap().contains("idempotency_keys"));
    assert!(SqliteStore::schema_sql(0).is_none() && SqliteStore::schema_sql(usize::MAX).is_none());
}

// What the store relies on is checked.
#[tokio::test]
async fn an_unsuitable_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = SqliteStore::connect_options(folder.path().join("db"));
    let cases: [(&str, SqliteConnectOptions); 5] = [
        ("memory", SqliteConnectOptions::new().in_memory(true)),
        ("memory by name", SqliteStore::connect_options(":memory:")),
        ("journal", SqliteStore::connect_options(folder.path().join("j")).journal_mode(SqliteJournalMode::Delete)),
        ("synchronous", good.clone().synchronous(SqliteSynchronous::Normal)),
        ("missing folder", SqliteStore::connect_options(Path::new("/nonexistent/folder/db"))),
    ];
    for (name, options) in cases {
        let pool = SqlitePoolOptions::new().connect_lazy_with(options);
        let error = SqliteStore::new(pool).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Setup, "{name}: {error:?}");
    }
    // No tables yet.
    let store = SqliteStore::open(folder.path().join("db")).await.unwrap();
    assert_eq!(store.claim(&request("k")).await.unwrap_err().kind(), ErrorKind::Setup);
}

// A store that is dropped leaves no lock file, and what it had announced is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_gone_leaves_nothing() {
    let world = World::new().await;
    let second = world.rival().await;
    let owner = claim(&second, &request("k")).await;
    assert_eq!(lock_files(world.folder.path()), 2);
    drop(second);
    assert_eq!(ask(&world.store, &request("k")).await, "in progress", "its claim still lives");
    drop(owner);
    assert_eq!(word(&settled_verdict(&world.store, &request("k")).await), "claimed");
    let since = Instant::now();
    while lock_files(world.folder.path()) > 1 && since.elapsed() < Duration::from_secs(2) {
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(lock_files(world.folder.path()), 1);
}

fn lock_files(folder: &Path) -> usize {
    let is_lock = |name: &str| name.contains(".idem-") && name.ends_with(".lock");
    std::fs::read_dir(folder)
        .unwrap()
        .filter(|entry| is_lock(&entry.as_ref().unwrap().file_name().to_string_lossy()))
        .count()
}

const CHILD: &str = "IDEMPOTENCY_TEST_CHILD";

// S16, case T01: a process is killed while its handler has written; its key is free at once and its write is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_frees_its_keys_at_once() {
    let world = World::new().await;
    for mode in ["announced", "written"] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["a_child_that_holds_a_key", "--exact", "--ignored", "--nocapture"])
            .env(CHILD, format!("{mode} {}", world.path().display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("holding")), "the child failed");
        assert_eq!(ask(&world.store, &request(mode)).await, "in progress");
        assert_eq!(ask(&world.store, &request_for(mode, 2, DAY)).await, "mismatch");
        child.kill().unwrap();
        child.wait().unwrap();
        let since = Instant::now();
        // At the first try, and by any request: the dead one's is as if it had never come.
        let owner = claim(&world.store, &request_for(mode, 2, DAY)).await;
        println!("taken over after {:?}", since.elapsed());
        assert_eq!(orders(&world.store, mode).await, 0);
        work(&world.store, owner, mode).await;
        assert_eq!(lock_files(world.folder.path()), 1, "its lock file is swept");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by a_killed_process_frees_its_keys_at_once"]
async fn a_child_that_holds_a_key() {
    let Ok(job) = std::env::var(CHILD) else { return };
    let (mode, path) = job.split_once(' ').unwrap();
    let store = SqliteStore::open(path).await.unwrap();
    let owner = claim(&store, &request(mode)).await;
    let tx = if mode == "written" {
        let mut tx = take(&owner).await;
        write(&mut tx, mode).await;
        Some(tx)
    } else {
        None
    };
    println!("\nholding");
    sleep(Duration::from_secs(30)).await;
    drop(tx);
}

// S9: what the dead leave is purged when it would have expired, what the living run is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_purge_takes_what_the_dead_have_announced() {
    let world = World::new().await;
    let rival = world.rival().await;
    let _alive = claim(&rival, &request_for("alive", 1, Duration::ZERO)).await;
    let dead = "INSERT INTO idempotency_keys SELECT scope, 'dead', endpoint, state, fingerprint, token, \
                x'00112233445566778899aabbccddeeff', accepted_at, settled_at, expires_at, answer FROM idempotency_keys";
    sqlx::raw_sql(dead).execute(world.store.pool()).await.unwrap();
    assert_eq!(world.store.purge(500).await.unwrap(), 1);
    assert_eq!(ask(&world.store, &request("alive")).await, "in progress");
}

// S16: an announcement of this very store that no claim stands behind is nobody's.
#[tokio::test(flavor = "multi_thread")]
async fn an_announcement_that_its_own_store_does_not_know_is_free() {
    let world = World::new().await;
    let owner = claim(&world.store, &request("k")).await;
    sqlx::raw_sql("UPDATE idempotency_keys SET token = x'00112233445566778899aabbccddeeff'")
        .execute(world.store.pool())
        .await
        .unwrap();
    let again = claim(&world.store, &request("k")).await;
    work(&world.store, again, "k").await;
    drop(owner);
    assert_eq!(ask(&world.store, &request("k")).await, "replay k");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "figures: cargo test --release --test sqlite figures -- --ignored --nocapture"]
async fn figures() {
    let world = World::new().await;
    let rival = world.rival().await;
    let each = |from: Instant, times: u32| from.elapsed() / times;
    let since = Instant::now();
    for n in 0..1_000 {
        let mut tx = world.store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
        write(&mut tx, &format!("bare{n}")).await;
        tx.commit().await.unwrap();
    }
    println!("bare transaction: {:?}", each(since, 1_000));
    let since = Instant::now();
    for n in 0..1_000 {
        let owner = claim(&world.store, &request(&format!("one{n}"))).await;
        write(&mut *take(&owner).await, "x").await;
        owner.settle(Settlement::Commit(kept("x"))).await.unwrap();
    }
    println!("guarded request, one after the other: {:?}", each(since, 1_000));
    let running = claim(&world.store, &request("running")).await;
    let tx = take(&running).await;
    for (name, store) in [("same store", &world.store), ("another store", &rival)] {
        let since = Instant::now();
        for _ in 0..1_000 {
            assert_eq!(ask(store, &request("running")).await, "in progress");
        }
        println!("409, {name}, write lock held: {:?}", each(since, 1_000));
        let since = Instant::now();
        for _ in 0..1_000 {
            assert_eq!(ask(store, &request("one1")).await, "replay x");
        }
        println!("replay, {name}, write lock held: {:?}", each(since, 1_000));
    }
    drop(tx);
    drop(running);
    for pause in [0, 20] {
        for stores in [1, 2] {
            let since = Instant::now();
            let writers = (0..32).map(|writer| {
                let store = if writer % stores == 0 { world.store.clone() } else { rival.clone() };
                tokio::spawn(async move {
                    let mut slowest = Duration::ZERO;
                    for round in 0..30 {
                        let since = Instant::now();
                        let owner = claim(&store, &request(&format!("p{pause}s{stores}w{writer}r{round}"))).await;
                        if pause > 0 {
                            sleep(Duration::from_millis(pause)).await;
                        }
                        write(&mut *take(&owner).await, "x").await;
                        owner.settle(Settlement::Commit(kept("x"))).await.unwrap();
                        slowest = slowest.max(since.elapsed());
                    }
                    slowest
                })
            });
            let slowest = join_all(writers).await.into_iter().map(Result::unwrap).max().unwrap();
            let rate = 32.0 * 30.0 / since.elapsed().as_secs_f64();
            println!("32 clients, {stores} store(s), {pause} ms of work first: {rate:.0}/s, slowest {slowest:?}");
        }
    }
}

// Compiles only while the store's futures can be spawned.
#[expect(dead_code, reason = "a check of types")]
fn futures_are_send(store: SqliteStore) {
    let _send: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
        if let Ok(Verdict::Claimed(claim)) = store.claim(&request("k")).await {
            let _ = claim.settle(Settlement::Abandon).await;
        }
    });
}
