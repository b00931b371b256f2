//! The layer on a plain hyper server: no axum, no extractors. A handler takes its transaction from the request's
//! extensions, writes through it, and puts it back by dropping it.
//!
//! `cargo run --example bare_hyper` serves on 127.0.0.1:3000, with an embedded SQLite file that is gone afterwards.
//! `LISTEN=127.0.0.1:0` picks a free port. Send this line twice: the second answer is a replay of the first.
//!
//! ```sh
//! curl -i http://127.0.0.1:3000/notes -H 'Idempotency-Key: note-1' -d 'buy milk'
//! curl -s http://127.0.0.1:3000/notes
//! ```

#![allow(clippy::disallowed_methods, reason = "the rules against spawning and the environment are the library's")]
#![allow(clippy::print_stdout, reason = "it is what the program is for")]

use std::error::Error;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use idempotency::layer::RequestBody;
use idempotency::{IdempotencyLayer, Scope, SqliteStore, Tx};
use sqlx::{Sqlite, SqlitePool};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, service_fn};

type Failure = Box<dyn Error + Send + Sync>;
type Answer = Response<Full<Bytes>>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let store = SqliteStore::open(folder.path().join("notes.sqlite")).await?;
    store.migrate().await?;
    let pool = store.pool().clone();
    sqlx::query("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)").execute(&pool).await?;

    // One tenant. A service with callers takes the scope from whom it has authenticated.
    let layer = IdempotencyLayer::new(store.clone(), Scope::shared());
    let service =
        ServiceBuilder::new().layer(layer.clone()).service(service_fn(move |request| answer(pool.clone(), request)));

    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let (server, connections) = (auto::Builder::new(TokioExecutor::new()), GracefulShutdown::new());
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let service = TowerToHyperService::new(service.clone());
                let connection = server.serve_connection(TokioIo::new(accepted?.0), service).into_owned();
                tokio::spawn(connections.watch(connection));
            }
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    connections.shutdown().await;
    // Requests whose clients have left are still finished.
    layer.drain().await;
    store.close().await;
    Ok(())
}

async fn answer(pool: SqlitePool, request: Request<RequestBody<Incoming>>) -> Result<Answer, hyper::Error> {
    let answer = match (request.method(), request.uri().path()) {
        (&Method::POST, "/notes") => add(request).await,
        (&Method::GET, "/notes") => list(&pool).await,
        _ => Ok(said(StatusCode::NOT_FOUND, "")),
    };
    // Nothing is stored of a 500: what was written is rolled back, and the key is free.
    Ok(answer.unwrap_or_else(|error| said(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())))
}

async fn add(mut request: Request<RequestBody<Incoming>>) -> Result<Answer, Failure> {
    // The body is here already when the request has a key: the layer has read it for the fingerprint.
    let text = String::from_utf8(request.body_mut().collect().await?.to_bytes().to_vec())?;
    let mut tx = Tx::<Sqlite>::take(request.extensions()).await?;
    let added = sqlx::query("INSERT INTO notes (text) VALUES (?)").bind(text).execute(&mut *tx).await?;
    Ok(said(StatusCode::CREATED, format!("note {}\n", added.last_insert_rowid())))
}

async fn list(pool: &SqlitePool) -> Result<Answer, Failure> {
    let notes: Vec<String> =
        sqlx::query_scalar("SELECT id || ' ' || text FROM notes ORDER BY id").fetch_all(pool).await?;
    Ok(said(StatusCode::OK, notes.join("\n") + "\n"))
}

fn said(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer
}
