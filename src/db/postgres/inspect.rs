//! What a store must know of its server before it begins.

use sqlx::{ConnectOptions, PgPool, Postgres, Row};

use super::sql;
use crate::db::begin::begin;
use crate::db::fault::in_claim;
use crate::db::sql::SchemaName;
use crate::error::{Error, ErrorKind};

/// Advisory locks in the shape that is used here, `xid8` and `pg_current_xact_id` exist from this version on.
const OLDEST_VERSION: i32 = 130_000;

/// What a server is found to be.
pub(crate) struct Inspected {
    pub(crate) schema: SchemaName,
    /// Whether statements outside a transaction run under READ COMMITTED.
    pub(crate) reads_committed: bool,
    /// Whether the pool keeps statements prepared.
    pub(crate) persistent: bool,
}

/// The server, and the schema of `table`: the one that was named, the one where it stands on the search path, or the one where it would be
/// created. Refuses servers that are too old, and replicas.
pub(crate) async fn inspect(pool: &PgPool, named: Option<&str>, table: &'static str) -> Result<Inspected, Error> {
    let setup = |what: &str| Error::with_source(ErrorKind::Setup, what);
    let persistent = statement_cache_is_on(pool);
    // In a transaction: see `alone`.
    let mut transaction = begin(pool, sql::BEGIN).await.map_err(in_claim::<Postgres>)?;
    let seen = sqlx::query(sql::INSPECT)
        .persistent(persistent)
        .bind(named)
        .bind(table)
        .fetch_one(&mut *transaction)
        .await
        .map_err(in_claim::<Postgres>)?;
    let version: i32 = seen.try_get("version").map_err(in_claim::<Postgres>)?;
    if version < OLDEST_VERSION {
        return Err(setup("Postgres 13 or newer is needed"));
    }
    if seen.try_get("replica").map_err(in_claim::<Postgres>)? {
        return Err(setup("the pool leads to a read-only replica"));
    }
    let schema: Option<String> = seen.try_get("schema").map_err(in_claim::<Postgres>)?;
    let schema = schema.ok_or_else(|| setup("the search path leads to no schema; name one"))?;
    let schema = SchemaName::new(&schema).ok_or_else(|| setup("not a name for a schema"))?;
    let reads_committed = seen.try_get("reads_committed").map_err(in_claim::<Postgres>)?;
    Ok(Inspected { schema, reads_committed, persistent })
}

/// The pool's options show their cache only in their URL form.
fn statement_cache_is_on(pool: &PgPool) -> bool {
    let url = pool.connect_options().to_url_lossy();
    !url.query_pairs().any(|(name, value)| name == "statement-cache-capacity" && value == "0")
}
