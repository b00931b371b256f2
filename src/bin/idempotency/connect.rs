//! The way to a database.

use std::io;
use std::str::FromStr;
use std::time::Duration;

use idempotency::SqliteStore;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::pool::PoolOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, MySqlPool, PgPool, Pool, SqlitePool};
use tokio::time::timeout;

use crate::arguments::{Arguments, Command, Engine};
use crate::failure::Failure;

/// How long a database may take to be reached.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) enum Database {
    Sqlite(SqlitePool),
    Postgres(PgPool),
    MySql(MySqlPool),
}

impl Database {
    pub(crate) async fn connect(arguments: &Arguments) -> Result<Self, Failure> {
        let url = arguments
            .database
            .as_deref()
            .ok_or_else(|| Failure::usage("name a database (--database or DATABASE_URL)"))?;
        Ok(match Engine::of(url) {
            Some(Engine::Sqlite) => Self::Sqlite(settings().connect_with(sqlite(url, arguments)?).await?),
            Some(Engine::Postgres) => Self::Postgres(pool(read::<PgConnectOptions>(url)?).await?),
            Some(Engine::Mysql) => Self::MySql(pool(read::<MySqlConnectOptions>(url)?).await?),
            // It may hold a password, so it is not shown.
            None => return Err(Failure::usage("a database is sqlite:FILE, postgres://… or mysql://…")),
        })
    }
}

/// A URL that cannot be read leads nowhere. The error names what is wrong, not what else it holds.
fn read<O: FromStr<Err = sqlx::Error>>(url: &str) -> Result<O, Failure> {
    url.parse().map_err(|error| Failure::usage(format!("the database's URL: {error}")))
}

fn settings<DB: sqlx::Database>() -> PoolOptions<DB> {
    PoolOptions::new().max_connections(3).acquire_timeout(PATIENCE)
}

/// To a server. A pool repeats a refused connection until its patience ends, and has forgotten the reason then. So one is made before it.
async fn pool<DB: sqlx::Database>(options: <DB::Connection as Connection>::Options) -> Result<Pool<DB>, Failure> {
    let silent = || sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "no answer within 10 s"));
    let first = timeout(PATIENCE, options.connect()).await.map_err(|_| silent())??;
    // It has served its purpose, however it ends.
    let _ = timeout(PATIENCE, first.close()).await;
    Ok(settings().connect_lazy_with(options))
}

fn sqlite(url: &str, arguments: &Arguments) -> Result<SqliteConnectOptions, Failure> {
    let named: SqliteConnectOptions = read(url)?;
    let settings: Vec<_> = url.split_once('?').into_iter().flat_map(|(_, settings)| settings.split('&')).collect();
    if url.contains(":memory:") || settings.contains(&"mode=memory") {
        return Err(Failure::usage("a database in memory is seen by its own process alone"));
    }
    // An operator who mistypes a name must not be shown an empty new database.
    let is_made = matches!(arguments.command, Command::Migrate);
    let options = SqliteStore::connect_options(named.get_filename()).create_if_missing(is_made);
    Ok(options.read_only(settings.contains(&"mode=ro")))
}
