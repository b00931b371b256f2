//! What holds when many ask at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::Harness;
use super::support::{answer, completed, kept, name, replayed, request, settled, verdict};
use crate::store::{Claim, ClaimRequest, Settlement, Store, Verdict};

const AT_ONCE: u32 = 50;

/// The barrier opens once for all of them; those that hold a claim keep it until everybody has asked.
async fn owners_among<S: Store>(stores: [S; 2], request: &ClaimRequest) -> u32 {
    let start = Arc::new(Barrier::new(AT_ONCE as usize));
    let end = Arc::new(Barrier::new(AT_ONCE as usize));
    let mut askers = JoinSet::new();
    for number in 0..AT_ONCE {
        let store = stores[number as usize % 2].clone();
        let (request, start, end) = (request.again(), Arc::clone(&start), Arc::clone(&end));
        askers.spawn(async move {
            start.wait().await;
            let verdict = verdict(&store, &request).await;
            end.wait().await;
            match verdict {
                Verdict::Claimed(claim) => {
                    settled(claim, Settlement::Commit(kept(answer("one")))).await;
                    1
                }
                Verdict::InProgress { .. } => 0,
                other => panic!("an honest duplicate is told {}", name(&other)),
            }
        });
    }
    askers.join_all().await.into_iter().sum()
}

/// Exactly one runs, and nobody fails (H20; cases C01, C02, C04, C17).
pub async fn of_many_identical_claims_one_is_owner<H: Harness>(harness: &H) {
    let stores = [harness.store().await, harness.store().await];
    for round in 0..5 {
        let request = request(&format!("many {round}"), 1);
        assert_eq!(owners_among(stores.clone(), &request).await, 1);
        assert_eq!(replayed(&stores[0], &request).await.answer, answer("one"));
    }
}

/// One new owner of an expired key, however many ask (H24).
pub async fn an_expired_key_has_one_new_owner<H: Harness>(harness: &H) {
    let stores = [harness.store().await, harness.store().await];
    let request = request("expired many", 1);
    completed(&stores[0], &request, answer("old")).await;
    harness.expire(request.lookup()).await;
    assert_eq!(owners_among(stores.clone(), &request).await, 1);
    assert_eq!(replayed(&stores[1], &request).await.answer, answer("one"));
}

/// No failure, deadlock or refusal among claims of different keys (cases C20, C21, C22, C23).
pub async fn different_keys_do_not_disturb_each_other<H: Harness>(harness: &H) {
    let store = harness.store().await;
    let mut askers = JoinSet::new();
    for number in 0..16 {
        let store = store.clone();
        askers.spawn(async move {
            for round in 0..10 {
                let request = request(&format!("key {number} {round}"), 1);
                completed(&store, &request, answer("own")).await;
            }
        });
    }
    askers.join_all().await;
}

/// Sessions that claim one key, abandon it sometimes and commit it once: one commit in all (case C19).
pub async fn an_owner_that_comes_and_goes_leaves_one_effect<H: Harness>(harness: &H) {
    let store = harness.store().await;
    for round in 0..5 {
        let request = request(&format!("comes and goes {round}"), 1);
        let commits = Arc::new(AtomicU32::new(0));
        let mut askers = JoinSet::new();
        for number in 0..16 {
            let (store, request, commits) = (store.clone(), request.again(), Arc::clone(&commits));
            askers.spawn(async move {
                loop {
                    match verdict(&store, &request).await {
                        Verdict::Claimed(claim) if number % 3 == 0 => {
                            settled(claim, Settlement::Abandon).await;
                            break;
                        }
                        Verdict::Claimed(claim) => {
                            commits.fetch_add(1, Ordering::SeqCst);
                            settled(claim, Settlement::Commit(kept(answer("one")))).await;
                        }
                        Verdict::InProgress { .. } => tokio::time::sleep(Duration::from_millis(1)).await,
                        Verdict::Replay(record) => {
                            assert_eq!(record.answer, answer("one"));
                            break;
                        }
                        other => panic!("an honest session is told {}", name(&other)),
                    }
                }
            });
        }
        askers.join_all().await;
        assert!(commits.load(Ordering::SeqCst) <= 1, "the operation ran more than once");
    }
}

/// Honest and wrong-body sessions hammer keys across the owner's commit: no honest one is ever told that its key is
/// another's, no wrong one is ever told an answer (H21, case C14).
pub async fn an_honest_retry_is_never_a_mismatch<H: Harness>(harness: &H) {
    let store = harness.store().await;
    for round in 0..30 {
        let honest = request(&format!("hammered {round}"), 1);
        let wrong = request(&format!("hammered {round}"), 2);
        let claim = match verdict(&store, &honest).await {
            Verdict::Claimed(claim) => claim,
            other => panic!("expected the claim, got {}", name(&other)),
        };
        let mut askers = JoinSet::new();
        for number in 0..8 {
            let store = store.clone();
            let (request, is_honest) = if number % 2 == 0 { (honest.again(), true) } else { (wrong.again(), false) };
            askers.spawn(async move {
                loop {
                    match (verdict(&store, &request).await, is_honest) {
                        (Verdict::Replay(_), true) | (Verdict::Mismatch, false) => break,
                        // A store without I/O never yields by itself.
                        (Verdict::InProgress { .. }, _) => tokio::task::yield_now().await,
                        (other, _) => panic!("honest {is_honest}: told {}", name(&other)),
                    }
                }
            });
        }
        tokio::task::yield_now().await;
        settle_slowly(claim).await;
        askers.join_all().await;
    }
}

async fn settle_slowly<C: Claim>(claim: C) {
    tokio::time::sleep(Duration::from_millis(2)).await;
    settled(claim, Settlement::Commit(kept(answer("done")))).await;
}
