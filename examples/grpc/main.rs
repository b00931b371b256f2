//! A gRPC service that pays once, however often it is asked: tonic under the layer, with an embedded SQLite file.
//!
//! `cargo run --example grpc` starts server and client in one process, sends the same call twice and then another one
//! with the same key, and prints the answers and how often the handler ran.

#![allow(clippy::disallowed_methods, reason = "the rules against spawning are the library's")]
#![allow(clippy::print_stdout, reason = "it is what the program is for")]
#![allow(unreachable_pub, reason = "a program has no public items")]

mod client;
mod service;

use std::error::Error;

use idempotency::{IdempotencyLayer, Scope, SqliteStore};
use tokio::sync::oneshot;
use tonic::Code;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::client::Client;
use crate::service::{Payments, Receipt};

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let store = SqliteStore::open(folder.path().join("payments.sqlite")).await?;
    store.migrate().await?;
    sqlx::query("CREATE TABLE payments (id INTEGER PRIMARY KEY, account TEXT NOT NULL, cents INTEGER NOT NULL)")
        .execute(store.pool())
        .await?;

    // One tenant, and all methods are unary. Streaming ones are left out by `guard`, or by `named_layer` over the
    // services that have none.
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared()).require_key();
    let payments = Payments::default();
    let router = Server::builder().layer(layer.clone()).add_service(payments.clone());
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?;
    let address = incoming.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(router.serve_with_incoming_shutdown(incoming, async { drop(stopped.await) }));

    let mut client = Client::connect(format!("http://{address}")).await?;
    for _ in 0..2 {
        let answer = client.pay("order-1", "alice", 1250).await?;
        let replayed = answer.metadata().get("idempotent-replayed").is_some();
        let Receipt { id, cents } = answer.into_inner();
        println!("order-1, 12.50: receipt {id} over {cents} cents, replayed: {replayed}");
    }
    match client.pay("order-1", "alice", 9999).await {
        Err(status) if status.code() == Code::FailedPrecondition => {
            println!("order-1, 99.99: {:?} ({})", status.code(), client::problem(&status));
        }
        other => return Err(format!("a reused key must be refused, and not {other:?}").into()),
    }
    drop(client);

    let made: i64 = sqlx::query_scalar("SELECT count(*) FROM payments").fetch_one(store.pool()).await?;
    println!("the handler ran {} time(s), and {made} payment(s) are stored", payments.runs());
    drop(stop);
    server.await??;
    layer.drain().await;
    Ok(())
}
