//! What the service asks of a database: the same few statements on each engine.

use idempotency::Dialect;
use sqlx::{MySql, Pool, Postgres, Sqlite};

use crate::money::Payment;

/// The endpoint a row belongs to.
#[derive(Clone, Copy)]
pub enum Kind {
    Payment,
    Transfer,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Payment => "payment",
            Self::Transfer => "transfer",
        }
    }

    /// The collection under which its rows are found.
    pub fn path(self) -> &'static str {
        match self {
            Self::Payment => "payments",
            Self::Transfer => "transfers",
        }
    }
}

/// An engine of the service.
pub trait Database: Dialect {
    /// Creates the service's own table. Any number of processes may do it at once.
    fn create_tables(pool: &Pool<Self>) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Writes a row in the caller's transaction.
    fn insert(
        connection: &mut Self::Connection,
        owner: &str,
        kind: Kind,
        payment: &Payment,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Writes a row, if there is none with its id; the row as it stands.
    fn insert_once(
        connection: &mut Self::Connection,
        owner: &str,
        kind: Kind,
        payment: &Payment,
    ) -> impl Future<Output = Result<Payment, sqlx::Error>> + Send;

    /// The rows of one owner, oldest first.
    fn list(
        pool: &Pool<Self>,
        owner: &str,
        kind: Kind,
    ) -> impl Future<Output = Result<Vec<Payment>, sqlx::Error>> + Send;

    /// One row of one owner.
    fn find(
        pool: &Pool<Self>,
        owner: &str,
        kind: Kind,
        id: &str,
    ) -> impl Future<Output = Result<Option<Payment>, sqlx::Error>> + Send;
}

/// The texts of one engine.
struct Texts {
    insert: &'static str,
    insert_once: &'static str,
    list: &'static str,
    find: &'static str,
}

const LOCK: &str = "SELECT pg_advisory_xact_lock(7306925418260197)";
const CREATE: &str = "CREATE TABLE IF NOT EXISTS payments (
    id text NOT NULL PRIMARY KEY, owner text NOT NULL, kind text NOT NULL, amount bigint NOT NULL,
    currency text NOT NULL, card text NOT NULL, reference text, created_at text NOT NULL)";
const INDEX: &str = "CREATE INDEX IF NOT EXISTS payments_owner ON payments (owner, kind, created_at, id)";
const NUMBERED: Texts = Texts {
    insert: "INSERT INTO payments (id, owner, kind, amount, currency, card, reference, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    insert_once: "INSERT INTO payments (id, owner, kind, amount, currency, card, reference, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING",
    list: "SELECT id, amount, currency, card, reference, created_at FROM payments
        WHERE owner = $1 AND kind = $2 ORDER BY created_at, id",
    find: "SELECT id, amount, currency, card, reference, created_at FROM payments
        WHERE owner = $1 AND kind = $2 AND id = $3",
};

/// On MySQL an index needs columns of a bounded length, and texts are compared byte for byte only where that is said.
const CREATE_MYSQL: &str = "CREATE TABLE IF NOT EXISTS payments (
    id varchar(64) NOT NULL PRIMARY KEY, owner varchar(512) NOT NULL, kind varchar(16) NOT NULL, amount bigint NOT NULL,
    currency varchar(3) NOT NULL, card varchar(64) NOT NULL, reference varchar(500), created_at varchar(64) NOT NULL,
    KEY payments_owner (owner, kind, created_at, id)) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";
const UNNUMBERED: Texts = Texts {
    insert: "INSERT INTO payments (id, owner, kind, amount, currency, card, reference, created_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    // INSERT IGNORE would hide other errors, too.
    insert_once: "INSERT INTO payments (id, owner, kind, amount, currency, card, reference, created_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE id = id",
    list: "SELECT id, amount, currency, card, reference, created_at FROM payments
        WHERE owner = ? AND kind = ? ORDER BY created_at, id",
    find: "SELECT id, amount, currency, card, reference, created_at FROM payments
        WHERE owner = ? AND kind = ? AND id = ?",
};

macro_rules! write {
    ($text:expr, $connection:expr, $owner:expr, $kind:expr, $payment:expr) => {
        sqlx::query($text)
            .bind(&$payment.id)
            .bind($owner)
            .bind($kind.name())
            .bind($payment.amount)
            .bind(&$payment.currency)
            .bind(&$payment.card)
            .bind(&$payment.reference)
            .bind(&$payment.created_at)
            .execute($connection)
    };
}

/// The statements do the same on each engine; the types of their connections differ, and some texts.
macro_rules! database {
    ($engine:ty, $texts:expr, [$($create:expr),*]) => {
        impl Database for $engine {
            async fn create_tables(pool: &Pool<Self>) -> Result<(), sqlx::Error> {
                let mut transaction = pool.begin().await?;
                $(sqlx::raw_sql($create).execute(&mut *transaction).await?;)*
                transaction.commit().await
            }

            async fn insert(
                connection: &mut Self::Connection,
                owner: &str,
                kind: Kind,
                payment: &Payment,
            ) -> Result<(), sqlx::Error> {
                write!($texts.insert, connection, owner, kind, payment).await?;
                Ok(())
            }

            async fn insert_once(
                connection: &mut Self::Connection,
                owner: &str,
                kind: Kind,
                payment: &Payment,
            ) -> Result<Payment, sqlx::Error> {
                write!($texts.insert_once, &mut *connection, owner, kind, payment).await?;
                sqlx::query_as($texts.find).bind(owner).bind(kind.name()).bind(&payment.id).fetch_one(connection).await
            }

            async fn list(pool: &Pool<Self>, owner: &str, kind: Kind) -> Result<Vec<Payment>, sqlx::Error> {
                sqlx::query_as($texts.list).bind(owner).bind(kind.name()).fetch_all(pool).await
            }

            async fn find(
                pool: &Pool<Self>,
                owner: &str,
                kind: Kind,
                id: &str,
            ) -> Result<Option<Payment>, sqlx::Error> {
                sqlx::query_as($texts.find).bind(owner).bind(kind.name()).bind(id).fetch_optional(pool).await
            }
        }
    };
}

// On Postgres `IF NOT EXISTS` alone fails where two processes start at once.
database!(Postgres, NUMBERED, [LOCK, CREATE, INDEX]);
database!(Sqlite, NUMBERED, [CREATE, INDEX]);
database!(MySql, UNNUMBERED, [CREATE_MYSQL]);
