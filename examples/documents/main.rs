//! Documents under ids that their clients choose: safe to repeat by design, and by a key where the client wants its very
//! answer again.
//!
//! `cargo run --example documents` serves them on 127.0.0.1:3000 with an embedded SQLite file. `LISTEN=127.0.0.1:0` picks
//! a free port; `DATABASE_URL=sqlite:FILE | postgres://… | mysql://…` chooses the database; `DATABASE_POOL=10` sizes its pool.
//!
//! PUT creates or replaces, PATCH sets members and never increments, DELETE ensures absence. PUT and PATCH need `If-Match`
//! or `If-None-Match`.

#![allow(clippy::disallowed_methods, reason = "the rules against spawning and the environment are the library's")]
#![allow(unreachable_pub, reason = "a program has no public items")]

mod database;
mod handlers;
mod object;
mod problem;
mod router;
#[path = "../payments/shutdown.rs"]
mod shutdown;
mod write;

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use axum::http::Method;
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
        .unwrap_or_else(|_| format!("sqlite:{}", std::env::temp_dir().join("idempotency-documents.sqlite").display()));
    if let Some(file) = url.strip_prefix("sqlite:") {
        let store = SqliteStore::open(file.strip_prefix("//").unwrap_or(file)).await?;
        store.migrate().await?;
        let pool = store.pool().clone();
        serve(&listen, pool, store.clone()).await?;
        store.close().await;
        Ok(())
    } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
        let pool = PgPoolOptions::new().max_connections(pool_size()?).connect(&url).await?;
        let store = PostgresStore::new(pool.clone()).await?;
        store.migrate().await?;
        serve(&listen, pool, store).await
    } else if url.starts_with("mysql:") || url.starts_with("mariadb:") {
        let pool = MySqlPoolOptions::new().max_connections(pool_size()?).connect(&url).await?;
        let store = MySqlStore::new(pool.clone()).await?;
        store.migrate().await?;
        serve(&listen, pool, store).await
    } else {
        Err("DATABASE_URL must begin with sqlite:, postgres: or mysql:".into())
    }
}

fn pool_size() -> Result<u32, Failure> {
    Ok(std::env::var("DATABASE_POOL").unwrap_or_else(|_| "10".to_owned()).parse()?)
}

async fn serve<DB: Database, S>(listen: &str, pool: sqlx::Pool<DB>, store: S) -> Result<(), Failure>
where
    S: idempotency::store::Store,
{
    DB::create_table(&pool).await?;
    let scope = Scope::from_extension(|principal: &Principal| Some(principal.0.clone()));
    // No key is required: the operations are safe to repeat without one.
    let layer = IdempotencyLayer::new(store, scope).methods([Method::PUT, Method::PATCH, Method::DELETE]);
    let listener = TcpListener::bind(listen).await?;
    announce(&format!("http://{}", listener.local_addr()?))?;
    let stopping = shutdown::requested();
    let server = axum::serve(listener, router::router(pool.clone(), layer.clone()));
    let served = shutdown::within(GRACE, stopping, |signal| async move { server.with_graceful_shutdown(signal).await });
    served.await?;
    let left = layer.drain_within(GRACE).await;
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
Create a document, and read it:

  D={address}/documents/0192d1b5-8c0e-7b3a-9f51-2f6f1c3e4a5b A='Authorization: Bearer alice'
  curl -i -X PUT $D -H \"$A\" -H 'If-None-Match: *' -d '{{\"title\": \"draft\", \"pages\": 3}}'
  curl -i $D -H \"$A\"

Send the first line again: 412, the document is there. Change it with the ETag that you were shown; again is 412 too.
With -H 'Idempotency-Key: change-1' on both, the second one gets the answer of the first:

  curl -i -X PATCH $D -H \"$A\" -H 'If-Match: \"…\"' -d '{{\"pages\": 4}}'

Without If-Match it is refused (428). Delete it as often as you like:

  curl -i -X DELETE $D -H \"$A\""
    )?;
    out.flush()
}
