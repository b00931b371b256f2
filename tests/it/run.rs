//! Operations without HTTP (H47).

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use idempotency::layer::EndpointKey;
use idempotency::run::{Finish, Operation, Ran, RunError, RunOnce};
use idempotency::store::Store;
use idempotency::testing::ManualClock;
use idempotency::{ErrorKind, IdempotencyLayer, Key, MemoryStore, Scope, ScopeId};
use sqlx::{PgPool, Postgres};
use tokio::task::JoinSet;

use crate::support::app::{count_effects, create_effects};
use crate::support::fake::Fake;
use crate::support::http::{Runs, post, send};
use crate::support::postgres::{pool_of, store_on};

fn operation(key: &str, input: &[u8]) -> Operation {
    Operation::new("send invoice", ScopeId::shared(), Key::new(key).unwrap(), input)
}

async fn commits<S: Store>(store: &S, key: &str, input: &[u8], result: &'static str) -> Ran {
    store.run(&operation(key, input), |_| async move { Ok::<_, ()>(Finish::Commit(result.into())) }).await.unwrap()
}

// H47: the same claim, the same verdicts.
#[tokio::test]
async fn an_operation_runs_once_and_its_result_is_replayed() {
    let store = MemoryStore::new();
    assert_eq!(commits(&store, "k", b"input", "one").await, Ran::Executed(Finish::Commit("one".into())));
    assert_eq!(commits(&store, "k", b"input", "two").await, Ran::Replayed("one".into()));
    assert_eq!(commits(&store, "k", b"other", "two").await, Ran::Mismatch);
    let elsewhere = Operation::new("another job", ScopeId::shared(), Key::new("k").unwrap(), b"input");
    let ran = store.run(&elsewhere, |_| async { Ok::<_, ()>(Finish::Abandon(Bytes::new())) }).await.unwrap();
    assert_eq!(ran, Ran::Executed(Finish::Abandon(Bytes::new())));
}

// H47, H20
#[tokio::test]
async fn of_many_at_once_one_runs() {
    let (store, runs) = (MemoryStore::new(), Arc::new(AtomicU32::new(0)));
    let mut running = JoinSet::new();
    for _ in 0..50 {
        let (store, runs) = (store.clone(), Arc::clone(&runs));
        running.spawn(async move {
            store
                .run(&operation("k", b""), |_| async move {
                    runs.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    Ok::<_, ()>(Finish::Commit("done".into()))
                })
                .await
                .unwrap()
        });
    }
    for ran in running.join_all().await {
        assert!(matches!(ran, Ran::Executed(_) | Ran::Replayed(_) | Ran::InProgress { .. }), "{ran:?}");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

// H47, cases L14, L12: a lease is renewed beside the work; work that has lost it records nothing.
#[tokio::test(start_paused = true)]
async fn a_lease_is_kept_alive_and_a_lost_one_records_nothing() {
    let clock = ManualClock::default();
    let store = MemoryStore::new().lease(Duration::from_secs(3)).unwrap().clock(clock.clone());
    let asked = operation("slow", b"");
    let slow = store.run(&asked, async |_| {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            clock.advance(Duration::from_millis(500));
            assert!(matches!(commits(&store, "slow", b"", "rival").await, Ran::InProgress { .. }));
        }
        Ok::<_, ()>(Finish::Commit("slow".into()))
    });
    assert_eq!(slow.await.unwrap(), Ran::Executed(Finish::Commit("slow".into())));

    let asked = operation("stale", b"");
    let stale = store.run(&asked, async |running| {
        assert_eq!(running.attempt().number(), 1);
        clock.advance(Duration::from_secs(3));
        assert!(matches!(commits(&store, "stale", b"", "rival").await, Ran::Executed(_)));
        Ok::<_, ()>(Finish::Commit("stale".into()))
    });
    match stale.await {
        Err(RunError::Store(error)) => assert_eq!(error.kind(), ErrorKind::LeaseLost),
        other => panic!("{other:?}"),
    }
    assert_eq!(commits(&store, "stale", b"", "third").await, Ran::Replayed("rival".into()));
}

async fn write(pool: &PgPool, store: &impl Store, key: &str, finish: Result<Finish, &'static str>) -> i64 {
    let before = count_effects(pool).await;
    let _ = store
        .run(&operation(key, b""), |running| async move {
            let mut tx = running.tx::<Postgres>().await.map_err(|_| "no transaction")?;
            sqlx::query("INSERT INTO effects (what) VALUES ('job')").execute(&mut *tx).await.unwrap();
            drop(tx);
            finish
        })
        .await;
    count_effects(pool).await - before
}

// H47, H31: writes and result are one transaction.
#[tokio::test(flavor = "multi_thread")]
async fn the_works_writes_join_the_claims_transaction() {
    let pool = pool_of(3).await;
    let store = store_on(&pool).await;
    create_effects(&pool).await;
    assert_eq!(write(&pool, &store, "commit", Ok(Finish::Commit("done".into()))).await, 1);
    assert_eq!(write(&pool, &store, "refuse", Ok(Finish::Refuse("no".into()))).await, 0);
    assert_eq!(write(&pool, &store, "abandon", Ok(Finish::Abandon("later".into()))).await, 0);
    assert_eq!(write(&pool, &store, "error", Err("broken")).await, 0);
    assert_eq!(commits(&store, "commit", b"", "again").await, Ran::Replayed("done".into()));
    assert_eq!(commits(&store, "refuse", b"", "again").await, Ran::Replayed("no".into()));
    assert!(matches!(commits(&store, "abandon", b"", "again").await, Ran::Executed(_)));
    assert!(matches!(commits(&store, "error", b"", "again").await, Ran::Executed(_)));
}

// H47, H29: a transaction that is kept or ended is an error, and nothing is recorded as done.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_kept_or_ended_is_an_error() {
    let pool = pool_of(3).await;
    let store = store_on(&pool).await;
    create_effects(&pool).await;
    let (keep, mut kept) = tokio::sync::mpsc::unbounded_channel();
    let asked = operation("held", b"");
    let held = store.run(&asked, |running| async move {
        keep.send(running.tx::<Postgres>().await.unwrap()).unwrap();
        Ok::<_, ()>(Finish::Commit("held".into()))
    });
    assert!(matches!(held.await, Err(RunError::Store(error)) if error.kind() == ErrorKind::HeldTransaction));
    drop(kept.recv().await);
    let asked = operation("ended", b"");
    let ended = store.run(&asked, |running| async move {
        let mut tx = running.tx::<Postgres>().await.unwrap();
        sqlx::raw_sql("COMMIT").execute(&mut *tx).await.unwrap();
        drop(tx);
        Ok::<_, ()>(Finish::Commit("ended".into()))
    });
    assert!(matches!(ended.await, Err(RunError::Store(error)) if error.kind() == ErrorKind::TransactionEnded));
    assert_eq!(commits(&store, "ended", b"", "again").await, Ran::Orphaned);
}

// H47, case T05: dropped at any poll, the work ran at most once and the key is free or done.
#[tokio::test(flavor = "multi_thread")]
async fn an_operation_dropped_in_the_middle_keeps_nothing() {
    let pool = pool_of(3).await;
    let store = store_on(&pool).await;
    create_effects(&pool).await;
    for millis in 0..20 {
        let key = format!("dropped {millis}");
        let run = write(&pool, &store, &key, Ok(Finish::Commit("done".into())));
        let _ = tokio::time::timeout(Duration::from_millis(millis), run).await;
        let until = tokio::time::Instant::now() + Duration::from_secs(5);
        loop {
            match commits(&store, &key, b"", "after").await {
                Ran::Executed(_) | Ran::Replayed(_) => break,
                Ran::InProgress { .. } => assert!(tokio::time::Instant::now() < until, "{key}: the key stays held"),
                other => panic!("{key}: {other:?}"),
            }
        }
    }
}

// H47, H26: as behind the layer, a panic is settled, so that a lease store's key is free at once.
#[tokio::test]
async fn work_that_panics_frees_the_key() {
    let store = MemoryStore::new();
    let panicking = tokio::spawn({
        let store = store.clone();
        async move { store.run(&operation("k", b""), async |_| -> Result<Finish, ()> { panic!("work") }).await.map(drop) }
    });
    assert!(panicking.await.unwrap_err().is_panic());
    assert!(matches!(commits(&store, "k", b"", "again").await, Ran::Executed(_)));
}

// H47, H23: a store that does not answer is an error in time.
#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_an_error_in_time() {
    let store = Fake::new().on_claim(|_| std::future::pending());
    let asked = operation("k", b"");
    let ran = tokio::time::timeout(
        Duration::from_secs(60),
        store.run(&asked, async |_| -> Result<Finish, ()> { unreachable!("not claimed") }),
    );
    match ran.await.expect("in time") {
        Err(RunError::Store(error)) => assert_eq!(error.kind(), ErrorKind::Unavailable),
        other => panic!("{other:?}"),
    }
}

// H47: the work's own failure is told, also where it still holds its transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_told_although_the_transaction_is_held() {
    let pool = pool_of(3).await;
    let store = store_on(&pool).await;
    let (keep, mut kept) = tokio::sync::mpsc::unbounded_channel();
    let asked = operation("k", b"");
    let ran = store.run(&asked, |running| async move {
        keep.send(running.tx::<Postgres>().await.unwrap()).unwrap();
        Err::<Finish, _>("work")
    });
    assert!(matches!(ran.await, Err(RunError::Work("work"))));
    drop(kept.recv().await);
}

// H47, H12: an operation never meets a request, however it is called: their fingerprints cannot be compared.
#[tokio::test]
async fn an_operation_is_never_a_request() {
    for (endpoint, name) in [(EndpointKey::Ignored, ""), (EndpointKey::Path, "POST /")] {
        let store = MemoryStore::new();
        let layer = IdempotencyLayer::new(store.clone(), Scope::shared()).endpoint(endpoint);
        let app = Runs::default().app().layer(layer);
        assert_eq!(send(&app, post("k")).await.text(), "run 1");
        let asked = Operation::new(name, ScopeId::shared(), Key::new("k").unwrap(), b"");
        let ran = store.run(&asked, async |_| Ok::<_, ()>(Finish::Commit("job".into()))).await.unwrap();
        assert_eq!(ran, Ran::Executed(Finish::Commit("job".into())), "{name:?}");
    }
}

// H47, H35: work that is done and cannot be recorded is told as done by a lease store, and as failed where it is undone.
#[tokio::test(start_paused = true)]
async fn a_settlement_that_fails_is_told_by_what_is_left_of_the_work() {
    let lease = Fake::new().lease().silent_late().unsettled(ErrorKind::Unavailable);
    assert!(matches!(commits(&lease, "k", b"", "one").await, Ran::Executed(_)));
    assert!(matches!(commits(&lease, "k", b"", "two").await, Ran::InProgress { .. }), "held by its lease");
    for (store, kind) in [
        (Fake::new().lease().unsettled(ErrorKind::LeaseLost), ErrorKind::LeaseLost),
        (Fake::new().unsettled(ErrorKind::Unavailable), ErrorKind::Unavailable),
    ] {
        let ran = store.run(&operation("k", b""), async |_| Ok::<_, ()>(Finish::Commit("one".into()))).await;
        assert!(matches!(ran, Err(RunError::Store(error)) if error.kind() == kind));
    }
}

// H47, H35, case L22: what could not be recorded is recorded late, as behind the layer.
#[tokio::test(start_paused = true)]
async fn a_result_that_could_not_be_recorded_is_recorded_late() {
    let store = Fake::new().lease().unsettled(ErrorKind::Unavailable);
    assert!(matches!(commits(&store, "k", b"", "one").await, Ran::Executed(_)));
    assert_eq!(commits(&store, "k", b"", "two").await, Ran::Replayed("one".into()));
}

// H47, S20
#[tokio::test(start_paused = true)]
async fn work_whose_claim_is_answered_after_its_lease_is_not_run() {
    let store = Fake::new().lease().on_claim(|_| async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        None
    });
    let operation = operation("k", b"").claim_timeout(Duration::from_secs(60));
    let ran = store.run(&operation, async |_| -> Result<Finish, Infallible> { panic!("it must not run") }).await;
    assert!(matches!(ran, Err(RunError::Store(error)) if error.kind() == ErrorKind::Unavailable));
    assert_eq!(store.settlements(), ["abandon"]);
}
