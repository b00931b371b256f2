//! The cut test: drop a future after its n-th poll, for every n (Q2).

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::Harness;
use super::support::{answer, claimed, claimed_soon, kept, name, replayed, request, settled, verdict};
use crate::store::{Claim, Settlement, Store, Verdict};

/// More polls than any store needs; the loop ends with the first future that is not cut.
const MOST_POLLS: usize = 200;

/// Polls `future` at most `polls` times, then drops it.
async fn cut_after<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // The last allowed poll was this one: cut now, not when it would have been woken.
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// A dropped `claim` leaves the key free and every connection usable (cases T05, T09).
pub async fn a_dropped_claim_future_leaves_nothing_behind<H: Harness>(harness: &H) {
    let store = harness.store().await;
    for polls in 0..MOST_POLLS {
        let request = request(&format!("cut claim {polls}"), 1);
        let cut = cut_after(store.claim(&request), polls).await;
        let whole = cut.is_some();
        drop(cut);
        if !H::FREES_ON_DROP {
            harness.end_leases().await;
        }
        settled(claimed_soon(&store, &request).await, Settlement::Commit(kept(answer("after")))).await;
        assert_eq!(replayed(&store, &request).await.answer, answer("after"));
        if whole {
            return;
        }
    }
    panic!("a claim takes more than {MOST_POLLS} polls");
}

/// A dropped `settle` is done or undone: afterwards the key replays its answer or is free, nothing in between.
pub async fn a_dropped_settlement_is_done_or_undone<H: Harness>(harness: &H) {
    let store = harness.store().await;
    let kinds = [
        ("commit", Settlement::Commit(kept(answer("first")))),
        ("refuse", Settlement::Refuse(kept(answer("first")))),
        ("abandon", Settlement::Abandon),
    ];
    for (kind, settlement) in kinds {
        let mut whole = false;
        for polls in 0..MOST_POLLS {
            let request = request(&format!("cut {kind} {polls}"), 1);
            let claim = claimed(&store, &request).await;
            whole = cut_after(claim.settle(settlement.clone()), polls).await.is_some();
            if !H::FREES_ON_DROP {
                harness.end_leases().await;
            }
            match verdict(&store, &request).await {
                Verdict::Replay(record) => assert_eq!(record.answer, answer("first")),
                Verdict::Claimed(claim) => settled(claim, Settlement::Commit(kept(answer("second")))).await,
                Verdict::InProgress { .. } => settle_when_free(&store, &request).await,
                other => panic!("{kind} cut after {polls} polls leaves the key {}", name(&other)),
            }
            replayed(&store, &request).await;
            if whole {
                break;
            }
        }
        assert!(whole, "settling takes more than {MOST_POLLS} polls");
    }
}

/// The rest of a dropped settlement is still under way on the server.
async fn settle_when_free<S: Store>(store: &S, request: &crate::store::ClaimRequest) {
    for _ in 0..1000 {
        match verdict(store, request).await {
            Verdict::Replay(_) => return,
            Verdict::Claimed(claim) => {
                return settled(claim, Settlement::Commit(kept(answer("second")))).await;
            }
            Verdict::InProgress { .. } => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
            other => panic!("the key becomes {}", name(&other)),
        }
    }
    panic!("the key is never free");
}
