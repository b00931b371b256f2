//! Where the keys are.

use idempotency::store::{AnyStore, MySqlStoreBuilder, PostgresStoreBuilder, RedisStoreBuilder};
use idempotency::{Error, LeaseStore, MySqlStore, PostgresStore, RedisStore, SqliteStore};
use sqlx::{MySqlPool, PgPool, SqlitePool};

use crate::arguments::Arguments;
use crate::connect::Database;
use crate::failure::Failure;

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
        if arguments.database.is_none() {
            return Err(Failure::usage("name a database (--database or DATABASE_URL), or a Redis server (--store)"));
        }
        Self::of(Database::connect(arguments).await?, arguments, arguments.leases).await
    }

    /// The keys of a database: its leases, or those of the claims' own transactions.
    pub(crate) async fn of(database: Database, arguments: &Arguments, leases: bool) -> Result<Self, Failure> {
        match database {
            Database::Sqlite(pool) => sqlite(pool, leases).await,
            Database::Postgres(pool) => postgres(pool, arguments, leases).await,
            Database::MySql(pool) => mysql(pool, arguments, leases).await,
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
    let builder = if let Some(nodes) = url.strip_prefix("redis-cluster://") {
        RedisStore::cluster(nodes.split(',').map(|node| format!("redis://{node}")).collect::<Vec<_>>())
    } else if url.starts_with("redis://") || url.starts_with("rediss://") || url.starts_with("unix://") {
        RedisStore::single(url)
    } else {
        return Err(Failure::usage("a Redis server is redis://… or redis-cluster://HOST:PORT[,HOST:PORT…]"));
    };
    let store = arguments.prefix.iter().fold(builder, RedisStoreBuilder::prefix).build();
    // Nothing was connected to yet.
    let store = store.map_err(|error| Failure::usage(Failure::from(error).to_string()))?;
    store.check().await?;
    Ok(at(AnyStore::operable(store), Kind::Redis))
}

async fn sqlite(pool: SqlitePool, leases: bool) -> Result<Place, Failure> {
    if leases {
        let store = LeaseStore::<sqlx::Sqlite>::new(pool).await?;
        return Ok(at(AnyStore::operable(store.clone()), Kind::SqliteLeases(store)));
    }
    let store = SqliteStore::new(pool).await?;
    Ok(at(AnyStore::operable(store.clone()), Kind::Sqlite(store)))
}

async fn postgres(pool: PgPool, arguments: &Arguments, leases: bool) -> Result<Place, Failure> {
    if leases {
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

async fn mysql(pool: MySqlPool, arguments: &Arguments, leases: bool) -> Result<Place, Failure> {
    if leases {
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
