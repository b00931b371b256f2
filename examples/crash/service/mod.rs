//! The service under test: one endpoint behind the layer, as a process of its own.

mod handlers;
mod inspect;
mod order;

use std::future::{Future, pending};
use std::io::Write;
use std::str::FromStr;
use std::time::Duration;

use axum::Router;
use axum::routing::{MethodRouter, get, post};
use idempotency::purge::Purger;
use idempotency::store::{OnUnknown, Purge, Store};
use idempotency::{IdempotencyLayer, LeaseStore, MySqlStore, PostgresStore, RedisStore, Scope, SqliteStore};
use sqlx::mysql::{MySql, MySqlPoolOptions};
use sqlx::postgres::{PgPool, PgPoolOptions, Postgres};
use sqlx::sqlite::{Sqlite, SqlitePoolOptions};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

pub use handlers::digest;
pub use inspect::Inspected;
pub use order::{Order, RUN, Sort, TENANT, Told};

use crate::Failure;
use crate::place::Place;
use crate::wrong::{LateStore, LeasedStore, OpenStore, Wrong};
use inspect::AnyPool;

/// The first word of the command line.
pub const COMMAND: &str = "service";

const CONNECTIONS: u32 = 8;
/// Connections for leases alone: a renewal must not wait for handlers.
const LEASE_CONNECTIONS: u32 = 4;
/// While its server is away a pool rests up to a fifth of it between two tries.
const ACQUIRE: Duration = Duration::from_secs(3);
/// Short, so that services that are stopped outlive theirs.
pub const LEASE: Duration = Duration::from_secs(1);
/// How long duplicates wait for an answer, where they do.
const WAIT: Duration = Duration::from_secs(2);
/// How many bytes of answers are remembered there.
const REMEMBERED: usize = 1 << 20;
/// How often expired rows are looked for: nobody's else may go.
const PURGES: Duration = Duration::from_secs(1);
/// How long the server may be away at the start.
const PATIENCE: Duration = Duration::from_secs(40);

#[derive(Clone, Debug)]
pub struct Settings {
    pub place: Place,
    pub wrong: Option<Wrong>,
    /// Whether a pool tests its connections before it gives them out.
    pub tests_connections: bool,
    /// Whether duplicates wait for an answer, and are told it without asking the store, instead of being told 409.
    pub waits: bool,
    /// Of the server, or the file with the keys.
    pub url: String,
    /// The file with the effects, where they are not beside the keys.
    pub effects: String,
}

impl Settings {
    /// As they are told to the process.
    pub fn words(&self, listen: &str) -> [String; 7] {
        let wrong = self.wrong.map_or("", Wrong::name);
        let (tests, waits) = (if self.tests_connections { "test" } else { "" }, if self.waits { "wait" } else { "" });
        [listen, self.place.name(), wrong, tests, waits, &self.url, &self.effects].map(str::to_owned)
    }

    fn parse(mut words: impl Iterator<Item = String>) -> Result<(String, Self), Failure> {
        let mut next = || words.next().ok_or("a word is missing");
        let listen = next()?;
        let place = Place::from_str(&next()?)?;
        let wrong = Some(next()?).filter(|wrong| !wrong.is_empty()).map(|wrong| wrong.parse()).transpose()?;
        let (tests_connections, waits) = (!next()?.is_empty(), !next()?.is_empty());
        Ok((listen, Self { place, wrong, tests_connections, waits, url: next()?, effects: next()? }))
    }
}

pub async fn run(words: impl Iterator<Item = String>) -> Result<(), Failure> {
    let (listen, settings) = Settings::parse(words)?;
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter(tracing_subscriber::EnvFilter::new("warn,crash=info"))
        .init();
    // Whoever started us has gone without a word.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let (tests, at) = (settings.tests_connections, (listen.as_str(), settings.waits));
    let postgres =
        |size| PgPoolOptions::new().max_connections(size).test_before_acquire(tests).acquire_timeout(ACQUIRE);
    match settings.place {
        Place::Postgres => {
            let pool: PgPool = postgres(CONNECTIONS).connect_lazy(&settings.url)?;
            let handler = post(handlers::in_the_claims_transaction::<Postgres>);
            let store = eventually(async || Ok(PostgresStore::new(pool.clone()).await?)).await?;
            let pools = vec![AnyPool::Postgres(pool.clone())];
            match settings.wrong {
                Some(Wrong::ReplayWithoutRollback) => serve(at, OpenStore::new(store, pool), handler, pools).await,
                Some(wrong) => serve(at, LateStore::new(store, pool, wrong), handler, pools).await,
                None => serve(at, purged(store), handler, pools).await,
            }
        }
        Place::PostgresLease => {
            let pool: PgPool = postgres(CONNECTIONS).connect_lazy(&settings.url)?;
            let own: PgPool = postgres(LEASE_CONNECTIONS).connect_lazy(&settings.url)?;
            let pools = vec![AnyPool::Postgres(pool.clone()), AnyPool::Postgres(own.clone())];
            let handler = post(handlers::under_a_lease::<Postgres>).with_state(pool);
            if let Some(wrong) = settings.wrong {
                return serve(at, LeasedStore::new(own, wrong), handler, pools).await;
            }
            let store = eventually(async || Ok(LeaseStore::new(own.clone()).await?)).await?;
            let store = purged(store.lease(LEASE)?.on_unknown(OnUnknown::Rerun));
            serve(at, store, handler, pools).await
        }
        Place::MariaDb => {
            let options = MySqlPoolOptions::new().max_connections(CONNECTIONS).test_before_acquire(tests);
            let options = options.acquire_timeout(ACQUIRE);
            let pool = options.connect_lazy(&settings.url)?;
            let store = eventually(async || Ok(MySqlStore::new(pool.clone()).await?)).await?;
            let handler = post(handlers::in_the_claims_transaction::<MySql>);
            serve(at, purged(store), handler, vec![AnyPool::MySql(pool)]).await
        }
        Place::Sqlite => {
            let store = eventually(async || Ok(SqliteStore::open(&settings.url).await?)).await?;
            let pools = vec![AnyPool::Sqlite(store.pool().clone())];
            serve(at, purged(store), post(handlers::in_the_claims_transaction::<Sqlite>), pools).await
        }
        Place::Redis => {
            let options = SqliteStore::connect_options(&settings.effects);
            let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS).connect_with(options).await?;
            let store = RedisStore::single(settings.url.as_str()).lease(LEASE).on_unknown(OnUnknown::Rerun).build()?;
            let handler = post(handlers::under_a_lease::<Sqlite>).with_state(pool.clone());
            serve(at, store, handler, vec![AnyPool::Sqlite(pool)]).await
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

/// What has expired is deleted beside the requests; nothing else may be.
fn purged<S: Purge + Clone>(store: S) -> S {
    tokio::spawn(Purger::new().keys("keys", store.clone()).interval(PURGES).run(pending()));
    store
}

fn serve<S: Store>(
    (listen, waits): (&str, bool),
    store: S,
    handler: MethodRouter,
    pools: Vec<AnyPool>,
) -> impl Future<Output = Result<(), Failure>> {
    let tenant = Scope::from_fn(|parts| parts.headers.get(TENANT)?.to_str().ok().map(str::to_owned));
    let layer = IdempotencyLayer::new(store, tenant).require_key();
    let layer = if waits { layer.wait_up_to(WAIT).replay_cache(REMEMBERED) } else { layer };
    let inspect = get(inspect::inspect).with_state((layer.clone(), pools));
    let router = Router::new().route("/operations", handler).layer(layer).route("/inspect", inspect);
    let listen = listen.to_owned();
    async move {
        // Somebody may have taken the port of a service that was killed, for as long as a connection lasts.
        let listener = eventually(async || Ok(TcpListener::bind(&listen).await?)).await?;
        writeln!(std::io::stdout(), "listening on {}", listener.local_addr()?)?;
        axum::serve(listener, router).await?;
        Ok(())
    }
}
