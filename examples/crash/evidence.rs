//! The database as the experiment sees it: without the proxy, to disturb it and to look at what is there in the end.

use std::time::Duration;

use idempotency::{LeaseStore, MySqlStore, PostgresStore, SqliteStore};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{AssertSqlSafe, MySqlPool, PgPool, SqlitePool};
use tokio::time::sleep;

use crate::Failure;
use crate::arguments::Arguments;
use crate::effects::{Effect, Effects};
use crate::place::Place;
use crate::wrong;

pub enum Database {
    /// And the table with the keys.
    Postgres(PgPool, &'static str),
    MariaDb(MySqlPool),
    Sqlite(SqlitePool),
    /// The keys, and the file with the effects.
    Redis(redis::Client, SqlitePool),
}

/// How many keys are done, and how many are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    pub completed: u64,
    pub unfinished: u64,
}

const SESSIONS: &str = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND backend_type = 'client backend' ORDER BY random() LIMIT $1";
const TERMINATE: &str = "SELECT pg_terminate_backend($1)";
const IDLE: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'";
const ADVISORY: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
const THREADS: &str = "SELECT ID FROM information_schema.PROCESSLIST
    WHERE USER = 'idempotency' AND ID <> CONNECTION_ID() ORDER BY rand() LIMIT ?";
const TRANSACTIONS: &str = "SELECT count(*) FROM information_schema.INNODB_TRX";

impl Database {
    /// With all tables. `file` is where keys or effects are that are on no server.
    pub async fn open(arguments: &Arguments, url: &str, file: &str) -> Result<Self, Failure> {
        Ok(match arguments.place {
            Place::Postgres | Place::PostgresLease => {
                let pool = PgPoolOptions::new().max_connections(2).connect(url).await?;
                // Processes are killed and not machines, so nothing is lost without it. With it the server syncs every file of
                // its folder before it starts again, and most of the time there is no server.
                for statement in ["ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()"] {
                    sqlx::raw_sql(statement).execute(&pool).await?;
                }
                sqlx::Postgres::create(&pool).await?;
                PostgresStore::new(pool.clone()).await?.migrate().await?;
                LeaseStore::new(pool.clone()).await?.migrate().await?;
                wrong::create(&pool).await?;
                let leased = arguments.place.is_lease();
                Self::Postgres(pool, if leased { "idempotency_leases" } else { "idempotency_keys" })
            }
            Place::MariaDb => {
                let pool = MySqlPoolOptions::new().max_connections(2).connect(url).await?;
                sqlx::MySql::create(&pool).await?;
                MySqlStore::new(pool.clone()).await?.migrate().await?;
                Self::MariaDb(pool)
            }
            Place::Sqlite => {
                let pool = file_of(file).await?;
                let store = SqliteStore::open(file).await?;
                store.migrate().await?;
                store.close().await;
                Self::Sqlite(pool)
            }
            Place::Redis => {
                let client = redis::Client::open(url)?;
                let mut server = client.get_multiplexed_async_connection().await?;
                if !arguments.is_forgetful {
                    for (name, value) in [("appendfsync", "always"), ("appendonly", "yes")] {
                        redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec_async(&mut server).await?;
                    }
                    // Also after a restart.
                    redis::cmd("CONFIG").arg("REWRITE").exec_async(&mut server).await?;
                }
                Self::Redis(client, file_of(file).await?)
            }
        })
    }

    /// Ends sessions, `count` of them or all (0). How many.
    pub async fn end_sessions(&self, count: u32) -> Result<u64, Failure> {
        let limit = if count == 0 { 1000_i64 } else { i64::from(count) };
        let mut ended = 0;
        match self {
            Self::Postgres(pool, _) => {
                for pid in sqlx::query_scalar::<_, i32>(SESSIONS).bind(limit).fetch_all(pool).await? {
                    let done: bool = sqlx::query_scalar(TERMINATE).bind(pid).fetch_one(pool).await?;
                    ended += u64::from(done);
                }
            }
            Self::MariaDb(pool) => {
                for id in sqlx::query_scalar::<_, i64>(THREADS).bind(limit).fetch_all(pool).await? {
                    let kill = sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}"))).execute(pool).await;
                    ended += u64::from(kill.is_ok());
                }
            }
            Self::Redis(client, _) => {
                // A new one each time: the server may have been away.
                let mut server = client.get_multiplexed_async_connection().await?;
                let kill = redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).to_owned();
                ended = kill.query_async(&mut server).await?;
            }
            Self::Sqlite(_) => {}
        }
        Ok(ended)
    }

    /// As another process that writes.
    pub async fn hold_the_write_lock(&self, lasts: Duration) -> Result<(), Failure> {
        let Self::Sqlite(pool) = self else { return Ok(()) };
        let mut connection = pool.acquire().await?;
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut *connection).await?;
        sleep(lasts).await;
        sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await?;
        Ok(())
    }

    pub async fn effects(&self) -> Result<Vec<Effect>, Failure> {
        Ok(match self {
            Self::Postgres(pool, _) => sqlx::Postgres::read(pool).await?,
            Self::MariaDb(pool) => sqlx::MySql::read(pool).await?,
            Self::Sqlite(pool) | Self::Redis(_, pool) => sqlx::Sqlite::read(pool).await?,
        })
    }

    pub async fn keys(&self) -> Result<Keys, Failure> {
        // A state of 1 is a completed one everywhere.
        const OF_KEYS: &str = "SELECT state = 1, count(*) FROM idempotency_keys GROUP BY 1";
        const OF_LEASES: &str = "SELECT state = 1, count(*) FROM idempotency_leases GROUP BY 1";
        let counts: Vec<(bool, i64)> = match self {
            Self::Postgres(pool, table) => {
                let text = if *table == "idempotency_keys" { OF_KEYS } else { OF_LEASES };
                sqlx::query_as(text).fetch_all(pool).await?
            }
            Self::MariaDb(pool) => sqlx::query_as(OF_KEYS).fetch_all(pool).await?,
            Self::Sqlite(pool) => sqlx::query_as(OF_KEYS).fetch_all(pool).await?,
            Self::Redis(client, _) => return redis_keys(client).await,
        };
        let of =
            |wanted| counts.iter().filter(|(done, _)| *done == wanted).map(|(_, count)| count.unsigned_abs()).sum();
        Ok(Keys { completed: of(true), unfinished: of(false) })
    }

    /// What sessions have left on the server.
    pub async fn sessions(&self) -> Result<Vec<String>, Failure> {
        let mut left = Vec::new();
        let mut look = |count: i64, what: &str| {
            if count > 0 {
                left.push(format!("{count} {what}"));
            }
        };
        match self {
            Self::Postgres(pool, _) => {
                look(sqlx::query_scalar(IDLE).fetch_one(pool).await?, "sessions are idle in a transaction");
                look(sqlx::query_scalar(ADVISORY).fetch_one(pool).await?, "advisory locks are held");
            }
            Self::MariaDb(pool) => {
                look(sqlx::query_scalar(TRANSACTIONS).fetch_one(pool).await?, "transactions are open");
            }
            Self::Sqlite(_) => {
                let held = self.hold_the_write_lock(Duration::ZERO).await;
                look(i64::from(held.is_err()), "write lock is held");
            }
            Self::Redis(..) => {}
        }
        Ok(left)
    }
}

async fn file_of(file: &str) -> Result<SqlitePool, Failure> {
    let options = SqliteStore::connect_options(file);
    let pool = SqlitePoolOptions::new().max_connections(2).connect_with(options).await?;
    sqlx::Sqlite::create(&pool).await?;
    Ok(pool)
}

async fn redis_keys(client: &redis::Client) -> Result<Keys, Failure> {
    let mut server = client.get_multiplexed_async_connection().await?;
    let mut keys = Keys { completed: 0, unfinished: 0 };
    let names: Vec<String> = redis::cmd("KEYS").arg("idempotency:*").query_async(&mut server).await?;
    for names in names.chunks(500) {
        let mut pipe = redis::pipe();
        for name in names {
            pipe.cmd("HGET").arg(name).arg("s");
        }
        let states: Vec<Option<String>> = pipe.query_async(&mut server).await?;
        for state in states {
            match state.as_deref() {
                Some("c") => keys.completed += 1,
                // Freed, or expired meanwhile.
                Some("f") | None => {}
                Some(_) => keys.unfinished += 1,
            }
        }
    }
    Ok(keys)
}
