//! What only Postgres shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use idempotency::outbox::publish::{Answer, Reason};
use idempotency::outbox::relay::{Delivery, Relay};
use idempotency::outbox::{Event, Outbox};
use idempotency::testing::outbox::Harness;
use idempotency::testing::relay::Broker;
use sqlx::PgPool;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::support::outbox_lab::{Lab, PostgresLab};

fn event(key: &str, n: usize) -> Event {
    Event::new("broker", "t", "t", "/test").key(key).bytes(n.to_string())
}

async fn enqueue(lab: &PostgresLab, events: &[Event]) {
    let outbox = lab.outbox().await;
    for events in events.chunks(1_000) {
        let mut tx = lab.transaction().await;
        outbox.enqueue_all(&mut tx, events).await.unwrap();
        tx.commit().await.unwrap();
    }
}

async fn pending(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM idempotency_outbox").fetch_one(pool).await.unwrap()
}

async fn until(what: &str, limit: Duration, holds: impl AsyncFn() -> bool) {
    let held = async {
        while !holds().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(limit, held).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

fn percentile(latencies: &mut [Duration], percent: usize) -> Duration {
    latencies.sort_unstable();
    latencies[latencies.len() * percent / 100]
}

/// How long each of some events takes from its commit to its broker, one after the other, over keys of their own.
async fn latencies(
    lab: &PostgresLab,
    broker: &Broker,
    outbox: &Outbox<sqlx::Postgres>,
    events: usize,
) -> Vec<Duration> {
    let mut latencies = Vec::with_capacity(events);
    for n in 0..events {
        let before = broker.events();
        enqueue(lab, &[event(&format!("other-{n}"), n)]).await;
        let since = Instant::now();
        outbox.wake();
        while broker.events() == before {
            tokio::task::yield_now().await;
            sleep(Duration::from_micros(200)).await;
        }
        latencies.push(since.elapsed());
    }
    latencies
}

// M36: one key is blocked with 100,000 events; the others do not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_blocked_key_with_a_hundred_thousand_events_holds_up_nobody() {
    let lab = PostgresLab::new().await;
    let outbox = lab.outbox().await;
    let broker = Broker::new();
    let blocking = broker.judged(|event| async move {
        let blocked = event.event().key_ref() == Some("blocked");
        blocked.then_some(idempotency::outbox::publish::Answer::never(idempotency::outbox::publish::Reason::Rejected))
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let relay = Relay::new(outbox.clone()).publisher_with("broker", blocking, Delivery::new());
    let running = tokio::spawn(relay.run(async { drop(stopped.await) }));
    sleep(Duration::from_secs(2)).await;
    let mut free = latencies(&lab, &broker, &outbox, 300).await;
    enqueue(&lab, &(0..100_000).map(|n| event("blocked", n)).collect::<Vec<_>>()).await;
    // Until they were read once, and have settled.
    sleep(Duration::from_secs(15)).await;
    let mut beside = latencies(&lab, &broker, &outbox, 300).await;
    let (free, beside) = (percentile(&mut free, 99), percentile(&mut beside, 99));
    println!("p99 alone {free:?}, beside 100,000 blocked events {beside:?}");
    // Some slack for a machine with other work.
    assert!(beside <= free * 2 + Duration::from_millis(20), "{beside:?} against {free:?}");
    until("the others are deleted", Duration::from_secs(20), async || pending(lab.pool()).await == 100_000).await;
    drop(stop);
    let counts = running.await.unwrap().unwrap();
    assert_eq!((counts.published, counts.blocked, counts.left), (600, 1, 0));
}

/// The 95th percentile, over 200 events, when a relay has been at work for a while.
async fn from_commit_to_broker(lab: &PostgresLab, outbox: &Outbox<sqlx::Postgres>) -> Duration {
    let broker = Broker::new();
    let (stop, stopped) = oneshot::channel::<()>();
    let relay = Relay::new(outbox.clone()).publisher("broker", broker.clone());
    let running = tokio::spawn(relay.run(async { drop(stopped.await) }));
    // Its first readings, without any event, are the only ones that pass dead rows.
    sleep(Duration::from_secs(6)).await;
    let mut latencies = latencies(lab, &broker, outbox, 200).await;
    drop(stop);
    running.await.unwrap().unwrap();
    percentile(&mut latencies, 95)
}

// M37, case B51: 300,000 dead rows under a held snapshot, first those of a relay before, then this relay's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dead_rows_under_a_held_snapshot_cost_nothing() {
    let lab = PostgresLab::new().await;
    let outbox = lab.outbox().await;
    let mut holder = lab.pool().begin().await.unwrap();
    sqlx::raw_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM idempotency_outbox")
        .execute(&mut *holder)
        .await
        .unwrap();
    enqueue(&lab, &(0..300_000).map(|n| event(&format!("k{n}"), n)).collect::<Vec<_>>()).await;
    sqlx::raw_sql("DELETE FROM idempotency_outbox").execute(lab.pool()).await.unwrap();
    // The same on a table without dead rows, under the same load of the machine.
    let usual = {
        let lab = PostgresLab::new().await;
        from_commit_to_broker(&lab, &lab.outbox().await).await
    };
    let p95 = from_commit_to_broker(&lab, &outbox).await;
    println!("p95 from commit to broker over 300,000 dead rows: {p95:?}, without them {usual:?}");
    // A poll through them takes a hundred milliseconds and more.
    assert!(p95 < Duration::from_millis(25).max(usual * 3), "{p95:?}, without dead rows {usual:?}");
    holder.rollback().await.unwrap();
}

// M32, case B11: while the broker is stalled no session of the relay is inside a transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_transaction_is_open_while_a_broker_is_waited_for() {
    let lab = PostgresLab::new().await;
    let outbox = lab.outbox().await;
    let stalled = Broker::new().judged(|_| async {
        sleep(Duration::from_secs(3_600)).await;
        None
    });
    enqueue(&lab, &(0..500).map(|n| event(&format!("k{n}"), n)).collect::<Vec<_>>()).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let relay = Relay::new(outbox.clone()).publisher("broker", stalled).grace(Duration::from_millis(100));
    let running = tokio::spawn(relay.run(async { drop(stopped.await) }));
    sleep(Duration::from_secs(1)).await;
    let schema: String = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(lab.pool()).await.unwrap();
    for _ in 0..20 {
        let idle: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity AS a WHERE a.state LIKE 'idle in transaction%' \
             AND a.state_change < clock_timestamp() - interval '100 milliseconds' AND a.query LIKE '%' || $1 || '%'",
        )
        .bind(&schema)
        .fetch_one(lab.pool())
        .await
        .unwrap();
        assert_eq!(idle, 0);
        sleep(Duration::from_millis(50)).await;
    }
    drop(stop);
    assert_eq!(running.await.unwrap().unwrap().left, 256);
}

// Case B12: sessions are ended again and again, and the relay goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_relay_survives_the_end_of_all_its_sessions() {
    let lab = PostgresLab::new().await;
    let outbox = lab.outbox().await;
    let broker = Broker::new();
    let options = crate::support::postgres::options();
    let schema: String = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(lab.pool()).await.unwrap();
    let own = options.options([("search_path", schema.as_str())]).application_name(&schema);
    let pool = crate::support::postgres::pool_on(own, 4).await;
    let relay = Relay::new(Outbox::new(pool).await.unwrap()).publisher("broker", broker.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(relay.lease(Duration::from_secs(3)).run(async { drop(stopped.await) }));
    for round in 0..20 {
        enqueue(&lab, &(0..50).map(|n| event(&format!("k{}", n % 10), round * 50 + n)).collect::<Vec<_>>()).await;
        sqlx::query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1")
            .bind(&schema)
            .execute(lab.pool())
            .await
            .unwrap();
        sleep(Duration::from_millis(100)).await;
    }
    until("an empty outbox", Duration::from_secs(60), async || pending(lab.pool()).await == 0).await;
    drop(outbox);
    drop(stop);
    running.await.unwrap().unwrap();
    assert_eq!((broker.events(), broker.duplicates()), (1_000, 0));
    for (_, numbers) in broker.first_copies() {
        let numbers: Vec<usize> = numbers.iter().map(|n| n.parse().unwrap()).collect();
        assert!(numbers.is_sorted());
    }
}

// Case B30: operators send an event anew, again and again, and another relay joins, while its attempt is under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_event_under_way_is_not_sent_a_second_time_by_a_redrive() {
    let lab = PostgresLab::new().await;
    let outbox = lab.outbox().await;
    let broker = Broker::new();
    let (attempts, underway) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let slow = {
        let (attempts, underway) = (attempts.clone(), underway.clone());
        broker.judged(move |_| {
            let (attempt, underway) = (attempts.fetch_add(1, Ordering::SeqCst), underway.clone());
            async move {
                if attempt == 0 {
                    return Some(Answer::refused(Reason::Unroutable));
                }
                underway.notify_one();
                sleep(Duration::from_secs(3)).await;
                None
            }
        })
    };
    let id = Uuid::now_v7();
    enqueue(&lab, &[event("k", 0).id(id)]).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let relay = Relay::new(outbox.clone()).publisher("broker", slow.clone());
    let running = tokio::spawn(relay.run(async { drop(stopped.await) }));
    timeout(Duration::from_secs(30), underway.notified()).await.expect("a second attempt");

    let (stop_other, stopped_other) = oneshot::channel::<()>();
    let other = Relay::new(lab.outbox().await).publisher("broker", slow);
    let other = tokio::spawn(other.run(async { drop(stopped_other.await) }));
    let mut redriven = 0;
    for _ in 0..20 {
        redriven += usize::from(outbox.redrive(id).await.unwrap());
        outbox.wake();
        sleep(Duration::from_millis(100)).await;
    }
    until("an empty outbox", Duration::from_secs(30), async || pending(lab.pool()).await == 0).await;
    // Time for a copy that should not be there.
    sleep(Duration::from_secs(2)).await;
    drop((stop, stop_other));
    running.await.unwrap().unwrap();
    other.await.unwrap().unwrap();
    assert!(redriven > 0, "no redrive was taken while the event was under way");
    assert_eq!((attempts.load(Ordering::SeqCst), broker.events(), broker.duplicates()), (2, 1, 0));
}
