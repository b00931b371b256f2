//! The databases that business rows and the inbox are on.

use std::future::Future;
use std::path::Path;

use idempotency::SqliteStore;
use idempotency::inbox::{Inbox, InboxDialect, InboxTx};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{MySql, Pool, Postgres, Sqlite};

use crate::support::{mysql, postgres};

/// No key and no unique index: what runs twice is there twice.
const EFFECTS: &str = "CREATE TABLE IF NOT EXISTS effects (message VARCHAR(200) NOT NULL)";

/// An engine, and the statements of these tests on it.
pub trait Engine: InboxDialect {
    /// A place of its own that another process can find.
    fn place() -> impl Future<Output = String> + Send;

    fn pool(place: &str) -> impl Future<Output = Pool<Self>> + Send;

    fn write(tx: &mut InboxTx<Self>, message: &str) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    fn prepare(pool: &Pool<Self>) -> impl Future<Output = ()> + Send;

    fn effects(pool: &Pool<Self>) -> impl Future<Output = Vec<String>> + Send;
}

macro_rules! statements {
    ($insert:literal) => {
        async fn write(tx: &mut InboxTx<Self>, message: &str) -> Result<(), sqlx::Error> {
            sqlx::query($insert).bind(message).execute(&mut **tx).await.map(drop)
        }

        async fn prepare(pool: &Pool<Self>) {
            sqlx::raw_sql(EFFECTS).execute(pool).await.unwrap();
        }

        async fn effects(pool: &Pool<Self>) -> Vec<String> {
            sqlx::query_scalar("SELECT message FROM effects ORDER BY message").fetch_all(pool).await.unwrap()
        }
    };
}

impl Engine for Postgres {
    async fn place() -> String {
        postgres::new_schema().await.0
    }

    async fn pool(place: &str) -> Pool<Self> {
        postgres::pool_on(postgres::options().options([("search_path", place)]), 4).await
    }

    statements!("INSERT INTO effects (message) VALUES ($1)");
}

impl Engine for MySql {
    async fn place() -> String {
        mysql::new_database().await
    }

    async fn pool(place: &str) -> Pool<Self> {
        mysql::pool_on(mysql::options().database(place), 4).await
    }

    statements!("INSERT INTO effects (message) VALUES (?)");
}

impl Engine for Sqlite {
    /// The test removes it by [`Shop`].
    async fn place() -> String {
        let folder = tempfile::Builder::new().prefix("idempotency-consumer").tempdir().unwrap().keep();
        folder.to_str().unwrap().to_owned()
    }

    async fn pool(place: &str) -> Pool<Self> {
        let options = SqliteStore::connect_options(Path::new(place).join("db"));
        SqlitePoolOptions::new().max_connections(4).connect_with(options).await.unwrap()
    }

    statements!("INSERT INTO effects (message) VALUES (?)");
}

/// A database with an inbox and effects. Each one has an inbox of its own, as each process has.
pub struct Shop<DB: Engine> {
    pub place: String,
    pub pool: Pool<DB>,
    pub inbox: Inbox<DB>,
    is_owner: bool,
}

impl<DB: Engine> Shop<DB> {
    pub async fn new() -> Self {
        let place = DB::place().await;
        let mut shop = Self::at(&place).await;
        shop.is_owner = true;
        shop
    }

    /// As another process sees it.
    pub async fn at(place: &str) -> Self {
        let pool = DB::pool(place).await;
        let inbox = Inbox::new(pool.clone(), "shop").await.unwrap();
        inbox.migrate().await.unwrap();
        DB::prepare(&pool).await;
        Self { place: place.to_owned(), pool, inbox, is_owner: false }
    }

    pub async fn again(&self) -> Self {
        Self::at(&self.place).await
    }

    pub async fn effects(&self) -> Vec<String> {
        DB::effects(&self.pool).await
    }
}

impl<DB: Engine> Drop for Shop<DB> {
    fn drop(&mut self) {
        if self.is_owner && Path::new(&self.place).is_absolute() {
            let _ = std::fs::remove_dir_all(&self.place);
        }
    }
}
