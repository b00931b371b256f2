//! What the service asks of a database. Each engine is one file: its statements, and one line.

use idempotency::Dialect;
use idempotency::precondition::Version;
use sqlx::Pool;

/// Which document.
pub struct Name {
    pub owner: String,
    /// A UUID in its usual form.
    pub id: String,
}

/// A document as it is stored.
pub struct Document {
    pub version: Version,
    /// The bytes that were sent.
    pub body: Vec<u8>,
}

type Result<T> = std::result::Result<T, sqlx::Error>;

/// An engine of the service.
pub trait Database: Dialect {
    /// Creates the service's own table. Any number of processes may do it at once.
    fn create_table(pool: &Pool<Self>) -> impl Future<Output = Result<()>> + Send;

    /// A document, outside of any transaction.
    fn find(pool: &Pool<Self>, name: &Name) -> impl Future<Output = Result<Option<Document>>> + Send;

    /// A document, as the caller's transaction sees it.
    fn read(connection: &mut Self::Connection, name: &Name) -> impl Future<Output = Result<Option<Document>>> + Send;

    /// Fails with a unique violation where the document is there.
    fn insert(
        connection: &mut Self::Connection,
        name: &Name,
        new: &Document,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Replaces this version only; how many rows that were.
    fn update(
        connection: &mut Self::Connection,
        name: &Name,
        judged: Version,
        new: &Document,
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Deletes this version only; how many rows that were.
    fn delete(
        connection: &mut Self::Connection,
        name: &Name,
        judged: Version,
    ) -> impl Future<Output = Result<u64>> + Send;
}

/// The engine's file holds the texts `CREATE`, `READ` (owner, id), `INSERT` (owner, id, version, body), `UPDATE` (version,
/// body, owner, id, judged version) and `DELETE` (owner, id, judged version).
macro_rules! database {
    ($engine:ty) => {
        impl Database for $engine {
            async fn create_table(pool: &sqlx::Pool<Self>) -> Result<()> {
                let mut transaction = pool.begin().await?;
                for statement in CREATE {
                    sqlx::raw_sql(*statement).execute(&mut *transaction).await?;
                }
                transaction.commit().await
            }

            async fn find(pool: &sqlx::Pool<Self>, name: &Name) -> Result<Option<Document>> {
                let row = sqlx::query_as(READ).bind(&name.owner).bind(&name.id).fetch_optional(pool).await?;
                row.map(document).transpose()
            }

            async fn read(connection: &mut Self::Connection, name: &Name) -> Result<Option<Document>> {
                let row = sqlx::query_as(READ).bind(&name.owner).bind(&name.id).fetch_optional(connection).await?;
                row.map(document).transpose()
            }

            async fn insert(connection: &mut Self::Connection, name: &Name, new: &Document) -> Result<()> {
                let insert = sqlx::query(INSERT).bind(&name.owner).bind(&name.id);
                insert.bind(new.version.to_string()).bind(&new.body).execute(connection).await?;
                Ok(())
            }

            async fn update(
                connection: &mut Self::Connection,
                name: &Name,
                judged: Version,
                new: &Document,
            ) -> Result<u64> {
                let update = sqlx::query(UPDATE).bind(new.version.to_string()).bind(&new.body);
                let update = update.bind(&name.owner).bind(&name.id).bind(judged.to_string());
                Ok(update.execute(connection).await?.rows_affected())
            }

            async fn delete(connection: &mut Self::Connection, name: &Name, judged: Version) -> Result<u64> {
                let delete = sqlx::query(DELETE).bind(&name.owner).bind(&name.id).bind(judged.to_string());
                Ok(delete.execute(connection).await?.rows_affected())
            }
        }
    };
}

mod mysql;
mod postgres;
mod sqlite;

/// A row of `READ`.
fn document((version, body): (String, Vec<u8>)) -> Result<Document> {
    let version = version.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    Ok(Document { version, body })
}
