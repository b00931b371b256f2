//! The service under test: one endpoint behind the layer, as a process of its own.

mod handlers;
mod inspect;
mod order;

use std::future::Future;
use std::io::Write;
use std::str::FromStr;
use std::time::Duration;

use axum::Router;
use axum::routing::{MethodRouter, get, post};
use idempotency::store::{OnUnknown, Store};
use idempotency::{IdempotencyLayer, LeaseStore, MySqlStore, PostgresStore, RedisStore, Scope, SqliteStore};
use sqlx::mysql::{MySql, MySqlPoolOptions};
use sqlx::postgres::{PgPool, PgPoolOptions, Postgres};
use sqlx::sqlite::{Sqlite, SqlitePoolOptions};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

pub use order::{Order, Sort};

use crate::Failure;
use crate::place::Place;
use crate::wrong::{LateStore, OpenStore, TokenlessStore, Wrong};
use inspect::AnyPool;

/// The first word of the command line.
pub const COMMAND: &str = "service";

const CONNECTIONS: u32 = 8;
/// Connections for leases alone: a renewal must not wait for handlers.
const LEASE_CONNECTIONS: u32 = 4;
/// While its server is away a pool rests up to a fifth of it between two tries.
const ACQUIRE: Duration = Duration::from_secs(3);
/// Short, so that services that are stopped outlive theirs.
const LEASE: Duration = Duration::from_secs(1);
/// How long the server may be away at the start.
const PATIENCE: Duration = Duration::from_secs(40);

#[derive(Clone, Debug)]
pub struct Settings {
    pub place: Place,
    pub wrong: Option<Wrong>,
    /// Whether a pool tests its connections before it gives them out.
    pub tests_connections: bool,
    /// Of the server, or the file with the keys.
    pub url: String,
    /// The file with the effects, where they are not beside the keys.
    pub effects: String,
}

impl Settings {
    /// As they are told to the process.
    pub fn words(&self, listen: &str) -> [String; 6] {
        let wrong = self.wrong.map_or("", Wrong::name);
        [listen, self.place.name(), wrong, if self.tests_connections { "test" } else { "" }, &self.url, &self.effects]
            .map(str::to_owned)
    }

    fn parse(mut words: impl Iterator<Item = String>) -> Result<(String, Self), Failure> {
        let mut next = || words.next().ok_or("a word is missing");
        let listen = next()?;
        let place = Place::from_str(&next()?)?;
        let wrong = Some(next()?).filter(|wrong| !wrong.is_empty()).map(|wrong| wrong.parse()).transpose()?;
        let tests_connections = !next()?.is_empty();
        Ok((listen, Self { place, wrong, tests_connections, url: next()?, effects: next()? }))
    }
}

pub async fn run(words: impl Iterator<Item = String>) -> Result<(), Failure> {
    let (listen, settings) = Settings::parse(words)?;
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter(tracing_subscriber::EnvFilter::new("warn"))
        .init();
    // Whoever started us has gone without a word.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let tests = settings.tests_connections;
    let postgres =
        |size| PgPoolOptions::new().max_connections(size).test_before_acquire(tests).acquire_timeout(ACQUIRE);
    match settings.place {
        Place::Postgres => {
            let pool: PgPool = postgres(CONNECTIONS).connect_lazy(&settings.url)?;
            let handler = post(handlers::in_the_claims_transaction::<Postgres>);
            let store = eventually(async || Ok(PostgresStore::new(pool.clone()).await?)).await?;
            let pools = vec![AnyPool::Postgres(pool.clone())];
            match settings.wrong {
                Some(Wrong::ReplayWithoutRollback) => serve(&listen, OpenStore::new(store, pool), handler, pools).await,
                Some(wrong) => serve(&listen, LateStore::new(store, pool, wrong), handler, pools).await,
                None => serve(&listen, store, handler, pools).await,
            }
        }
        Place::PostgresLease => {
            let pool: PgPool = postgres(CONNECTIONS).connect_lazy(&settings.url)?;
            let own: PgPool = postgres(LEASE_CONNECTIONS).connect_lazy(&settings.url)?;
            let pools = vec![AnyPool::Postgres(pool.clone()), AnyPool::Postgres(own.clone())];
            let handler = post(handlers::under_a_lease::<Postgres>).with_state(pool);
            if settings.wrong.is_some() {
                return serve(&listen, TokenlessStore::new(own), handler, pools).await;
            }
            let store = eventually(async || Ok(LeaseStore::new(own.clone()).await?)).await?;
            serve(&listen, store.lease(LEASE)?.on_unknown(OnUnknown::Rerun), handler, pools).await
        }
        Place::MariaDb => {
            let options = MySqlPoolOptions::new().max_connections(CONNECTIONS).test_before_acquire(tests);
            let options = options.acquire_timeout(ACQUIRE);
            let pool = options.connect_lazy(&settings.url)?;
            let store = eventually(async || Ok(MySqlStore::new(pool.clone()).await?)).await?;
            let handler = post(handlers::in_the_claims_transaction::<MySql>);
            serve(&listen, store, handler, vec![AnyPool::MySql(pool)]).await
        }
        Place::Sqlite => {
            let store = eventually(async || Ok(SqliteStore::open(&settings.url).await?)).await?;
            let pools = vec![AnyPool::Sqlite(store.pool().clone())];
            serve(&listen, store, post(handlers::in_the_claims_transaction::<Sqlite>), pools).await
        }
        Place::Redis => {
            let options = SqliteStore::connect_options(&settings.effects);
            let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS).connect_with(options).await?;
            let store = RedisStore::single(settings.url.as_str()).lease(LEASE).on_unknown(OnUnknown::Rerun).build()?;
            let handler = post(handlers::under_a_lease::<Sqlite>).with_state(pool.clone());
            serve(&listen, store, handler, vec![AnyPool::Sqlite(pool)]).await
        }
    }
}

/// The server may be starting: again and again until it is there.
async fn eventually<T>(make: impl AsyncFn() -> Result<T, Failure>) -> Result<T, Failure> {
    let started = Instant::now();
    loop {
        match make().await {
            Err(_) if started.elapsed() < PATIENCE => sleep(Duration::from_millis(50)).await,
            made => return made,
        }
    }
}

fn serve<S: Store>(
    listen: &str,
    store: S,
    handler: MethodRouter,
    pools: Vec<AnyPool>,
) -> impl Future<Output = Result<(), Failure>> {
    let layer = IdempotencyLayer::new(store, Scope::shared()).require_key();
    let inspect = get(inspect::inspect).with_state((layer.clone(), pools));
    let router = Router::new().route("/operations", handler).layer(layer).route("/inspect", inspect);
    let listen = listen.to_owned();
    async move {
        let listener = TcpListener::bind(listen).await?;
        writeln!(std::io::stdout(), "listening on {}", listener.local_addr()?)?;
        axum::serve(listener, router).await?;
        Ok(())
    }
}
