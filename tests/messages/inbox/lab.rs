//! A database with the marks of an inbox and a table of business effects.

use std::future::Future;

use idempotency::inbox::{Accept, InboxBuilder, InboxDialect, Message, MessageId, ProcessError, Processed};
use idempotency::store::Isolation;
use idempotency::testing::inbox::{Failed, Harness, Work};
use idempotency::{Inbox, SqliteStore};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{AssertSqlSafe, MySql, MySqlPool, PgPool, Pool, Postgres, Sqlite, SqlitePool, Transaction};
use tempfile::TempDir;

use crate::support::{mysql, postgres};

pub trait Lab: Sized + Send + Sync + 'static {
    type DB: InboxDialect;
    /// An instant that has passed.
    const PAST: &'static str;
    const HAS_ONE_WRITER: bool = false;

    fn pool(&self) -> &Pool<Self::DB>;
    /// The settings of an inbox, as another process would have them.
    fn builder(&self, consumer: &str) -> InboxBuilder<Self::DB>;
    /// A transaction of the caller's, of the kind that the inbox wants.
    fn begin(&self) -> impl Future<Output = Transaction<'static, Self::DB>> + Send;
    fn write<'c>(
        connection: &'c mut <Self::DB as sqlx::Database>::Connection,
        what: &'c str,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send + 'c;
    /// A statement of the simple kind.
    fn raw<'c>(
        connection: &'c mut <Self::DB as sqlx::Database>::Connection,
        sql: &'static str,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send + 'c;
    fn run(&self, sql: &str) -> impl Future<Output = u64> + Send;
    fn count(&self, sql: &str) -> impl Future<Output = i64> + Send;

    fn inbox(&self, consumer: &str) -> impl Future<Output = Inbox<Self::DB>> + Send {
        let builder = self.builder(consumer);
        async { builder.build().await.unwrap() }
    }

    /// How often an effect is committed.
    fn effects(&self, what: &str) -> impl Future<Output = i64> + Send;
}

pub struct PostgresLab {
    pool: PgPool,
    own: PgPool,
    isolation: Isolation,
}

impl PostgresLab {
    pub async fn new(isolation: Isolation) -> Self {
        let pool = postgres::pool_of(20).await;
        Inbox::new(pool.clone(), "lab").await.unwrap().migrate().await.unwrap();
        sqlx::raw_sql("CREATE TABLE effects (what text NOT NULL)").execute(&pool).await.unwrap();
        let schema: String = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&pool).await.unwrap();
        let own = postgres::pool_on(postgres::options().options([("search_path", schema)]), 2).await;
        Self { pool, own, isolation }
    }

    /// Through PgBouncer in transaction mode, where the two messages of an unnamed statement may go to two servers.
    pub async fn pooled() -> Self {
        let (own, pool) = postgres::pooled_database(20).await;
        sqlx::raw_sql("CREATE TABLE effects (what text NOT NULL)").execute(&own).await.unwrap();
        Inbox::new(pool.clone(), "lab").await.unwrap().migrate().await.unwrap();
        Self { pool, own, isolation: Isolation::ReadCommitted }
    }
}

impl Lab for PostgresLab {
    type DB = Postgres;
    const PAST: &'static str = "timestamptz 'epoch'";

    fn pool(&self) -> &PgPool {
        &self.pool
    }

    fn builder(&self, consumer: &str) -> InboxBuilder<Postgres> {
        Inbox::builder(self.pool.clone(), consumer).isolation(self.isolation)
    }

    async fn begin(&self) -> Transaction<'static, Postgres> {
        let begin = match self.isolation {
            Isolation::ReadCommitted => "BEGIN",
            Isolation::RepeatableRead => "BEGIN ISOLATION LEVEL REPEATABLE READ",
            Isolation::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE",
        };
        self.pool.begin_with(begin).await.unwrap()
    }

    async fn raw(connection: &mut sqlx::PgConnection, sql: &'static str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(sql).execute(connection).await.map(drop)
    }

    async fn write(connection: &mut sqlx::PgConnection, what: &str) -> Result<(), sqlx::Error> {
        let insert = sqlx::query("INSERT INTO effects (what) VALUES ($1)").bind(what).persistent(false);
        insert.execute(connection).await.map(drop)
    }

    async fn run(&self, sql: &str) -> u64 {
        sqlx::query(AssertSqlSafe(sql)).execute(&self.own).await.unwrap().rows_affected()
    }

    async fn count(&self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.own).await.unwrap()
    }

    async fn effects(&self, what: &str) -> i64 {
        let sql = "SELECT count(*) FROM effects WHERE what = $1";
        sqlx::query_scalar(sql).bind(what).fetch_one(&self.own).await.unwrap()
    }
}

pub struct SqliteLab {
    folder: TempDir,
    pool: SqlitePool,
}

impl SqliteLab {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pool = Self::pool_in(&folder);
        Inbox::new(pool.clone(), "lab").await.unwrap().migrate().await.unwrap();
        sqlx::query("CREATE TABLE effects (what TEXT NOT NULL)").execute(&pool).await.unwrap();
        Self { folder, pool }
    }

    fn pool_in(folder: &TempDir) -> SqlitePool {
        let options = SqliteStore::connect_options(folder.path().join("inbox.sqlite"));
        SqlitePoolOptions::new().max_connections(8).connect_lazy_with(options)
    }

    /// As another process has it.
    pub fn another_pool(&self) -> SqlitePool {
        Self::pool_in(&self.folder)
    }
}

impl Lab for SqliteLab {
    type DB = Sqlite;
    const PAST: &'static str = "0";
    const HAS_ONE_WRITER: bool = true;

    fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    fn builder(&self, consumer: &str) -> InboxBuilder<Sqlite> {
        Inbox::builder(self.pool.clone(), consumer)
    }

    async fn begin(&self) -> Transaction<'static, Sqlite> {
        self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap()
    }

    async fn raw(connection: &mut sqlx::SqliteConnection, sql: &'static str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(sql).execute(connection).await.map(drop)
    }

    async fn write(connection: &mut sqlx::SqliteConnection, what: &str) -> Result<(), sqlx::Error> {
        sqlx::query("INSERT INTO effects (what) VALUES (?)").bind(what).execute(connection).await.map(drop)
    }

    async fn run(&self, sql: &str) -> u64 {
        sqlx::query(AssertSqlSafe(sql)).execute(&self.pool).await.unwrap().rows_affected()
    }

    async fn count(&self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await.unwrap()
    }

    async fn effects(&self, what: &str) -> i64 {
        let sql = "SELECT count(*) FROM effects WHERE what = ?";
        sqlx::query_scalar(sql).bind(what).fetch_one(&self.pool).await.unwrap()
    }
}

/// On MariaDB, in one of the ways that its inbox has.
pub struct MySqlLab<const LIKE_MYSQL: bool> {
    pool: MySqlPool,
    own: MySqlPool,
    isolation: Isolation,
}

pub type MariaDbLab = MySqlLab<false>;
/// As on MySQL.
pub type NoWaitLab = MySqlLab<true>;

impl<const LIKE_MYSQL: bool> MySqlLab<LIKE_MYSQL> {
    pub async fn new(isolation: Isolation) -> Self {
        Self::in_sessions_of("SET @nothing = 1", isolation).await
    }

    /// Where the host's sessions begin with a statement of its own.
    pub async fn in_sessions_of(first: &'static str, isolation: Isolation) -> Self {
        let options = mysql::options().database(&mysql::new_database().await);
        let pool = mysql::pool_with(options.clone(), 20, first).await;
        Inbox::new(pool.clone(), "lab").await.unwrap().migrate().await.unwrap();
        mysql::create_effects(&pool).await;
        Self { pool, own: mysql::pool_on(options, 2).await, isolation }
    }
}

impl<const LIKE_MYSQL: bool> Lab for MySqlLab<LIKE_MYSQL> {
    type DB = MySql;
    const PAST: &'static str = "TIMESTAMP'1970-01-01 00:00:00'";

    fn pool(&self) -> &MySqlPool {
        &self.pool
    }

    fn builder(&self, consumer: &str) -> InboxBuilder<MySql> {
        let builder = Inbox::builder(self.pool.clone(), consumer).isolation(self.isolation);
        if LIKE_MYSQL { builder.like_mysql() } else { builder }
    }

    async fn begin(&self) -> Transaction<'static, MySql> {
        let begin = match self.isolation {
            Isolation::ReadCommitted => "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN",
            Isolation::RepeatableRead => "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN",
            Isolation::Serializable => "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; BEGIN",
        };
        self.pool.begin_with(begin).await.unwrap()
    }

    async fn raw(connection: &mut sqlx::MySqlConnection, sql: &'static str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(sql).execute(connection).await.map(drop)
    }

    async fn write(connection: &mut sqlx::MySqlConnection, what: &str) -> Result<(), sqlx::Error> {
        sqlx::query("INSERT INTO effects (what) VALUES (?)").bind(what).execute(connection).await.map(drop)
    }

    async fn run(&self, sql: &str) -> u64 {
        sqlx::query(AssertSqlSafe(sql)).execute(&self.own).await.unwrap().rows_affected()
    }

    async fn count(&self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.own).await.unwrap()
    }

    async fn effects(&self, what: &str) -> i64 {
        let sql = "SELECT count(*) FROM effects WHERE what = ?";
        sqlx::query_scalar(sql).bind(what).fetch_one(&self.own).await.unwrap()
    }
}

/// The harness of the conformance kit.
pub struct Real<L>(pub L);

impl<L: Lab> Harness for Real<L> {
    type Inbox = Inbox<L::DB>;

    const RIVALS_WAIT: bool = L::HAS_ONE_WRITER;

    async fn inbox(&self, consumer: &str) -> Inbox<L::DB> {
        self.0.inbox(consumer).await
    }

    async fn process(&self, inbox: &Inbox<L::DB>, message: &Message, work: Work) -> Result<Processed<()>, Failed> {
        let done = inbox
            .process(message, |mut tx| async move {
                L::write(&mut tx, &work.what).await.map_err(Failed::of)?;
                work.pass().await;
                if work.fails { Err(Failed::by_work()) } else { Ok(()) }
            })
            .await;
        done.map_err(|error| match error {
            ProcessError::Handler(failed) => failed,
            ProcessError::Inbox(error) => Failed::of(error),
        })
    }

    async fn accept(
        &self,
        inbox: &Inbox<L::DB>,
        messages: &[Message],
        work: Work,
    ) -> Result<Vec<Processed<()>>, Failed> {
        let mut tx = self.0.begin().await;
        let accepted = match messages {
            [message] => vec![inbox.accept(&mut tx, message).await.map_err(Failed::of)?],
            _ => inbox.accept_all(&mut tx, messages).await.map_err(Failed::of)?,
        };
        let (mut told, mut guards) = (Vec::new(), Vec::new());
        for accept in accepted {
            told.push(match accept {
                Accept::First(guard) => {
                    L::write(&mut tx, &work.what).await.map_err(Failed::of)?;
                    guards.push(guard);
                    Processed::First(())
                }
                Accept::Duplicate => Processed::Duplicate,
                Accept::Busy { retry_after } => Processed::Busy { retry_after },
                Accept::Conflict => Processed::Conflict,
                Accept::Poison => Processed::Poison,
            });
        }
        work.pass().await;
        if work.fails {
            tx.rollback().await.map_err(Failed::of)?;
            return Err(Failed::by_work());
        }
        for guard in &guards {
            guard.confirm(&mut tx).await.map_err(Failed::of)?;
        }
        tx.commit().await.map_err(Failed::of)?;
        Ok(told)
    }

    async fn effects(&self, what: &str) -> u64 {
        self.0.effects(what).await.try_into().unwrap()
    }

    async fn expire(&self) {
        self.0.run(&format!("UPDATE idempotency_inbox SET expires_at = {}", L::PAST)).await;
    }

    async fn purge(&self, inbox: &Inbox<L::DB>, limit: u32) -> Result<u64, Failed> {
        inbox.purge(limit).await.map_err(Failed::of)
    }
}

/// A message of the tests.
pub fn message(id: &str) -> Message {
    Message::new(MessageId::new("lab", id).unwrap(), "payload")
}

/// Processes a message whose handler writes this effect and does nothing else.
pub async fn process<L: Lab>(inbox: &Inbox<L::DB>, message: &Message, what: &str) -> Processed<()> {
    let done = inbox.process(message, |mut tx| {
        let what = what.to_owned();
        async move { L::write(&mut tx, &what).await }
    });
    done.await.unwrap()
}

/// The same until the rest of an earlier delivery is over on the server.
pub async fn process_soon<L: Lab>(inbox: &Inbox<L::DB>, message: &Message, what: &str) -> Processed<()> {
    for _ in 0..1_000 {
        match process::<L>(inbox, message, what).await {
            Processed::Busy { .. } => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
            told => return told,
        }
    }
    panic!("the message stays busy");
}

/// One test for each engine, of a generic function over [`Lab`].
macro_rules! on_each {
    ($($test:ident)*) => {
        $(mod $test {
            use idempotency::store::Isolation::ReadCommitted;
            use $crate::inbox::lab::{MariaDbLab, NoWaitLab, PostgresLab, SqliteLab};

            #[tokio::test(flavor = "multi_thread")]
            async fn postgres() {
                super::$test(PostgresLab::new(ReadCommitted).await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn sqlite() {
                super::$test(SqliteLab::new().await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn mariadb() {
                super::$test(MariaDbLab::new(ReadCommitted).await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn as_on_mysql() {
                super::$test(NoWaitLab::new(ReadCommitted).await).await;
            }
        })*
    };
}

pub(super) use on_each;
