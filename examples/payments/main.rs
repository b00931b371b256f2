//! The reference service: payments that are made once, however often they are asked for.
//!
//! `cargo run --example payments` serves it on 127.0.0.1:3000 with an embedded SQLite file. `LISTEN=127.0.0.1:0` picks
//! a free port; `DATABASE_URL=sqlite:FILE | postgres://… | mysql://…` chooses the database; `DATABASE_POOL=10` sizes its pool.

#![allow(clippy::disallowed_methods, reason = "the rules against spawning and the environment are the library's")]
#![allow(unreachable_pub, reason = "a program has no public items")]

mod database;
mod money;
mod problem;
mod router;
mod shutdown;

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use idempotency::{IdempotencyLayer, MySqlStore, PostgresStore, Scope, SqliteStore};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use tokio::net::TcpListener;

use crate::database::Database;
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
    if let Some(file) = url.strip_prefix("sqlite:") {
        let store = SqliteStore::open(file.strip_prefix("//").unwrap_or(file)).await?;
        store.migrate().await?;
        let pool = store.pool().clone();
        serve(&listen, pool, store.clone()).await?;
        store.close().await;
        Ok(())
    } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
        let pool = PgPoolOptions::new().max_connections(size()?).connect(&url).await?;
        let store = PostgresStore::new(pool.clone()).await?;
        store.migrate().await?;
        serve(&listen, pool, store).await
    } else if url.starts_with("mysql:") || url.starts_with("mariadb:") {
        let pool = MySqlPoolOptions::new().max_connections(size()?).connect(&url).await?;
        let store = MySqlStore::new(pool.clone()).await?;
        store.migrate().await?;
        serve(&listen, pool, store).await
    } else {
        Err("DATABASE_URL must begin with sqlite:, postgres: or mysql:".into())
    }
}

async fn serve<DB: Database, S>(listen: &str, pool: sqlx::Pool<DB>, store: S) -> Result<(), Failure>
where
    S: idempotency::store::Store,
{
    DB::create_tables(&pool).await?;
    let scope = Scope::from_extension(|principal: &Principal| Some(principal.0.clone()));
    let layer = IdempotencyLayer::new(store, scope).require_key();
    let listener = TcpListener::bind(listen).await?;
    announce(&format!("http://{}", listener.local_addr()?))?;
    let stopping = shutdown::requested();
    let server = axum::serve(listener, router::router(pool.clone(), layer.clone()));
    let served = shutdown::within(GRACE, stopping, |signal| async move { server.with_graceful_shutdown(signal).await });
    served.await?;
    // Requests whose clients have left are still finished and answered to their retries.
    let left = layer.drain_within(GRACE).await;
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
