//! The rows that handlers write: what was done, under which fence, and the digest of the answer that told of it. Nothing in the
//! table keeps a second row of an operation out: they are counted.

use idempotency::Dialect;
use sqlx::{MySql, Pool, Postgres, Sqlite};

#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Effect {
    pub operation: i64,
    /// 0 where the store has none.
    pub fence: i64,
    pub digest: String,
}

/// An engine that effects are written to.
pub trait Effects: Dialect {
    fn create(pool: &Pool<Self>) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    fn write(
        connection: &mut Self::Connection,
        effect: &Effect,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// All of them, in the order in which they were written.
    fn read(pool: &Pool<Self>) -> impl Future<Output = Result<Vec<Effect>, sqlx::Error>> + Send;
}

macro_rules! effects {
    ($engine:ty, $create:literal, $insert:literal) => {
        impl Effects for $engine {
            async fn create(pool: &Pool<Self>) -> Result<(), sqlx::Error> {
                sqlx::raw_sql($create).execute(pool).await.map(drop)
            }

            async fn write(connection: &mut Self::Connection, effect: &Effect) -> Result<(), sqlx::Error> {
                let Effect { operation, fence, digest } = effect;
                sqlx::query($insert).bind(operation).bind(fence).bind(digest).execute(connection).await.map(drop)
            }

            async fn read(pool: &Pool<Self>) -> Result<Vec<Effect>, sqlx::Error> {
                sqlx::query_as("SELECT operation, fence, digest FROM effects ORDER BY seq").fetch_all(pool).await
            }
        }
    };
}

effects!(
    Postgres,
    "CREATE TABLE effects (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, operation bigint NOT NULL,
        fence bigint NOT NULL, digest text NOT NULL)",
    "INSERT INTO effects (operation, fence, digest) VALUES ($1, $2, $3)"
);
effects!(
    MySql,
    "CREATE TABLE effects (seq bigint AUTO_INCREMENT PRIMARY KEY, operation bigint NOT NULL, fence bigint NOT NULL,
        digest varchar(64) CHARACTER SET ascii NOT NULL) ENGINE = InnoDB",
    "INSERT INTO effects (operation, fence, digest) VALUES (?, ?, ?)"
);
effects!(
    Sqlite,
    "CREATE TABLE effects (seq INTEGER PRIMARY KEY AUTOINCREMENT, operation INTEGER NOT NULL, fence INTEGER NOT NULL,
        digest TEXT NOT NULL)",
    "INSERT INTO effects (operation, fence, digest) VALUES (?1, ?2, ?3)"
);
