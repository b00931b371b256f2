//! What other programs rely on: the shape of the table, and what an enqueue costs.

use std::sync::{Arc, Mutex};

use idempotency::outbox::{Event, Outbox};
use idempotency::testing::outbox::Harness;
use sqlx::Row;

use crate::support::outbox_lab::{Lab, MariaDbLab, PostgresLab};
use crate::support::{mysql, mysql_proxy, postgres, proxy};

fn event() -> Event {
    Event::new("broker", "orders", "order.placed", "/orders").key("c1").payload("application/json", r#"{"n": 1}"#)
}

// M22, M23: the columns that a Debezium outbox event router reads, by its default names, in types that it takes.
#[tokio::test]
async fn change_data_capture_finds_its_columns_on_postgres() {
    let lab = PostgresLab::new().await;
    let outbox = lab.outbox().await;
    let mut tx = lab.transaction().await;
    let id = outbox.enqueue(&mut tx, &event()).await.unwrap();
    tx.commit().await.unwrap();
    let row = sqlx::query("SELECT id::text, aggregatetype, aggregateid, type, payload FROM idempotency_outbox");
    let row = row.fetch_one(lab.pool()).await.unwrap();
    assert_eq!(row.get::<String, _>("id"), id.to_string());
    assert_eq!(row.get::<String, _>("aggregatetype"), "orders");
    assert_eq!(row.get::<String, _>("aggregateid"), "c1");
    assert_eq!(row.get::<String, _>("type"), "order.placed");
    assert_eq!(row.get::<Vec<u8>, _>("payload"), br#"{"n": 1}"#);
    // One number at a time (M22): a cached sequence puts two sessions that did serialise in reverse order.
    let cached = "SELECT count(*) FROM pg_sequence WHERE seqrelid IN (
        pg_get_serial_sequence('idempotency_outbox', 'seq')::regclass,
        pg_get_serial_sequence('idempotency_outbox_deferred', 'n')::regclass) AND seqcache = 1";
    assert_eq!(lab.count(cached.to_owned()).await, 2);
    let key = "SELECT count(*) FROM pg_constraint WHERE conrelid = 'idempotency_outbox'::regclass
        AND pg_get_constraintdef(oid) = 'PRIMARY KEY (bucket, seq)'";
    assert_eq!(lab.count(key.to_owned()).await, 1);
}

// M22, M23
#[tokio::test]
async fn change_data_capture_finds_its_columns_on_mariadb() {
    let lab = MariaDbLab::new().await;
    let outbox = lab.outbox().await;
    let mut tx = lab.transaction().await;
    let id = outbox.enqueue(&mut tx, &event()).await.unwrap();
    tx.commit().await.unwrap();
    let found = format!(
        r#"SELECT COUNT(*) FROM idempotency_outbox WHERE id = '{id}' AND aggregatetype = 'orders' AND aggregateid = 'c1'
            AND type = 'order.placed' AND payload = '{{"n": 1}}'"#
    );
    assert_eq!(lab.count(found).await, 1);
    let text = "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
        AND table_name = 'idempotency_outbox' AND data_type IN ('char', 'varchar')
        AND column_name IN ('id', 'aggregatetype', 'aggregateid', 'type')";
    assert_eq!(lab.count(text.to_owned()).await, 4);
}

// M23: the trigger of these tests does what it is there for.
#[tokio::test]
async fn an_update_of_a_pending_event_would_be_noticed() {
    let (one, other) = (PostgresLab::new().await, MariaDbLab::new().await);
    let update = "UPDATE idempotency_outbox SET redrives = 1";
    assert!(sqlx::query(update).execute(one.pool()).await.is_err());
    let outbox = other.outbox().await;
    let mut tx = other.transaction().await;
    outbox.enqueue(&mut tx, &event()).await.unwrap();
    tx.commit().await.unwrap();
    assert!(sqlx::query(update).execute(other.pool()).await.is_err());
}

type Trips = Arc<Mutex<Vec<String>>>;

fn taken(trips: &Trips) -> Vec<String> {
    std::mem::take(&mut *trips.lock().unwrap())
}

// M20: one round trip, also for many.
#[tokio::test(flavor = "multi_thread")]
async fn an_enqueue_takes_one_round_trip_on_postgres() {
    let lab = PostgresLab::new().await;
    let schema: String = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(lab.pool()).await.unwrap();
    let proxy = proxy::Proxy::start(&postgres::options()).await;
    let pool = postgres::pool_on(proxy.options(&postgres::options()).options([("search_path", schema)]), 1).await;
    let outbox = Outbox::new(pool.clone()).await.unwrap();
    let batch = vec![event(); 7];
    let mut tx = pool.begin().await.unwrap();
    outbox.enqueue(&mut tx, &event()).await.unwrap();
    outbox.enqueue_all(&mut tx, &batch).await.unwrap();
    let trips: Trips = Arc::default();
    let seen = Arc::clone(&trips);
    proxy.judge(move |message| {
        match message.kind {
            b'Q' => seen.lock().unwrap().push(String::from_utf8_lossy(message.payload).into_owned()),
            b'P' => seen.lock().unwrap().push("prepare".to_owned()),
            b'E' => seen.lock().unwrap().push("execute".to_owned()),
            _ => {}
        }
        proxy::Then::Forward
    });
    outbox.enqueue(&mut tx, &event()).await.unwrap();
    assert_eq!(taken(&trips), ["execute"]);
    outbox.enqueue_all(&mut tx, &batch).await.unwrap();
    assert_eq!(taken(&trips), ["execute"]);
    drop(tx);
}

// M20
#[tokio::test(flavor = "multi_thread")]
async fn an_enqueue_takes_one_round_trip_on_mariadb() {
    let lab = MariaDbLab::new().await;
    let database: String = sqlx::query_scalar("SELECT DATABASE()").fetch_one(lab.pool()).await.unwrap();
    let proxy = mysql_proxy::Proxy::start(&mysql::options()).await;
    let pool = mysql::pool_on(proxy.options(&mysql::options()).database(&database), 1).await;
    let outbox = Outbox::new(pool.clone()).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    outbox.enqueue(&mut tx, &event()).await.unwrap();
    let trips: Trips = Arc::default();
    let seen = Arc::clone(&trips);
    proxy.judge(move |command| {
        seen.lock().unwrap().push(match command.kind {
            22 => "prepare".to_owned(),
            23 => "execute".to_owned(),
            other => format!("command {other}"),
        });
        proxy::Then::Forward
    });
    outbox.enqueue(&mut tx, &event()).await.unwrap();
    assert_eq!(taken(&trips), ["execute"]);
    outbox.enqueue_all(&mut tx, &vec![event(); 7]).await.unwrap();
    // A text of its own for each number of events: prepared, run and closed.
    assert_eq!(taken(&trips).iter().filter(|trip| *trip == "execute").count(), 1);
    drop(tx);
}
