//! The script takes over exactly what the decision function says is to be taken over (S1).

use std::time::Duration;

use idempotency::fingerprint::{Fingerprint, Match, Profile};
use idempotency::policy::{Judgement, State, judge};
use idempotency::store::{Claim, ClaimRequest, Settlement, Store, Verdict};
use idempotency::testing::store::{Harness, completed, request};

use crate::support::redis::RedisHarness;

const STATES: [State; 4] = [State::Running, State::Lapsed, State::Unknown, State::Completed];
const MATCHES: [Match; 3] = [Match::Same, Match::Different, Match::OtherProfile];

fn fingerprint(profile: u8, body: u8) -> Fingerprint {
    Fingerprint::new(Profile::from_bytes([profile; 8]), [body; 32])
}

/// Requests whose comparison with `fingerprint(1, 1)` gives this, in their current and in an earlier profile.
fn asked(first: &ClaimRequest, compared: Match) -> Vec<ClaimRequest> {
    let with = |current: Fingerprint, previous: Vec<Fingerprint>| {
        ClaimRequest::new(first.lookup().clone(), current, Duration::from_secs(60)).with_previous(previous)
    };
    match compared {
        Match::Same => vec![
            with(fingerprint(1, 1), vec![]),
            with(fingerprint(2, 9), vec![fingerprint(3, 9), fingerprint(1, 1), fingerprint(1, 9)]),
        ],
        Match::Different => vec![
            with(fingerprint(1, 9), vec![fingerprint(1, 1)]),
            with(fingerprint(2, 1), vec![fingerprint(1, 9), fingerprint(1, 1)]),
        ],
        Match::OtherProfile => vec![with(fingerprint(2, 1), vec![]), with(fingerprint(2, 1), vec![fingerprint(3, 1)])],
    }
}

// S1, H18, H21: every state a record can be in, met by every kind of request.
#[tokio::test]
async fn the_script_decides_as_the_decision_function_does() {
    let harness = RedisHarness::single().await;
    let store = harness.store().await;
    let mut admin = harness.admin.clone();
    for state in STATES {
        for compared in MATCHES {
            for (number, _) in asked(&request("any", 1), compared).iter().enumerate() {
                let lookup = request(&format!("{state:?} {compared:?} {number}"), 1).lookup().clone();
                let first = ClaimRequest::new(lookup, fingerprint(1, 1), Duration::from_secs(3600));
                let name = harness.record(first.lookup());
                let asked = &asked(&first, compared)[number];
                assert_eq!(asked.compare(first.fingerprint()), compared, "the test's own request");
                let Verdict::Claimed(claim) = store.claim(&first).await.unwrap() else { panic!("not free") };
                match state {
                    State::Running => {}
                    State::Lapsed => admin.hset(&name, "l", 1).await,
                    State::Unknown => {
                        admin.hset(&name, "l", 1).await;
                        admin.hset(&name, "h", 1).await;
                    }
                    State::Completed => {
                        claim.settle(Settlement::Abandon).await.unwrap();
                        completed(&store, &first, idempotency::testing::store::answer("done")).await;
                    }
                    State::Orphaned => unreachable!(),
                }
                let verdict = store.claim(asked).await.unwrap();
                let told = match &verdict {
                    Verdict::Claimed(claim) => {
                        assert_eq!(claim.attempt(), 2, "{state:?} {compared:?}");
                        Judgement::TakeOver
                    }
                    Verdict::Replay(_) => Judgement::Replay,
                    Verdict::InProgress { .. } => Judgement::InProgress,
                    Verdict::Mismatch => Judgement::Mismatch,
                    Verdict::Orphaned => Judgement::Orphaned,
                    Verdict::Unknown => Judgement::Unknown,
                    _ => panic!("a verdict of a later version"),
                };
                assert_eq!(told, judge(state, compared), "{state:?} {compared:?} {number}");
            }
        }
    }
}

// S5, H24: an instant is over when it is reached, for both clocks.
#[tokio::test]
async fn what_has_ended_decides_nothing() {
    let harness = RedisHarness::single().await;
    let store = harness.store().await;
    let mut admin = harness.admin.clone();
    // Running, its lease and its retention over, held or not: absent, for any request.
    for held in [0, 1] {
        let first = request(&format!("over {held}"), 1);
        let name = harness.record(first.lookup());
        let Verdict::Claimed(_claim) = store.claim(&first).await.unwrap() else { panic!("not free") };
        for (field, value) in [("l", 1), ("x", 1), ("h", held)] {
            admin.hset(&name, field, value).await;
        }
        let Verdict::Claimed(claim) = store.claim(&request(&format!("over {held}"), 2)).await.unwrap() else {
            panic!("the key is not free")
        };
        assert_eq!(claim.attempt(), 1, "a new operation");
    }
    // A lease that runs on past the retention keeps its key.
    let first = request("long", 1);
    let Verdict::Claimed(_claim) = store.claim(&first).await.unwrap() else { panic!("not free") };
    admin.hset(&harness.record(first.lookup()), "x", 1).await;
    assert!(matches!(store.claim(&first.again()).await, Ok(Verdict::InProgress { .. })));
}
