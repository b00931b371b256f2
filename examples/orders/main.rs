//! Takes orders and tells others of them: the order and its event are written in one transaction, a relay publishes it.
//!
//! `cargo run --example orders` serves on 127.0.0.1:3000 with an embedded SQLite file, and prints each event as a line on
//! stdout. `LISTEN=127.0.0.1:0` picks a free port; `DATABASE_URL=sqlite:FILE | postgres://… | mysql://…` chooses the
//! database, `DATABASE_POOL=10` sizes its pool; `EVENTS=stdout: | nats://… | amqp://… | redis://… | http://…` says where
//! events go. With `RELAY=off` nothing is published here, and `cargo run --example orders -- relay` runs a relay alone.

#![allow(clippy::disallowed_methods, reason = "the rules against spawning and the environment are the library's")]
#![allow(unreachable_pub, reason = "a program has no public items")]

mod database;
mod destination;
mod operator;
mod order;
mod problem;
mod router;
#[path = "../payments/shutdown.rs"]
mod shutdown;

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use idempotency::outbox::Outbox;
use idempotency::outbox::relay::Relay;
use idempotency::store::Store;
use idempotency::{IdempotencyLayer, MySqlStore, PostgresStore, Scope, SqliteStore};
use sqlx::Pool;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::database::Database;
use crate::destination::Destination;
use crate::router::Principal;

/// How long a shutdown waits for requests that are still running.
const GRACE: Duration = Duration::from_secs(30);
/// How long another relay waits for one that has fallen silent.
const LEASE: Duration = Duration::from_secs(9);

type Failure = Box<dyn Error + Send + Sync>;

/// What one process does.
struct Role {
    listen: Option<String>,
    events: Option<String>,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .init();
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let only_relay = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("relay") => true,
        Some(_) => return Err("usage: orders [relay]".into()),
    };
    let events = variable("EVENTS").unwrap_or_else(|| "stdout:".to_owned());
    // A wrong setting ends the program before it serves anything.
    Destination::parse(&events)?;
    let role = Role {
        listen: (!only_relay).then(|| variable("LISTEN").unwrap_or_else(|| "127.0.0.1:3000".to_owned())),
        events: (only_relay || variable("RELAY").as_deref() != Some("off")).then_some(events),
    };
    let url = variable("DATABASE_URL")
        .unwrap_or_else(|| format!("sqlite:{}", std::env::temp_dir().join("idempotency-orders.sqlite").display()));
    let size: u32 = variable("DATABASE_POOL").unwrap_or_else(|| "10".to_owned()).parse()?;
    if let Some(file) = url.strip_prefix("sqlite:") {
        let store = SqliteStore::open(file.strip_prefix("//").unwrap_or(file)).await?;
        store.migrate().await?;
        run(role, store.pool().clone(), store.clone()).await?;
        store.close().await;
        Ok(())
    } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
        let pool = PgPoolOptions::new().max_connections(size).connect(&url).await?;
        let store = PostgresStore::new(pool.clone()).await?;
        store.migrate().await?;
        run(role, pool, store).await
    } else if url.starts_with("mysql:") || url.starts_with("mariadb:") {
        let pool = MySqlPoolOptions::new().max_connections(size).connect(&url).await?;
        let store = MySqlStore::new(pool.clone()).await?;
        store.migrate().await?;
        run(role, pool, store).await
    } else {
        Err("DATABASE_URL must begin with sqlite:, postgres: or mysql:".into())
    }
}

async fn run<DB: Database, S: Store>(role: Role, pool: Pool<DB>, store: S) -> Result<(), Failure> {
    DB::create_tables(&pool).await?;
    let outbox = Outbox::new(pool.clone()).await?;
    // The address comes before everything else on stdout, and is known before the first event leaves.
    let listener = match &role.listen {
        Some(listen) => {
            let listener = TcpListener::bind(listen).await?;
            announce(&format!("http://{}", listener.local_addr()?))?;
            Some(listener)
        }
        None => None,
    };
    let stopping = shutdown::requested();
    let relay = role.events.map(|events| tokio::spawn(relay(outbox.clone(), events, stopping.clone())));
    if let Some(listener) = listener {
        let scope = Scope::from_extension(|principal: &Principal| Some(principal.0.clone()));
        let layer = IdempotencyLayer::new(store, scope).require_key();
        let server = axum::serve(listener, router::router(layer.clone(), outbox));
        let served =
            shutdown::within(GRACE, stopping, |signal| async move { server.with_graceful_shutdown(signal).await });
        served.await?;
        layer.drain_within(GRACE).await;
    }
    if let Some(relay) = relay {
        relay.await??;
    }
    // A connection that has stopped answering must not keep the process.
    let _ = tokio::time::timeout(GRACE, pool.close()).await;
    Ok(())
}

/// Publishes events until the process is asked to stop. Until the broker is there, orders are taken and their events wait.
async fn relay<DB: Database>(
    outbox: Outbox<DB>,
    events: String,
    stopping: watch::Receiver<bool>,
) -> Result<(), Failure> {
    // An error means that the sender is gone, which ends the process too.
    let stopped =
        |mut stopping: watch::Receiver<bool>| async move { drop(stopping.wait_for(|stopping| *stopping).await) };
    let destination = Destination::parse(&events)?;
    let relay = loop {
        match destination.publisher(Relay::new(outbox.clone()).lease(LEASE)).await {
            Ok(relay) => break relay,
            Err(error) => tracing::warn!(error = &*error as &dyn Error, "the broker is not there yet"),
        }
        tokio::select! {
            () = stopped(stopping.clone()) => return Ok(()),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    };
    let ended = relay.run(stopped(stopping)).await;
    match &ended {
        Ok(counts) => tracing::info!(?counts, "the relay has stopped"),
        Err(error) => tracing::error!(error = error as &dyn Error, "the relay has failed"),
    }
    ended.map(drop).map_err(Into::into)
}

/// The address is the first line on stdout, where nothing but events follows; what to try goes to stderr.
fn announce(address: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on {address}")?;
    out.flush()?;
    writeln!(
        std::io::stderr(),
        "
Place an order, and its event appears on stdout. Send the same line again: the answer is a replay, and there is no second
event.

  curl -i {address}/orders -H 'Authorization: Bearer alice' -H 'Idempotency-Key: order-1' \\
    -H 'Content-Type: application/json' -d '{{\"customer\": \"c1\", \"sku\": \"s1\", \"quantity\": 2}}'

What is on its way, and what has failed:

  curl -s {address}/outbox
"
    )
}
