//! Whether the service is in order: every connection of its pools can be checked out, and none is inside a transaction.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use idempotency::IdempotencyLayer;
use idempotency::store::Store;
use serde::{Deserialize, Serialize};
use sqlx::pool::PoolConnection;
use sqlx::{Database, MySql, MySqlPool, PgPool, Pool, Postgres, Row, Sqlite, SqlitePool};
use tokio::time::timeout;

/// A pool of any engine.
#[derive(Clone)]
pub enum AnyPool {
    Postgres(PgPool),
    MySql(MySqlPool),
    Sqlite(SqlitePool),
}

/// What is not in order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Inspected {
    /// It may come into order by itself.
    pub unsettled: Vec<String>,
    /// What was left in connections that nobody uses. It counts although it may be gone at the next look, which ends dead
    /// connections and frees locks.
    pub left: Vec<String>,
}

/// Connections are looked at once nobody uses them.
pub async fn inspect<S: Store>(State((layer, pools)): State<(IdempotencyLayer<S>, Vec<AnyPool>)>) -> Json<Inspected> {
    let mut seen = Inspected::default();
    let (running, in_flight) = (layer.running(), layer.keys_in_flight());
    if running + in_flight > 0 {
        seen.unsettled.push(format!("{running} requests run, {in_flight} keys are in flight"));
        return Json(seen);
    }
    for pool in pools {
        match pool {
            AnyPool::Postgres(pool) => check(&pool, &mut seen).await,
            AnyPool::MySql(pool) => check(&pool, &mut seen).await,
            AnyPool::Sqlite(pool) => check(&pool, &mut seen).await,
        }
    }
    Json(seen)
}

trait Inspect: Database {
    /// What is left in a session; `None` if nothing.
    fn left(connection: &mut Self::Connection) -> impl Future<Output = Result<Option<String>, sqlx::Error>> + Send;
}

/// All connections at once, so that none is asked twice.
async fn check<DB: Inspect>(pool: &Pool<DB>, seen: &mut Inspected) {
    let mut out = Vec::new();
    let size = pool.options().get_max_connections();
    while out.len() < size as usize {
        match checked_out(pool).await {
            Ok((connection, left)) => {
                out.push(connection);
                seen.left.extend(left);
            }
            Err(error) => {
                seen.unsettled.push(format!("{} of {size} connections could be checked out: {error}", out.len()));
                break;
            }
        }
    }
}

/// One connection, and what is left in it. A dead one is replaced: servers have ended many.
async fn checked_out<DB: Inspect>(pool: &Pool<DB>) -> Result<(PoolConnection<DB>, Option<String>), String> {
    loop {
        let acquired = timeout(Duration::from_secs(5), pool.acquire()).await;
        let mut connection = acquired.map_err(|_| "no connection within 5 s")?.map_err(|error| error.to_string())?;
        match DB::left(&mut connection).await {
            Ok(left) => return Ok((connection, left)),
            Err(sqlx::Error::Io(_) | sqlx::Error::Database(_) | sqlx::Error::Protocol(_)) => {
                let _ = connection.close().await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The server's code for a statement inside an aborted transaction.
const ABORTED: &str = "25P02";

impl Inspect for Postgres {
    async fn left(connection: &mut Self::Connection) -> Result<Option<String>, sqlx::Error> {
        // A statement of the simple protocol is a transaction of its own, unless there is one: there `now()` stands still.
        match sqlx::raw_sql("SELECT 1").execute(&mut *connection).await {
            Err(sqlx::Error::Database(error)) if error.code().is_some_and(|code| code == ABORTED) => {
                return Ok(Some("a connection of the pool is inside an aborted transaction".to_owned()));
            }
            done => done.map(drop)?,
        }
        let row = sqlx::raw_sql("SELECT now() <> statement_timestamp()").fetch_one(connection).await?;
        Ok(row.try_get::<bool, _>(0)?.then(|| "a connection of the pool is inside a transaction".to_owned()))
    }
}

impl Inspect for MySql {
    async fn left(connection: &mut Self::Connection) -> Result<Option<String>, sqlx::Error> {
        let text = "SELECT CONCAT_WS(' ', @@in_transaction, @@tx_read_only, @@autocommit, RELEASE_ALL_LOCKS())";
        let state: String = sqlx::query_scalar(text).fetch_one(connection).await?;
        let says = || format!("in transaction, read-only, autocommit, named locks of a connection: {state}");
        Ok((state != "0 OFF ON 0" && state != "0 0 1 0").then(says))
    }
}

impl Inspect for Sqlite {
    async fn left(connection: &mut Self::Connection) -> Result<Option<String>, sqlx::Error> {
        match sqlx::raw_sql("BEGIN").execute(&mut *connection).await {
            Ok(_) => sqlx::raw_sql("ROLLBACK").execute(connection).await.map(|_| None),
            Err(error) => Ok(Some(format!("a connection of the pool is inside a transaction: {error}"))),
        }
    }
}
