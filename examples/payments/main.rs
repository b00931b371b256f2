//! The reference service: payments that are made once, however often they are asked for.
//!
//! `cargo run --example payments` serves it on 127.0.0.1:3000 with an embedded SQLite file. `LISTEN=127.0.0.1:0` picks
//! a free port; `DATABASE_URL=sqlite:FILE | postgres://… | mysql://…` chooses the database; `DATABASE_POOL=10` sizes its pool.
//!
//! Keys are kept in the claim's own transaction, with the payments. `KEYS=lease | memory | redis://… |
//! redis-cluster://HOST:PORT[,HOST:PORT…]` keeps them as leases instead, of `LEASE=30` seconds: see `leased.rs`.

#![allow(clippy::disallowed_methods, reason = "the rules against spawning and the environment are the library's")]
#![allow(unreachable_pub, reason = "a program has no public items")]

mod database;
mod keys;
mod leased;
mod leases;
mod metrics;
mod money;
mod problem;
mod router;
mod shutdown;

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use idempotency::purge::Purger;
use idempotency::store::{AnyStore, OnUnknown, Purge};
use idempotency::{IdempotencyLayer, MemoryStore, MySqlStore, PostgresStore, Scope, SqliteStore};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::SqlitePoolOptions;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::keys::Keys;
use crate::leased::Place;
use crate::leases::Leases;
use crate::router::Principal;

/// How long a shutdown waits for requests that are still running.
const GRACE: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .init();
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let url = std::env::var("DATABASE_URL")
        .unwrap_or_else(|_| format!("sqlite:{}", std::env::temp_dir().join("idempotency-payments.sqlite").display()));
    let size = || std::env::var("DATABASE_POOL").unwrap_or_else(|_| "10".to_owned()).parse();
    let keys = std::env::var("KEYS").ok().map(|text| Keys::parse(&text)).transpose()?;
    if let Some(file) = url.strip_prefix("sqlite:") {
        let file = file.strip_prefix("//").unwrap_or(file);
        if let Some(keys) = keys {
            let options = SqliteStore::connect_options(file);
            let pool = SqlitePoolOptions::new().max_connections(size()?).connect_with(options).await?;
            return serve_leased(&listen, pool, keys).await;
        }
        let store = SqliteStore::open(file).await?;
        store.migrate().await?;
        let pool = store.pool().clone();
        serve(&listen, pool, store.clone(), None).await?;
        store.close().await;
        Ok(())
    } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
        let pool = PgPoolOptions::new().max_connections(size()?).connect(&url).await?;
        if let Some(keys) = keys {
            return serve_leased(&listen, pool, keys).await;
        }
        let store = PostgresStore::new(pool.clone()).await?;
        store.migrate().await?;
        serve(&listen, pool, store, None).await
    } else if url.starts_with("mysql:") || url.starts_with("mariadb:") {
        let pool = MySqlPoolOptions::new().max_connections(size()?).connect(&url).await?;
        if let Some(keys) = keys {
            return serve_leased(&listen, pool, keys).await;
        }
        let store = MySqlStore::new(pool.clone()).await?;
        store.migrate().await?;
        serve(&listen, pool, store, None).await
    } else {
        Err("DATABASE_URL must begin with sqlite:, postgres: or mysql:".into())
    }
}

/// With keys by leases.
async fn serve_leased<DB: Leases>(listen: &str, pool: sqlx::Pool<DB>, keys: Keys) -> Result<(), Failure> {
    let lease = keys::lease()?;
    let (store, place) = match keys {
        Keys::Lease => (DB::leases(&pool, lease).await?, Place::Beside),
        Keys::Memory => {
            (AnyStore::operable(MemoryStore::new().lease(lease)?.on_unknown(OnUnknown::Rerun)), Place::Elsewhere)
        }
        Keys::Redis(builder) => {
            let store = builder.lease(lease).on_unknown(OnUnknown::Rerun).build()?;
            store.check().await?;
            (AnyStore::operable(store), Place::Elsewhere)
        }
    };
    serve(listen, pool, store, Some(place)).await
}

async fn serve<DB: Leases, S: Purge + Clone>(
    listen: &str,
    pool: sqlx::Pool<DB>,
    store: S,
    place: Option<Place>,
) -> Result<(), Failure> {
    DB::create_tables(&pool).await?;
    let scope = Scope::from_extension(|principal: &Principal| Some(principal.0.clone()));
    let (stop, stopped) = oneshot::channel::<()>();
    let purging = tokio::spawn(Purger::new().keys("keys", store.clone()).run(async { drop(stopped.await) }));
    let metrics = metrics::install()?;
    let layer = IdempotencyLayer::new(store, scope).require_key();
    let listener = TcpListener::bind(listen).await?;
    announce(&format!("http://{}", listener.local_addr()?))?;
    let stopping = shutdown::requested();
    let server = axum::serve(listener, router::router(pool.clone(), layer.clone(), place).merge(metrics));
    let served = shutdown::within(GRACE, stopping, |signal| async move { server.with_graceful_shutdown(signal).await });
    served.await?;
    // Requests whose clients have left are still finished and answered to their retries.
    let left = layer.drain_within(GRACE).await;
    drop(stop);
    let _ = tokio::time::timeout(GRACE, purging).await;
    // A connection that has stopped answering must not keep the process.
    let _ = tokio::time::timeout(GRACE, pool.close()).await;
    if left > 0 {
        tracing::warn!(left, "stopped with requests still running; they are rolled back");
    }
    Ok(())
}

/// The address is the first line on stdout; what to try follows it.
fn announce(address: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on {address}")?;
    writeln!(
        out,
        "
Make a payment, then send the same line again: the second answer is a replay.

  curl -i {address}/payments -H 'Authorization: Bearer alice' -H 'Idempotency-Key: order-1' \\
    -H 'Content-Type: application/json' -d '{{\"amount\": 1250, \"currency\": \"EUR\", \"card\": \"ok\"}}'

The same key for another amount is refused (422); without a key too (400).
Other cards: declined, unavailable, limited, panic, slow:3000, large:100000, cookie.

  curl -s {address}/payments -H 'Authorization: Bearer alice'"
    )?;
    out.flush()
}
