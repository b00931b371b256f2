//! The lease while its owner lives, stops and comes back (S3, S5, S20, S21).

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use idempotency::store::{Claim, Settlement, Store, Verdict};
use idempotency::testing::store::request;
use idempotency::{ErrorKind, IdempotencyLayer, Scope};
use tokio::time::{Instant, sleep};

use super::lab::{LEASE, Lab, Running, Unrenewed, answering};
use crate::support::http::{Runs, post, send};

super::on_each_engine! {
    a_handler_that_outlives_its_lease_five_times_runs_once
    an_owner_that_stood_still_changes_nothing
    a_lapsed_owner_that_nobody_has_followed_goes_on
    a_renewal_that_is_cut_at_any_poll_leaves_the_lease_alone
    a_lease_of_zero_is_refused
    handles_with_other_settings_share_the_table
}

// S20, case L14
async fn a_handler_that_outlives_its_lease_five_times_runs_once<L: Lab>() {
    let lab = L::new().await;
    let lease = Duration::from_secs(1);
    let store = lab.store().await.lease(lease).unwrap();
    let runs = Runs::default();
    let handler = runs.clone();
    let app = Router::new().fallback(async move || {
        handler.next();
        sleep(lease * 5).await;
        "done"
    });
    let here = app.clone().layer(IdempotencyLayer::new(store, Scope::shared()));
    let there = app.layer(IdempotencyLayer::new(lab.store().await, Scope::shared()));
    let first = tokio::spawn(async move { send(&here, post("k")).await });
    let mut asked = 0;
    sleep(lease / 2).await;
    while !first.is_finished() {
        match send(&there, post("k")).await.said().as_str() {
            "409 in-progress" => asked += 1,
            "200" => break,
            other => panic!("{other}"),
        }
        sleep(lease / 5).await;
    }
    assert_eq!(first.await.unwrap().text(), "done");
    assert!(asked > 5, "the duplicates were to meet the running one: {asked}");
    assert!(send(&there, post("k")).await.is_replay());
    assert_eq!(runs.count(), 1);
}

// S3, S21, H35; cases L12, L13, D05: what a stopped process finds when it goes on.
async fn an_owner_that_stood_still_changes_nothing<L: Lab>() {
    let lab = L::new().await;
    let stopped = Running::start(Unrenewed(lab.store().await.lease(Duration::from_millis(300)).unwrap()), "k").await;
    sleep(Duration::from_millis(400)).await;
    let follower = Running::start(lab.store().await, "k").await;
    assert_eq!((stopped.attempt.number(), follower.attempt.number()), (1, 2));
    assert!(follower.attempt.fence() > stopped.attempt.fence());
    assert_eq!(stopped.attempt.dispatching().await.unwrap_err().kind(), ErrorKind::LeaseLost);
    let told = stopped.end(201, "stopped").await;
    assert_eq!(told.said(), "409 lease-lost");
    assert!(told.header("retry-after").is_some());
    let app = answering(lab.store().await, "third");
    assert_eq!(send(&app, post("k")).await.said(), "409 in-progress", "the follower still runs");
    assert_eq!(follower.end(201, "follower").await.text(), "follower");
    assert_eq!(send(&app, post("k")).await.text(), "follower");
}

// S20: one lapse is not a loss.
async fn a_lapsed_owner_that_nobody_has_followed_goes_on<L: Lab>() {
    let lab = L::new().await;
    let stopped = Running::start(Unrenewed(lab.store().await.lease(Duration::from_millis(50)).unwrap()), "k").await;
    sleep(Duration::from_millis(100)).await;
    assert_eq!(stopped.end(201, "late").await.text(), "late");
    assert!(send(&answering(lab.store().await, "other"), post("k")).await.is_replay());
}

/// Polls at most so often, then drops.
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
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

// S20: cancel safe. (The kit cuts claims and settlements.)
async fn a_renewal_that_is_cut_at_any_poll_leaves_the_lease_alone<L: Lab>() {
    let lab = L::new().await;
    let store = lab.store().await;
    let Ok(Verdict::Claimed(mut claim)) = store.claim(&request("k", 1)).await else { panic!() };
    for polls in 0..200 {
        let whole = cut_after(claim.renew(), polls).await;
        let told = store.claim(&request("k", 1)).await;
        assert!(matches!(told, Ok(Verdict::InProgress { .. })), "{polls}: {told:?}");
        if let Some(renewed) = whole {
            renewed.unwrap();
            claim.settle(Settlement::Abandon).await.unwrap();
            assert!(matches!(store.claim(&request("k", 1)).await, Ok(Verdict::Claimed(_))));
            return;
        }
    }
    panic!("a renewal takes more polls than that");
}

// S5, case L02
async fn a_lease_of_zero_is_refused<L: Lab>() {
    let lab = L::new().await;
    let store = lab.store().await;
    for lease in [Duration::ZERO, Duration::from_millis(2)] {
        assert_eq!(store.clone().lease(lease).unwrap_err().kind(), ErrorKind::Setup);
    }
    // And the longest one works.
    let store = store.lease(Duration::MAX).unwrap();
    let Ok(Verdict::Claimed(mut claim)) = store.claim(&request("for ever", 1)).await else { panic!() };
    claim.renew().await.unwrap();
    claim.settle(Settlement::Abandon).await.unwrap();
}

async fn handles_with_other_settings_share_the_table<L: Lab>() {
    let lab = L::new().await;
    let long = lab.store().await;
    let short = long.clone().lease(Duration::from_millis(50)).unwrap();
    let Ok(Verdict::Claimed(claim)) = short.claim(&request("k", 1)).await else { panic!() };
    assert_eq!((claim.lease(), claim.attempt()), (Some(Duration::from_millis(50)), 1));
    let since = Instant::now();
    let claim = loop {
        match long.claim(&request("k", 1)).await.unwrap() {
            Verdict::Claimed(claim) => break claim,
            _ => sleep(Duration::from_millis(10)).await,
        }
    };
    assert!(since.elapsed() < LEASE, "by the lease of the one who holds it");
    assert_eq!((claim.lease(), claim.attempt()), (Some(LEASE), 2));
}
