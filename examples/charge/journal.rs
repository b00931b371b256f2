//! How far an order has come.

use idempotency::Attempt;
use serde::{Deserialize, Serialize};
use sqlx::{Sqlite, SqlitePool, Transaction};

use crate::problem::Failed;

/// What the steps of an order have given so far.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    pub order: Option<String>,
    pub charge: Option<String>,
    pub receipt: Option<String>,
}

/// Where it is kept.
#[derive(Clone, Copy)]
pub enum Journal {
    /// With the lease, which is in the same database as the orders.
    Lease,
    /// In the order's own row, since the lease is elsewhere. An attempt that was overtaken has a smaller fence than the
    /// row.
    Row,
}

impl Journal {
    /// What earlier attempts have done.
    pub async fn resume(self, attempt: &Attempt, pool: &SqlitePool) -> Result<Progress, Failed> {
        let progress = match self {
            Self::Lease => attempt.resume()?.map(|last| last.state),
            Self::Row => {
                let found = sqlx::query_scalar::<_, String>("SELECT progress FROM orders WHERE id = ?")
                    .bind(attempt.derive("order").to_string());
                found.fetch_optional(pool).await?.map(|text| read(&text)).transpose()?
            }
        };
        Ok(progress.unwrap_or_default())
    }

    /// Keeps the progress with what the step writes in the same transaction. After an error it must not commit.
    pub async fn keep(
        self,
        attempt: &Attempt,
        tx: &mut Transaction<'_, Sqlite>,
        step: &str,
        progress: &Progress,
    ) -> Result<(), Failed> {
        match self {
            Self::Lease => attempt.checkpoint(tx, step, progress).await?,
            Self::Row => {
                let fence = i64::try_from(attempt.fence().map_or(0, |fence| fence.0)).unwrap_or(i64::MAX);
                let kept = sqlx::query("UPDATE orders SET progress = ?1, fence = ?2 WHERE id = ?3 AND fence <= ?2")
                    .bind(serde_json::json!(progress).to_string())
                    .bind(fence)
                    .bind(attempt.derive("order").to_string());
                if kept.execute(&mut **tx).await?.rows_affected() == 0 {
                    return Err(Failed::Overtaken);
                }
            }
        }
        Ok(())
    }

    /// Lets a transaction commit only while the attempt owns its key, as far as its database can tell.
    pub async fn guard(self, attempt: &Attempt, tx: &mut Transaction<'_, Sqlite>) -> Result<(), Failed> {
        match self {
            Self::Lease => attempt.guard(tx).await?,
            Self::Row => {}
        }
        Ok(())
    }
}

/// An order that another version of the service has written may say something else.
fn read(text: &str) -> Result<Progress, Failed> {
    serde_json::from_str(text).map_err(|error| Failed::Database(sqlx::Error::Decode(error.into())))
}
