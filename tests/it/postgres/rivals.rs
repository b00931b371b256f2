//! Claims, refusals and purges that meet each other (S9, S11).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use idempotency::store::{Claim, Kept, Purge, Settled, Settlement, Store, Verdict};
use idempotency::testing::store::{answer, completed, request};
use sqlx::{PgPool, Row};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::postgres::{pool_of, store_on};

fn kept(text: &str) -> Kept {
    Kept { answer: answer(text), retention: Duration::from_secs(3600) }
}

// S11: between the rollback of a refusal and its record the key is free for a moment. However many refuse it with an
// answer of their own, one answer is final, and who was told "recorded" has given that one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_refusals_one_answer_is_final() {
    let pool = pool_of(12).await;
    let store = store_on(&pool).await;
    let mut superseded = 0;
    for round in 0..40 {
        let key = format!("refused {round}");
        let start = Arc::new(Barrier::new(8));
        let mut sessions = JoinSet::new();
        for number in 0..8 {
            let (store, key, start) = (store.clone(), key.clone(), Arc::clone(&start));
            sessions.spawn(async move {
                start.wait().await;
                loop {
                    match store.claim(&request(&key, 1)).await.unwrap() {
                        Verdict::Claimed(claim) => {
                            let text = format!("no, says {number}");
                            return match claim.settle(Settlement::Refuse(kept(&text))).await.unwrap() {
                                Settled::Recorded => Ok(text),
                                Settled::Superseded(_) => Err(true),
                            };
                        }
                        Verdict::Replay(_) => return Err(false),
                        Verdict::InProgress { .. } => tokio::task::yield_now().await,
                        _ => panic!("an honest session is told something else"),
                    }
                }
            });
        }
        let ends = sessions.join_all().await;
        superseded += ends.iter().filter(|end| **end == Err(true)).count();
        let recorded: Vec<&String> = ends.iter().flatten().collect();
        assert_eq!(recorded.len(), 1, "{ends:?}");
        let Verdict::Replay(record) = store.claim(&request(&key, 1)).await.unwrap() else { panic!("no record") };
        assert_eq!(record.answer, answer(recorded[0]));
    }
    println!("{superseded} refusals were superseded");
}

/// So many records that have expired, and one that has not.
async fn fill(pool: &PgPool, expired: i32) {
    let text = "INSERT INTO idempotency_keys
             (scope, id_key, endpoint, state, fingerprint, token, accepted_at, settled_at, expires_at, answer)
         SELECT 'kit', 'old ' || n, 'POST /kit', 1, decode(repeat('00', 40), 'hex'), decode(repeat('00', 16), 'hex'),
             clock_timestamp() - interval '2 days', clock_timestamp() - interval '2 days',
             clock_timestamp() - interval '1 day', ''
         FROM generate_series(1, $1) AS n";
    sqlx::query(text).bind(expired).execute(pool).await.unwrap();
}

async fn count(pool: &PgPool) -> i64 {
    sqlx::raw_sql("SELECT count(*) FROM idempotency_keys").fetch_one(pool).await.unwrap().get(0)
}

// S9, case O02: a large table goes in small steps, and claims go on meanwhile: none fails, none waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_purge_goes_in_steps_and_disturbs_no_claim() {
    let pool = pool_of(8).await;
    let store = store_on(&pool).await;
    fill(&pool, 20_000).await;
    completed(&store, &request("live", 1), answer("live")).await;
    let running = match store.claim(&request("running", 1)).await.unwrap() {
        Verdict::Claimed(claim) => claim,
        _ => panic!("not free"),
    };
    let (stop, claimed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut claims = JoinSet::new();
    for number in 0..4 {
        let (store, stop, claimed) = (store.clone(), Arc::clone(&stop), Arc::clone(&claimed));
        claims.spawn(async move {
            let mut turn = 0;
            while !stop.load(Ordering::Relaxed) {
                turn += 1;
                // Fresh keys, and some that the purge is about to take.
                for key in [format!("new {number} {turn}"), format!("old {}", 20_000 - (turn * 4 + number))] {
                    let asked = request(&key, 1);
                    let step = completed(&store, &asked, answer("new"));
                    tokio::time::timeout(Duration::from_secs(2), step).await.expect("a claim waits for the purge");
                    claimed.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    let (mut purged, mut steps) = (0, 0);
    loop {
        let step = store.purge(1000).await.unwrap();
        assert!(step <= 1000, "{step} rows in one step");
        (purged, steps) = (purged + step, steps + 1);
        if step == 0 {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    claims.join_all().await;
    let claimed = claimed.load(Ordering::Relaxed);
    assert!(steps >= 15 && claimed > 20, "{steps} steps, {claimed} claims: nothing met");
    // Every old row was purged or taken over, and no new one is gone.
    assert_eq!(count(&pool).await, i64::try_from(claimed).unwrap() + 1);
    assert!(matches!(store.claim(&request("live", 1)).await.unwrap(), Verdict::Replay(_)));
    running.settle(Settlement::Commit(kept("done"))).await.unwrap();
    println!("{purged} rows in {steps} steps beside {claimed} claims");
}

// S9: a row that somebody holds is stepped over, not waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_purge_steps_over_rows_that_are_held() {
    let pool = pool_of(4).await;
    let store = store_on(&pool).await;
    fill(&pool, 10).await;
    let Verdict::Claimed(claim) = store.claim(&request("old 3", 1)).await.unwrap() else { panic!("not free") };
    let purged = tokio::time::timeout(Duration::from_secs(2), store.purge(100)).await.expect("it waits").unwrap();
    assert_eq!(purged, 9);
    claim.settle(Settlement::Commit(kept("new"))).await.unwrap();
    assert_eq!((store.purge(100).await.unwrap(), count(&pool).await), (0, 1));
}

// Case C16: the record vanishes between the conflict and the look at it, again and again; a claim ends with a verdict
// all the same, and there is one owner at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_record_that_vanishes_while_it_is_asked_for_is_no_failure() {
    let pool = pool_of(12).await;
    let store = store_on(&pool).await;
    let (stop, owned, inside) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut sessions = JoinSet::new();
    for _ in 0..6 {
        let (store, stop, owned, inside) = (store.clone(), Arc::clone(&stop), Arc::clone(&owned), Arc::clone(&inside));
        sessions.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                match store.claim(&request("vanishing", 1)).await.unwrap() {
                    Verdict::Claimed(claim) => {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two owners");
                        owned.fetch_add(1, Ordering::Relaxed);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        claim.settle(Settlement::Commit(kept("done"))).await.unwrap();
                    }
                    Verdict::Replay(_) | Verdict::InProgress { .. } => {}
                    _ => panic!("an honest session is told something else"),
                }
            }
        });
    }
    for _ in 0..150 {
        sqlx::raw_sql("DELETE FROM idempotency_keys").execute(&pool).await.unwrap();
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    stop.store(true, Ordering::Relaxed);
    sessions.join_all().await;
    assert!(owned.load(Ordering::Relaxed) > 20, "the record hardly ever vanished");
}

// Case C18: a claim that comes too late is a verdict and not an error, so the transaction of whoever asks stays usable.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_claim_leaves_the_askers_transaction_alone() {
    use crate::support::app::{count_effects, create_effects, effects, send, write_effect};
    let pool = pool_of(4).await;
    let store = store_on(&pool).await;
    create_effects(&pool).await;
    completed(&store, &request("done", 1), answer("done")).await;
    let asked = store.clone();
    let app = effects(store.clone(), move |mut tx| {
        let store = asked.clone();
        async move {
            write_effect(&mut tx, "before").await.unwrap();
            assert!(matches!(store.claim(&request("done", 1)).await.unwrap(), Verdict::Replay(_)));
            assert!(matches!(store.claim(&request("done", 2)).await.unwrap(), Verdict::Mismatch));
            write_effect(&mut tx, "after").await.unwrap();
            axum::http::StatusCode::CREATED
        }
    });
    assert_eq!(send(&app, Some("asks"), "{}").await.status, 201);
    assert_eq!(count_effects(&pool).await, 2);
}
