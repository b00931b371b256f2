//! Orders that charge a card at somebody else's, and are charged once whatever happens: leases, derived keys, checkpoints,
//! and keys that are held for an operator.
//!
//! `cargo run --example charge` serves on 127.0.0.1:3000 with an embedded SQLite file, and a small card network on a free
//! port. `cargo run --example charge -- network` is the network alone, on 127.0.0.1:3001, so that it outlives a service that
//! is killed: start the service with `NETWORK=http://127.0.0.1:3001` then.
//!
//! `KEYS=lease | redis://… | redis-cluster://HOST:PORT[,HOST:PORT…]` chooses where keys are kept, as leases of `LEASE=30`
//! seconds; `LISTEN=127.0.0.1:0` picks a free port; `DATABASE_URL=sqlite:FILE` names the file; `OPERATOR=operator` is the
//! operator's bearer token.

#![allow(clippy::disallowed_methods, reason = "the rules against spawning and the environment are the library's")]
#![allow(unreachable_pub, reason = "a program has no public items")]

mod auth;
mod card;
mod journal;
#[path = "../payments/keys.rs"]
mod keys;
mod network;
mod operator;
mod order;
mod payout;
mod problem;
mod service;
#[path = "../payments/shutdown.rs"]
mod shutdown;

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use idempotency::store::{OnUnknown, Operate};
use idempotency::{LeaseStore, SqliteStore};
use sqlx::SqlitePool;
use tokio::net::TcpListener;

use crate::journal::Journal;
use crate::keys::Keys;
use crate::network::client::Network;
use crate::service::{Service, Stores};

/// How long a shutdown waits for requests that are still running.
const GRACE: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error + Send + Sync>;

fn variable(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .init();
    match std::env::args().nth(1).as_deref() {
        None => start().await,
        Some("network") => {
            let listener = TcpListener::bind(variable("LISTEN", "127.0.0.1:3001")).await?;
            let address = listener.local_addr()?;
            let mut out = std::io::stdout();
            writeln!(out, "listening on http://{address}\n\n  curl -s http://{address}/ledger")?;
            out.flush()?;
            let server = axum::serve(listener, network::server::router());
            let stopping = shutdown::requested();
            Ok(shutdown::within(GRACE, stopping, |signal| async { server.with_graceful_shutdown(signal).await })
                .await?)
        }
        Some(_) => Err("the only argument is `network`".into()),
    }
}

async fn start() -> Result<(), Failure> {
    let url = match std::env::var("DATABASE_URL") {
        Ok(url) => url,
        Err(_) => format!("sqlite:{}", std::env::temp_dir().join("idempotency-charge.sqlite").display()),
    };
    let file = url.strip_prefix("sqlite:").ok_or("DATABASE_URL must begin with sqlite:")?;
    let options = SqliteStore::connect_options(file.strip_prefix("//").unwrap_or(file));
    let pool = SqlitePool::connect_with(options).await?;
    let address = match std::env::var("NETWORK") {
        Ok(address) => address,
        Err(_) => {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = format!("http://{}", listener.local_addr()?);
            tokio::spawn(async { axum::serve(listener, network::server::router()).await });
            address
        }
    };
    let lease = keys::lease()?;
    match Keys::parse(&variable("KEYS", "lease"))? {
        Keys::Lease => {
            let store = LeaseStore::new(pool.clone()).await?.lease(lease)?;
            store.migrate().await?;
            let stores = Stores { rerun: store.clone().on_unknown(OnUnknown::Rerun), hold: store };
            serve(pool, address, stores, Journal::Lease).await
        }
        Keys::Redis(builder) => {
            let store = builder.lease(lease).build()?;
            store.check().await?;
            let stores = Stores { rerun: store.clone().on_unknown(OnUnknown::Rerun), hold: store };
            serve(pool, address, stores, Journal::Row).await
        }
        Keys::Memory => {
            Err("KEYS=memory would forget what it has called: use lease, redis:// or redis-cluster://".into())
        }
    }
}

async fn serve<S: Operate>(
    pool: SqlitePool,
    network: String,
    stores: Stores<S>,
    journal: Journal,
) -> Result<(), Failure> {
    let service = Service { pool: pool.clone(), network: Network::at(&network), journal };
    service.create_tables().await?;
    let (router, layers) = service.router(stores, variable("OPERATOR", "operator"));
    let listener = TcpListener::bind(variable("LISTEN", "127.0.0.1:3000")).await?;
    announce(&format!("http://{}", listener.local_addr()?), &network)?;
    let (stopping, server) = (shutdown::requested(), axum::serve(listener, router));
    shutdown::within(GRACE, stopping, |signal| async { server.with_graceful_shutdown(signal).await }).await?;
    for layer in layers {
        layer.drain_within(GRACE).await;
    }
    pool.close().await;
    Ok(())
}

/// The address is the first line on stdout; what to try follows it.
fn announce(address: &str, network: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on {address}")?;
    writeln!(
        out,
        "
An order charges its card once, and once more is a replay. The network's side is in its ledger.

  curl -i {address}/orders -H 'Authorization: Bearer alice' -H 'Idempotency-Key: order-1' \\
    -H 'Content-Type: application/json' -d '{{\"amount\": 1250, \"card\": \"ok\"}}'
  curl -s {network}/ledger

Other cards: declined; die:POINT kills this process in its first attempt at reserving, reserved, charged, recorded,
receipted or done; wait:POINT:3000 waits there. Start it again and send the same line: when the lease has ended, the
order goes on after its last step. For that the network must run by itself (see the argument `network`).

A payout has no key at the network. One that stopped after the call (die:paid) is held: 409 until an operator has looked.

  curl -i {address}/payouts -H 'Authorization: Bearer alice' -H 'Idempotency-Key: payout-1' \\
    -H 'Content-Type: application/json' -d '{{\"amount\": 900, \"card\": \"die:paid\"}}'
  curl -s {address}/stuck -H 'Authorization: Bearer operator'
  curl -i -X POST {address}/stuck/ID/release -H 'Authorization: Bearer operator'
  curl -i -X POST {address}/stuck/ID/settle -H 'Authorization: Bearer operator' \\
    -H 'Content-Type: application/json' -d '{{\"status\": 201, \"body\": {{\"payout\": \"payout_1\"}}}}'"
    )?;
    out.flush()
}
