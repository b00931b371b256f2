//! Connections that are lost, in COMMIT above all (M4, Q3), and what a delivery costs the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use idempotency::inbox::{ProcessError, Processed};
use idempotency::store::Isolation;
use idempotency::{ErrorKind, Inbox};
use sqlx::{MySqlPool, PgPool};

use super::lab::{Lab, MariaDbLab, PostgresLab, message};
use crate::support::proxy::{Proxy, Then};
use crate::support::{mysql, mysql_proxy, postgres};

async fn postgres_through_proxy(size: u32) -> (Proxy, PgPool, PostgresLab) {
    let lab = PostgresLab::new(Isolation::ReadCommitted).await;
    let schema: String = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(lab.pool()).await.unwrap();
    let proxy = Proxy::start(&postgres::options()).await;
    let options = proxy.options(&postgres::options()).options([("search_path", schema)]);
    (proxy, postgres::pool_on(options, size).await, lab)
}

async fn mariadb_through_proxy(size: u32) -> (mysql_proxy::Proxy, MySqlPool, MariaDbLab) {
    let lab = MariaDbLab::new(Isolation::ReadCommitted).await;
    let database: String = sqlx::query_scalar("SELECT DATABASE()").fetch_one(lab.pool()).await.unwrap();
    let proxy = mysql_proxy::Proxy::start(&mysql::options()).await;
    let options = proxy.options(&mysql::options().database(&database));
    (proxy, mysql::pool_on(options, size).await, lab)
}

type Done = Result<Processed<()>, ProcessError<sqlx::Error>>;

async fn delivered<L: Lab>(inbox: &Inbox<L::DB>, id: &str) -> Done {
    let what = id.to_owned();
    inbox.process(&message(id), |mut tx| async move { L::write(&mut tx, &what).await }).await
}

/// Delivers until the broker could acknowledge.
async fn redelivered<L: Lab>(inbox: &Inbox<L::DB>, id: &str) -> Processed<()> {
    for _ in 0..200 {
        match delivered::<L>(inbox, id).await {
            Ok(told @ (Processed::First(()) | Processed::Duplicate)) => return told,
            Ok(Processed::Busy { .. }) | Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Ok(other) => panic!("{id} was told {other:?}"),
        }
    }
    panic!("{id} is never processed");
}

/// What a connection that is lost in COMMIT means: an error, and the redelivery decides.
async fn is_open<L: Lab>(lab: &L, inbox: &Inbox<L::DB>, then: Then) {
    let id = format!("{then:?}");
    let lost = delivered::<L>(inbox, &id).await;
    assert!(matches!(lost, Err(ProcessError::Inbox(ref error)) if error.kind() == ErrorKind::NotRecorded), "{lost:?}");
    let expected = if then == Then::CutAfter { Processed::Duplicate } else { Processed::First(()) };
    assert_eq!(redelivered::<L>(inbox, &id).await, expected);
    assert_eq!(lab.effects(&id).await, 1);
}

// M4, cases T03 and T15
#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_connection_lost_in_commit_leaves_it_to_the_redelivery() {
    let (proxy, pool, lab) = postgres_through_proxy(3).await;
    let inbox = Inbox::new(pool, "commit").await.unwrap();
    for then in [Then::CutBefore, Then::CutAfter] {
        let has_cut = AtomicBool::new(false);
        proxy.judge(move |message| {
            if message.is_query("COMMIT") && !has_cut.swap(true, Ordering::SeqCst) { then } else { Then::Forward }
        });
        is_open(&lab, &inbox, then).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_mariadb_a_connection_lost_in_commit_leaves_it_to_the_redelivery() {
    let (proxy, pool, lab) = mariadb_through_proxy(3).await;
    let inbox = Inbox::new(pool, "commit").await.unwrap();
    for then in [Then::CutBefore, Then::CutAfter] {
        let has_cut = AtomicBool::new(false);
        proxy.judge(move |command| {
            if command.is_query_with("COMMIT;") && !has_cut.swap(true, Ordering::SeqCst) { then } else { Then::Forward }
        });
        is_open(&lab, &inbox, then).await;
    }
}

/// Cuts at the n-th message of the client, for every n that a delivery has.
async fn cut_everywhere<L: Lab>(lab: &L, inbox: &Inbox<L::DB>, judge: impl Fn(Box<dyn FnMut() -> Then + Send>)) {
    for then in [Then::CutBefore, Then::CutAfter] {
        for at in 0..40 {
            let has_cut = Arc::new(AtomicBool::new(false));
            let (told, mut left) = (Arc::clone(&has_cut), at);
            judge(Box::new(move || {
                left -= 1;
                if left == -1 {
                    told.store(true, Ordering::SeqCst);
                    return then;
                }
                Then::Forward
            }));
            let id = format!("{then:?} {at}");
            assert!(matches!(redelivered::<L>(inbox, &id).await, Processed::First(()) | Processed::Duplicate));
            assert_eq!(lab.effects(&id).await, 1, "{id}");
            if !has_cut.load(Ordering::SeqCst) {
                // So few messages does a delivery take.
                assert!(at > 3);
                break;
            }
        }
    }
}

// M4, Q3
#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_connection_cut_at_any_message_leaves_one_effect() {
    let (proxy, pool, lab) = postgres_through_proxy(3).await;
    let inbox = Inbox::new(pool, "cut").await.unwrap();
    cut_everywhere(&lab, &inbox, |mut judge| proxy.judge(move |_| judge())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_mariadb_a_connection_cut_at_any_message_leaves_one_effect() {
    let (proxy, pool, lab) = mariadb_through_proxy(3).await;
    let inbox = Inbox::new(pool, "cut").await.unwrap();
    cut_everywhere(&lab, &inbox, |mut judge| proxy.judge(move |_| judge())).await;
}

// M4: a server that has stopped answering does not hold a consumer up.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_not_answered_ends() {
    let (proxy, pool, lab) = postgres_through_proxy(3).await;
    let inbox = Inbox::new(pool, "stall").await.unwrap();
    let has_stalled = AtomicBool::new(false);
    proxy.judge(move |message| {
        let stalls = message.is_query("COMMIT") && !has_stalled.swap(true, Ordering::SeqCst);
        if stalls { Then::Stall } else { Then::Forward }
    });
    let begun = Instant::now();
    let lost = delivered::<PostgresLab>(&inbox, "stall").await;
    assert!(matches!(lost, Err(ProcessError::Inbox(ref error)) if error.kind() == ErrorKind::NotRecorded), "{lost:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(lab.effects("stall").await, 0);
}

// M3, M8: BEGIN, one statement that accepts and bounds the transaction, one that confirms, COMMIT.
#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_delivery_costs_four_round_trips() {
    let (proxy, pool, lab) = postgres_through_proxy(1).await;
    let inbox = Inbox::new(pool, "trips").await.unwrap();
    let nothing = async |id: &str| {
        let told = message(id);
        let done = inbox.process(&told, async |tx| {
            drop(tx);
            Ok::<_, sqlx::Error>(())
        });
        done.await.unwrap()
    };
    assert_eq!(nothing("warm").await, Processed::First(()));
    assert_eq!(nothing("warm").await, Processed::Duplicate);
    let trips = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&trips);
    tokio::time::sleep(Duration::from_millis(100)).await;
    proxy.judge(move |message| {
        match message.kind {
            b'Q' => seen.lock().unwrap().push(String::from_utf8_lossy(message.payload).into_owned()),
            b'P' | b'E' => seen.lock().unwrap().push(char::from(message.kind).to_string()),
            _ => {}
        }
        Then::Forward
    });
    assert_eq!(nothing("first").await, Processed::First(()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let first: Vec<String> = std::mem::take(&mut *trips.lock().unwrap());
    assert_eq!(first[..4], ["BEGIN ISOLATION LEVEL READ COMMITTED\0", "E", "E", "COMMIT\0"], "{first:?}");
    assert_eq!(nothing("first").await, Processed::Duplicate);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let second: Vec<String> = std::mem::take(&mut *trips.lock().unwrap());
    assert_eq!(second[..3], ["BEGIN ISOLATION LEVEL READ COMMITTED\0", "E", "ROLLBACK\0"], "{second:?}");
    assert_eq!(lab.count("SELECT count(*) FROM idempotency_inbox").await, 2);
}
