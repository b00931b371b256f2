//! The way to a database.

use std::time::Duration;

use idempotency::SqliteStore;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{MySqlPool, PgPool, SqlitePool};

use crate::arguments::{Arguments, Command, Engine};
use crate::failure::Failure;

/// How long a database may take to be reached.
const PATIENCE: Duration = Duration::from_secs(10);

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
            Some(Engine::Sqlite) => Self::Sqlite(sqlite(url, arguments).await?),
            Some(Engine::Postgres) => {
                let options = PgPoolOptions::new().max_connections(3).acquire_timeout(PATIENCE);
                Self::Postgres(options.connect(url).await?)
            }
            Some(Engine::Mysql) => {
                let options = MySqlPoolOptions::new().max_connections(3).acquire_timeout(PATIENCE);
                Self::MySql(options.connect(url).await?)
            }
            // It may hold a password, so it is not shown.
            None => return Err(Failure::usage("a database is sqlite:FILE, postgres://… or mysql://…")),
        })
    }
}

async fn sqlite(url: &str, arguments: &Arguments) -> Result<SqlitePool, Failure> {
    if arguments.schema.is_some() {
        return Err(Failure::usage("SQLite has no schemas"));
    }
    let file = url.trim_start_matches("sqlite:");
    let file = file.strip_prefix("//").unwrap_or(file);
    // An operator who mistypes a name must not be shown an empty new database.
    let options = SqliteStore::connect_options(file).create_if_missing(matches!(arguments.command, Command::Migrate));
    Ok(SqlitePoolOptions::new().max_connections(2).acquire_timeout(PATIENCE).connect_with(options).await?)
}
