//! A store whose replays leave a transaction open on their connection, which goes back to the pool.

use idempotency::store::{ClaimRequest, PostgresClaim, Store, Verdict};
use idempotency::{Error, PostgresStore};
use sqlx::PgPool;

use super::unavailable;

#[derive(Clone)]
pub struct OpenStore {
    inner: PostgresStore,
    pool: PgPool,
}

impl OpenStore {
    pub fn new(inner: PostgresStore, pool: PgPool) -> Self {
        Self { inner, pool }
    }
}

impl Store for OpenStore {
    type Claim = PostgresClaim;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<PostgresClaim>, Error> {
        let verdict = self.inner.claim(request).await?;
        if matches!(verdict, Verdict::Replay(_)) {
            let mut connection = self.pool.acquire().await.map_err(unavailable)?;
            sqlx::raw_sql("BEGIN").execute(&mut *connection).await.map_err(unavailable)?;
        }
        Ok(verdict)
    }
}
