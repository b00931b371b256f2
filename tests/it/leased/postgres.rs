//! What a lease costs a Postgres server, and what is sent to it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idempotency::store::{Claim, Kept, LeaseStore, Operate, Purge, Settlement, Store, Verdict};
use idempotency::testing::store::{answer, completed, request};
use idempotency::{ErrorKind, PostgresStore};
use sqlx::{PgPool, Postgres};
use tokio::time::{Instant, sleep};

use super::lab::{LEASE, Lab, PostgresLab, answering};
use crate::support::http::{post, send};
use crate::support::postgres::{options, pool_of, pool_on};
use crate::support::proxy::{Proxy, Then};

/// A table, and a store that reaches it through a proxy by so many connections.
async fn proxied(connections: u32) -> (PostgresLab, Proxy, LeaseStore<Postgres>) {
    let pool = pool_of(4).await;
    let schema: String = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&pool).await.unwrap();
    let lab = PostgresLab::on(pool).await;
    let proxy = Proxy::start(&options()).await;
    let through: PgPool =
        pool_on(proxy.options(&options()).options([("search_path", schema.as_str())]), connections).await;
    let store = LeaseStore::new(through).await.unwrap().lease(LEASE).unwrap();
    (lab, proxy, store)
}

/// Every statement that is sent from now on.
fn count(proxy: &Proxy) -> Arc<Mutex<Vec<String>>> {
    let trips = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&trips);
    proxy.judge(move |message| {
        match message.kind {
            b'Q' => seen.lock().unwrap().push(String::from_utf8_lossy(message.payload).into_owned()),
            b'P' => seen.lock().unwrap().push("prepare".to_owned()),
            b'E' => seen.lock().unwrap().push("execute".to_owned()),
            _ => {}
        }
        Then::Forward
    });
    trips
}

/// The trips since the last call; what a pool does when a connection comes back is not the store's.
fn taken(trips: &Mutex<Vec<String>>) -> Vec<String> {
    let mut trips = std::mem::take(&mut *trips.lock().unwrap());
    trips.retain(|trip| !trip.contains("ping"));
    trips
}

fn commit() -> Settlement {
    Settlement::Commit(Kept { answer: answer("done"), retention: Duration::from_secs(3600) })
}

async fn claimed(store: &LeaseStore<Postgres>, key: &str) -> idempotency::store::LeaseClaim<Postgres> {
    match store.claim(&request(key, 1)).await {
        Ok(Verdict::Claimed(claim)) => claim,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_one_round_trip_and_a_settlement_one() {
    let (lab, proxy, store) = proxied(1).await;
    // Everything once, so that it is prepared.
    for key in ["warm", "counted"] {
        let trips = count(&proxy);
        let mut claim = claimed(&store, key).await;
        let claim_trips = taken(&trips);
        claim.renew().await.unwrap();
        let renewal = taken(&trips);
        lab.end_leases().await;
        let owner = claimed(&store, key).await;
        let take_over = taken(&trips);
        owner.settle(commit()).await.unwrap();
        let settlement = taken(&trips);
        assert!(matches!(store.claim(&request(key, 1)).await, Ok(Verdict::Replay(_))));
        let replay = taken(&trips);
        if key == "counted" {
            let counts = [claim_trips, renewal, take_over, settlement, replay];
            let expected = [1, 1, 2, 1, 1].map(|count| vec!["execute"; count]);
            assert_eq!(counts, expected);
        }
    }
}

// S6: nobody waits for the end of a lease that nobody knows of.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_answer_was_lost_recognises_its_own_row() {
    let (lab, proxy, store) = proxied(4).await;
    claimed(&store, "warm").await.settle(commit()).await.unwrap();
    let lapsed = claimed(&store, "lapsed").await;
    lab.end_leases().await;
    // Prepared on the connection that is at hand.
    drop(claimed(&store, "lapsed").await);
    drop(lapsed);
    lab.end_leases().await;
    for (key, cut_at, attempt) in [("new", 1, 1), ("lapsed", 2, 3)] {
        let (mut executed, mut cuts) = (0, 0);
        proxy.judge(move |message| {
            executed += usize::from(message.kind == b'E');
            // The Sync behind the Execute, which commits.
            if message.kind == b'S' && executed == cut_at && cuts == 0 {
                cuts += 1;
                return Then::CutAfter;
            }
            Then::Forward
        });
        let claim = claimed(&store, key).await;
        assert_eq!(claim.attempt(), attempt, "{key}");
        claim.settle(commit()).await.unwrap();
        assert!(matches!(lab.store().await.claim(&request(key, 1)).await, Ok(Verdict::Replay(_))));
    }
}

// Nothing hangs on a server that has stopped answering.
#[tokio::test(flavor = "multi_thread")]
async fn every_call_has_an_end() {
    let (_lab, proxy, store) = proxied(8).await;
    let store = store.call_timeout(Duration::from_millis(300));
    let mut claim = claimed(&store, "k").await;
    let control = claim.control().unwrap();
    proxy.judge(|_| Then::Stall);
    let since = Instant::now();
    let errors = [
        store.claim(&request("other", 1)).await.map(drop).unwrap_err(),
        claim.renew().await.unwrap_err(),
        control.dispatching().await.unwrap_err(),
        control.record(commit()).await.unwrap_err(),
        claim.settle(commit()).await.map(drop).unwrap_err(),
        store.list_stuck(Duration::ZERO, 1).await.map(drop).unwrap_err(),
        store.purge(1).await.map(drop).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
}

// S5, H44; cases L17, L18: no instant of this host is sent. Whatever is sent in eight bytes is a length or a fence, which
// the server has made.
#[tokio::test(flavor = "multi_thread")]
async fn no_clock_of_the_application_is_sent() {
    let (lab, proxy, store) = proxied(1).await;
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sent);
    proxy.judge(move |message| {
        if message.kind == b'B' {
            seen.lock().unwrap().extend(bound(message.payload));
        }
        Then::Forward
    });
    let mut claim = claimed(&store, "k").await;
    claim.renew().await.unwrap();
    claim.control().unwrap().dispatching().await.unwrap();
    let fence = claim.fence().unwrap().0;
    lab.end_leases().await;
    let stuck = store.list_stuck(Duration::from_secs(1), 10).await.unwrap();
    store.release(&stuck[0]).await.unwrap();
    let next = claimed(&store, "k").await;
    next.settle(commit()).await.unwrap();
    completed(&store, &request("other", 1), answer("done")).await;
    store.purge(10).await.unwrap();

    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let since_2000 = now - Duration::from_secs(946_684_800);
    let day = Duration::from_secs(24 * 3600);
    let sent = sent.lock().unwrap();
    assert!(sent.iter().filter(|value| value.len() == 8).count() > 10, "nothing was seen");
    for value in sent.iter() {
        let Ok(eight) = <[u8; 8]>::try_from(&value[..]) else { continue };
        let number = u128::from(u64::from_be_bytes(eight));
        if number == u128::from(fence) {
            continue;
        }
        for epoch in [now, since_2000] {
            for (unit, instant, about) in [
                ("s", u128::from(epoch.as_secs()), u128::from(day.as_secs())),
                ("ms", epoch.as_millis(), day.as_millis()),
                ("us", epoch.as_micros(), day.as_micros()),
                ("ns", epoch.as_nanos(), day.as_nanos()),
            ] {
                assert!(number.abs_diff(instant) > about, "an instant of this host in {unit}: {number}");
            }
        }
    }
}

/// The values of a Bind message: portal, statement, format codes, then each with its length.
fn bound(payload: &[u8]) -> Vec<Vec<u8>> {
    let text = |from: usize| from + payload[from..].iter().position(|byte| *byte == 0).unwrap() + 1;
    let short = |at: usize| usize::from(u16::from_be_bytes([payload[at], payload[at + 1]]));
    let formats = text(text(0));
    let mut at = formats + 2 + 2 * short(formats);
    let count = short(at);
    at += 2;
    let mut values = Vec::new();
    for _ in 0..count {
        let length = i32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        at += 4;
        if let Ok(length) = usize::try_from(length) {
            values.push(payload[at..at + length].to_vec());
            at += length;
        }
    }
    values
}

// S3: a clock of the server that goes back does not let a fence shrink.
#[tokio::test(flavor = "multi_thread")]
async fn a_fence_grows_whatever_the_servers_clock_does() {
    let lab = PostgresLab::new().await;
    let store = lab.store().await;
    let mut last = claimed(&store, "k").await.fence().unwrap().0;
    let future = i64::MAX / 2;
    lab.run(format!("UPDATE idempotency_leases SET fence = {future}")).await;
    for round in 0..4 {
        lab.end_leases().await;
        let claim = claimed(&store, "k").await;
        let fence = claim.fence().unwrap().0;
        assert!(fence > last && fence > future.unsigned_abs(), "{round}");
        last = fence;
        match round {
            0 => claim.settle(Settlement::Abandon).await.map(drop).unwrap(),
            1 => {
                claim.settle(commit()).await.unwrap();
                lab.run("UPDATE idempotency_leases SET expires_at = timestamptz 'epoch'".to_owned()).await;
            }
            _ => {}
        }
    }
}

// S30: both tables, one history; a key of one store is no key of the other.
#[tokio::test(flavor = "multi_thread")]
async fn both_ways_of_holding_a_key_live_in_one_schema() {
    let lab = PostgresLab::new().await;
    let transactional = PostgresStore::new(lab.pool().clone()).await.unwrap();
    transactional.migrate().await.unwrap();
    completed(&transactional, &request("k", 1), answer("transaction")).await;
    completed(&lab.store().await, &request("k", 1), answer("lease")).await;
    let versions = lab.count("SELECT count(*) FROM idempotency_migrations".to_owned()).await;
    let newest = (1..).take_while(|version| PostgresStore::schema_sql(*version, None).is_some()).count();
    assert_eq!(usize::try_from(versions).unwrap(), newest);
}

// A lease that is lost is lost for whoever renews it, through the layer too (H35).
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_whose_row_is_gone_is_told() {
    let lab = PostgresLab::new().await;
    let mut claim = claimed(&lab.store().await, "k").await;
    lab.run("DELETE FROM idempotency_leases".to_owned()).await;
    assert_eq!(claim.renew().await.unwrap_err().kind(), ErrorKind::LeaseLost);
    assert_eq!(claim.settle(commit()).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(send(&answering(lab.store().await, "anew"), post("k")).await.text(), "anew");
}
