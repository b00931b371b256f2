//! Operator calls on Postgres: orphans, and the sessions behind running keys (S8).

use std::time::Duration;

use http::Extensions;
use idempotency::policy::State;
use idempotency::store::{
    Claim, ClaimRequest, Isolation, Kept, Operate, Operated, PostgresClaim, Settlement, Store, Verdict,
};
use idempotency::testing::store::{answer, request};
use idempotency::{ErrorKind, PostgresStore, Tx};
use sqlx::Postgres;

use crate::support::postgres::{options, pool_of, pool_on, store_on};
use crate::support::proxy::{Proxy, Then};

const KEPT: Duration = Duration::from_secs(3600);

async fn claimed(store: &PostgresStore, request: &ClaimRequest) -> PostgresClaim {
    let Verdict::Claimed(claim) = store.claim(&request.again()).await.unwrap() else { panic!("not free") };
    claim
}

async fn find(store: &PostgresStore, request: &ClaimRequest) -> Vec<idempotency::store::Entry> {
    let lookup = request.lookup();
    store.find(lookup.scope(), lookup.key(), Some(lookup.endpoint())).await.unwrap()
}

/// A key whose handler has committed by itself (H29).
async fn orphan(store: &PostgresStore, request: &ClaimRequest) {
    let claim = claimed(store, request).await;
    let mut extensions = Extensions::new();
    claim.attach(&mut extensions);
    let mut tx = Tx::<Postgres>::take(&extensions).await.unwrap();
    sqlx::raw_sql("COMMIT").execute(&mut *tx).await.unwrap();
    drop(tx);
    let kept = Kept { answer: answer("lost"), retention: KEPT };
    assert_eq!(claim.settle(Settlement::Commit(kept)).await.unwrap_err().kind(), ErrorKind::TransactionEnded);
}

// S8, H29, case L21: what only a person can tell, a person tells.
#[tokio::test(flavor = "multi_thread")]
async fn an_orphan_is_listed_and_then_settled_or_released() {
    let store = store_on(&pool_of(5).await).await;
    let (settled, released) = (request("settled", 1), request("released", 1));
    orphan(&store, &settled).await;
    orphan(&store, &released).await;
    let stuck = store.list_stuck(Duration::ZERO, 10).await.unwrap();
    assert_eq!(stuck.iter().map(|entry| entry.state).collect::<Vec<_>>(), [State::Orphaned, State::Orphaned]);
    assert_eq!(stuck[0].lookup, *settled.lookup(), "the oldest first");
    let kept = Kept { answer: answer("by the operator"), retention: KEPT };
    assert_eq!(store.settle_as(&stuck[0], kept).await.unwrap(), Operated::Done);
    let Verdict::Replay(record) = store.claim(&settled.again()).await.unwrap() else { panic!() };
    assert_eq!(record.answer, answer("by the operator"));
    assert_eq!(store.release(&stuck[1]).await.unwrap(), Operated::Done);
    claimed(&store, &released).await;
    assert!(store.list_stuck(Duration::ZERO, 10).await.unwrap().is_empty());
}

// S8: K first. Whoever works on a row holds it, so that an operator and a claim never act on one key at a time.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_lock_is_held_is_in_progress() {
    let pool = pool_of(5).await;
    let store = store_on(&pool).await;
    let asked = request("busy", 1);
    orphan(&store, &asked).await;
    let entry = find(&store, &asked).await.remove(0);
    // As a claim that takes the expired row over.
    sqlx::query("UPDATE idempotency_keys SET expires_at = clock_timestamp()").execute(&pool).await.unwrap();
    let claim = claimed(&store, &asked).await;
    assert_eq!(store.release(&entry).await.unwrap(), Operated::InProgress);
    assert_eq!(store.forget(&entry).await.unwrap(), Operated::InProgress);
    drop(claim);
}

// S8, S15: who merely asks for a record holds K, too: for a moment, and not for ever where its host dies without a word.
#[tokio::test(flavor = "multi_thread")]
async fn an_asker_is_in_an_operators_way_for_a_moment_only() {
    let direct = pool_of(5).await;
    let store = store_on(&direct).await;
    let schema: String = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&direct).await.unwrap();
    let (soon, late) = ((30, Operated::Done), (2000, Operated::InProgress));
    let levels = [Isolation::ReadCommitted, Isolation::Serializable];
    for (level, (idle, first)) in levels.into_iter().flat_map(|level| [(level, soon), (level, late)]) {
        let asked = request(&format!("asked for {idle} ms under {level:?}"), 1);
        orphan(&store, &asked).await;
        let entry = find(&store, &asked).await.remove(0);
        let proxy = Proxy::start(&options()).await;
        let pool = pool_on(proxy.options(&options()).options([("search_path", schema.as_str())]), 1).await;
        let idle = Some(Duration::from_millis(idle));
        let asker = PostgresStore::builder(pool.clone()).isolation(level).idle_timeout(idle).build().await.unwrap();
        // What it asked its server is over.
        while pool.num_idle() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        proxy.judge(|message| if message.is_query("ROLLBACK") { Then::Stall } else { Then::Forward });
        assert!(matches!(asker.claim(&asked.again()).await.unwrap(), Verdict::Orphaned));
        let mut operated = store.release(&entry).await.unwrap();
        assert_eq!(operated, first, "{idle:?}");
        for _ in 0..200 {
            if operated == Operated::Done {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            operated = store.release(&entry).await.unwrap();
        }
        assert_eq!(operated, Operated::Done);
    }
}

// S8: a running key is an uncommitted row; what can be seen is its session, and ending that frees the key.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_key_is_found_by_its_session_and_freed_by_ending_it() {
    let store = store_on(&pool_of(5).await).await;
    let asked = request("hangs", 1);
    let claim = claimed(&store, &asked).await;
    let entry = find(&store, &asked).await.remove(0);
    let holder = entry.holder.clone().expect("a session holds it");
    assert_eq!((entry.state, entry.token), (State::Running, None));
    assert_eq!(holder.client.as_deref(), Some("127.0.0.1"));
    assert_eq!(store.release(&entry).await.unwrap(), Operated::InProgress);
    let holders = store.holders(Duration::ZERO, 10).await.unwrap();
    assert_eq!(holders.iter().map(|holder| holder.pid).collect::<Vec<_>>(), [holder.pid]);
    assert!(store.holders(Duration::from_secs(600), 10).await.unwrap().is_empty(), "not so old");
    assert!(store.terminate(&holder).await.unwrap());
    for _ in 0..100 {
        if let Verdict::Claimed(_) = store.claim(&asked.again()).await.unwrap() {
            assert!(!store.terminate(&holder).await.unwrap(), "it holds nothing any more");
            assert!(claim.settle(Settlement::Abandon).await.is_ok());
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the key is not free");
}

// S8: what an operator has seen is a transaction. The session's next one belongs to somebody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_runs_the_next_request_is_not_ended() {
    let store = store_on(&pool_of(2).await).await;
    let mut seen = Vec::new();
    for number in 0..10 {
        let asked = request(&format!("turn {number}"), 1);
        let claim = claimed(&store, &asked).await;
        let holder = find(&store, &asked).await.remove(0).holder.expect("a session holds it");
        if let Some(former) = seen.iter().find(|former: &&idempotency::store::Holder| former.pid == holder.pid) {
            assert!(!store.terminate(former).await.unwrap());
            assert!(claim.settle(Settlement::Abandon).await.is_ok());
            return;
        }
        seen.push(holder);
        claim.settle(Settlement::Abandon).await.unwrap();
    }
    panic!("no session was used twice");
}
