//! Receives the webhooks of a payment service provider: each event is applied once, however often it is delivered.
//!
//! `cargo run --example webhooks` serves on 127.0.0.1:3000 with an embedded SQLite file. `LISTEN=127.0.0.1:0` picks a free
//! port; `DATABASE_URL=sqlite:FILE | postgres://… | mysql://…` chooses the database; `DATABASE_POOL=10` sizes its pool.
//! `WEBHOOK_SECRET=whsec_…` has signatures verified (Standard Webhooks).

#![allow(clippy::disallowed_methods, reason = "the rules against spawning and the environment are the library's")]
#![allow(unreachable_pub, reason = "a program has no public items")]

mod counts;
mod database;
mod delivery;
mod event;
mod problem;
mod service;
#[path = "../payments/shutdown.rs"]
mod shutdown;
mod signature;

use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use idempotency::SqliteStore;
use idempotency::inbox::Inbox;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::SqlitePoolOptions;
use tokio::net::TcpListener;

use crate::database::Database;
use crate::service::Service;
use crate::signature::Verifier;

/// How long a shutdown waits for deliveries that are still running.
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
        .unwrap_or_else(|_| format!("sqlite:{}", std::env::temp_dir().join("idempotency-webhooks.sqlite").display()));
    let size: u32 = std::env::var("DATABASE_POOL").unwrap_or_else(|_| "10".to_owned()).parse()?;
    let secret = std::env::var("WEBHOOK_SECRET").ok().filter(|secret| !secret.is_empty());
    if secret.is_none() {
        tracing::warn!("WEBHOOK_SECRET is not set: signatures are not verified, and anybody can deliver events");
    }
    let verifier = Verifier::new(secret.as_deref()).map_err(|_| "WEBHOOK_SECRET must be whsec_ and base64")?;
    if let Some(file) = url.strip_prefix("sqlite:") {
        let options = SqliteStore::connect_options(file.strip_prefix("//").unwrap_or(file));
        serve(&listen, SqlitePoolOptions::new().max_connections(size).connect_with(options).await?, verifier).await
    } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
        serve(&listen, PgPoolOptions::new().max_connections(size).connect(&url).await?, verifier).await
    } else if url.starts_with("mysql:") || url.starts_with("mariadb:") {
        serve(&listen, MySqlPoolOptions::new().max_connections(size).connect(&url).await?, verifier).await
    } else {
        Err("DATABASE_URL must begin with sqlite:, postgres: or mysql:".into())
    }
}

async fn serve<DB: Database>(listen: &str, pool: sqlx::Pool<DB>, verifier: Verifier) -> Result<(), Failure> {
    DB::create_table(&pool).await?;
    let inbox = Inbox::new(pool.clone(), "balances").await?;
    inbox.migrate().await?;
    let service = Service { pool: pool.clone(), inbox, verifier: Arc::new(verifier), counts: Arc::default() };
    let listener = TcpListener::bind(listen).await?;
    announce(&format!("http://{}", listener.local_addr()?))?;
    let stopping = shutdown::requested();
    let server = axum::serve(listener, service.router());
    shutdown::within(GRACE, stopping, |signal| async move { server.with_graceful_shutdown(signal).await }).await?;
    // A connection that has stopped answering must not keep the process.
    let _ = tokio::time::timeout(GRACE, pool.close()).await;
    Ok(())
}

/// The address is the first line on stdout; what to try follows it.
fn announce(address: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on {address}")?;
    writeln!(
        out,
        "
Deliver an event, then send the same line again: it is applied once, and both are answered 200.

  curl -i {address}/webhooks/psp -H 'webhook-id: evt_1' -H 'Content-Type: application/json' \\
    -d '{{\"type\": \"payment.settled\", \"data\": {{\"payment\": \"p1\", \"amount\": 100}}}}'

Another body under this id is refused (409). `payment.slow` waits data.ms milliseconds first: its second delivery meanwhile
is 503 with Retry-After. `payment.fail` is 500, and runs again when it is delivered again.

  curl -s {address}/balances
  curl -s {address}/inbox"
    )?;
    out.flush()
}
