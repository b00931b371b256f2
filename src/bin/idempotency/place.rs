//! Where the keys are.

use std::time::Duration;

use idempotency::store::{AnyStore, MySqlStoreBuilder, PostgresStoreBuilder, RedisStoreBuilder};
use idempotency::{Error, LeaseStore, MySqlStore, PostgresStore, RedisStore, SqliteStore};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::SqlitePoolOptions;

use crate::arguments::{Arguments, Engine};
use crate::failure::Failure;

/// How long a database may take to be reached.
const PATIENCE: Duration = Duration::from_secs(10);

/// A store of keys, whatever it is.
pub(crate) struct Place {
    /// For the calls that all stores have.
    pub(crate) store: AnyStore,
    pub(crate) kind: Kind,
}

/// For what only some can do.
pub(crate) enum Kind {
    Postgres(PostgresStore),
    MySql(MySqlStore),
    Sqlite(SqliteStore),
    PostgresLeases(LeaseStore<sqlx::Postgres>),
    MySqlLeases(LeaseStore<sqlx::MySql>),
    SqliteLeases(LeaseStore<sqlx::Sqlite>),
    Redis,
}

impl Place {
    pub(crate) async fn open(arguments: &Arguments) -> Result<Self, Failure> {
        if let Some(url) = &arguments.store {
            return redis(url, arguments).await;
        }
        let url = arguments.database.as_deref().ok_or_else(|| {
            Failure::usage("name a database (--database or DATABASE_URL), or a Redis server (--store)")
        })?;
        match Engine::of(url) {
            Some(Engine::Sqlite) => sqlite(url, arguments).await,
            Some(Engine::Postgres) => postgres(url, arguments).await,
            Some(Engine::Mysql) => mysql(url, arguments).await,
            // It may hold a password, so it is not shown.
            None => Err(Failure::usage("a database is sqlite:FILE, postgres://… or mysql://…")),
        }
    }

    /// Brings the tables to the newest version.
    pub(crate) async fn migrate(&self) -> Result<(), Failure> {
        let migrated: Result<(), Error> = match &self.kind {
            Kind::Postgres(store) => store.migrate().await,
            Kind::MySql(store) => store.migrate().await,
            Kind::Sqlite(store) => store.migrate().await,
            Kind::PostgresLeases(store) => store.migrate().await,
            Kind::MySqlLeases(store) => store.migrate().await,
            Kind::SqliteLeases(store) => store.migrate().await,
            Kind::Redis => return Err(Failure::usage("Redis has no tables")),
        };
        Ok(migrated?)
    }
}

fn at(store: AnyStore, kind: Kind) -> Place {
    Place { store, kind }
}

async fn redis(url: &str, arguments: &Arguments) -> Result<Place, Failure> {
    if arguments.leases || arguments.schema.is_some() {
        return Err(Failure::usage("--leases and --schema are for databases"));
    }
    let builder = if let Some(nodes) = url.strip_prefix("redis-cluster://") {
        RedisStore::cluster(nodes.split(',').map(|node| format!("redis://{node}")).collect::<Vec<_>>())
    } else if url.starts_with("redis://") || url.starts_with("rediss://") || url.starts_with("unix://") {
        RedisStore::single(url)
    } else {
        return Err(Failure::usage("a Redis server is redis://… or redis-cluster://HOST:PORT[,HOST:PORT…]"));
    };
    let store = arguments.prefix.iter().fold(builder, RedisStoreBuilder::prefix).build()?;
    store.check().await?;
    Ok(at(AnyStore::operable(store), Kind::Redis))
}

async fn sqlite(url: &str, arguments: &Arguments) -> Result<Place, Failure> {
    if arguments.schema.is_some() {
        return Err(Failure::usage("SQLite has no schemas"));
    }
    let file = url.trim_start_matches("sqlite:");
    let file = file.strip_prefix("//").unwrap_or(file);
    // An operator who mistypes a name must not be shown an empty new database.
    let options =
        SqliteStore::connect_options(file).create_if_missing(matches!(arguments.command, crate::Command::Migrate));
    let pool = SqlitePoolOptions::new().max_connections(2).acquire_timeout(PATIENCE).connect_with(options).await?;
    if arguments.leases {
        let store = LeaseStore::<sqlx::Sqlite>::new(pool).await?;
        return Ok(at(AnyStore::operable(store.clone()), Kind::SqliteLeases(store)));
    }
    let store = SqliteStore::new(pool).await?;
    Ok(at(AnyStore::operable(store.clone()), Kind::Sqlite(store)))
}

async fn postgres(url: &str, arguments: &Arguments) -> Result<Place, Failure> {
    let pool = PgPoolOptions::new().max_connections(3).acquire_timeout(PATIENCE).connect(url).await?;
    if arguments.leases {
        let store = match &arguments.schema {
            Some(schema) => LeaseStore::<sqlx::Postgres>::in_schema(pool, schema).await?,
            None => LeaseStore::new(pool).await?,
        };
        return Ok(at(AnyStore::operable(store.clone()), Kind::PostgresLeases(store)));
    }
    let store = arguments.schema.iter().fold(PostgresStore::builder(pool), PostgresStoreBuilder::schema);
    let store = store.build().await?;
    Ok(at(AnyStore::operable(store.clone()), Kind::Postgres(store)))
}

async fn mysql(url: &str, arguments: &Arguments) -> Result<Place, Failure> {
    let pool = MySqlPoolOptions::new().max_connections(3).acquire_timeout(PATIENCE).connect(url).await?;
    if arguments.leases {
        let store = match &arguments.schema {
            Some(schema) => LeaseStore::<sqlx::MySql>::in_schema(pool, schema).await?,
            None => LeaseStore::new(pool).await?,
        };
        return Ok(at(AnyStore::operable(store.clone()), Kind::MySqlLeases(store)));
    }
    let store = arguments.schema.iter().fold(MySqlStore::builder(pool), MySqlStoreBuilder::schema);
    let store = store.build().await?;
    Ok(at(AnyStore::operable(store.clone()), Kind::MySql(store)))
}
