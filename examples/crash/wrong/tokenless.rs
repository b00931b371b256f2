//! A lease that is settled by whoever has owned it once.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use idempotency::Error;
use idempotency::store::{Boxed, Claim, ClaimRequest, Fence, LeaseControl, Settled, Settlement, Store, Verdict};
use sqlx::PgPool;

use super::{record, unavailable};

const LEASE: Duration = Duration::from_millis(300);

const CLAIM: &str = "INSERT INTO wrong_leases (id_key, fence, until)
    VALUES ($1, 1, clock_timestamp() + interval '300 milliseconds')
    ON CONFLICT (id_key) DO UPDATE SET fence = wrong_leases.fence + 1, until = excluded.until
        WHERE wrong_leases.answer IS NULL AND wrong_leases.until < clock_timestamp()
    RETURNING fence";
const ANSWER: &str = "SELECT answer FROM wrong_leases WHERE id_key = $1";
// None of these compares the owner.
const RENEW: &str = "UPDATE wrong_leases SET until = clock_timestamp() + interval '300 milliseconds' WHERE id_key = $1";
const SETTLE: &str = "UPDATE wrong_leases SET answer = $2 WHERE id_key = $1";
const ABANDON: &str = "UPDATE wrong_leases SET until = clock_timestamp() WHERE id_key = $1";

#[derive(Clone)]
pub struct TokenlessStore {
    pool: PgPool,
}

#[derive(Clone)]
pub struct TokenlessClaim {
    pool: PgPool,
    key: String,
    fence: i64,
}

impl TokenlessStore {
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }
}

impl Store for TokenlessStore {
    type Claim = TokenlessClaim;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<TokenlessClaim>, Error> {
        let (pool, key) = (self.pool.clone(), request.lookup().key().as_str().to_owned());
        let fence = sqlx::query_scalar(CLAIM).bind(&key).fetch_optional(&pool).await.map_err(unavailable)?;
        if let Some(fence) = fence {
            return Ok(Verdict::Claimed(TokenlessClaim { pool, key, fence }));
        }
        let answer: Option<Vec<u8>> =
            sqlx::query_scalar(ANSWER).bind(&key).fetch_one(&pool).await.map_err(unavailable)?;
        Ok(match answer {
            Some(answer) => Verdict::Replay(record(request, answer)?),
            None => Verdict::InProgress { retry_after: None },
        })
    }
}

impl Claim for TokenlessClaim {
    fn fence(&self) -> Option<Fence> {
        Some(Fence(self.fence.unsigned_abs()))
    }

    fn lease(&self) -> Option<Duration> {
        Some(LEASE)
    }

    async fn renew(&mut self) -> Result<(), Error> {
        sqlx::query(RENEW).bind(&self.key).execute(&self.pool).await.map_err(unavailable)?;
        Ok(())
    }

    fn control(&self) -> Option<Arc<dyn LeaseControl>> {
        Some(Arc::new(self.clone()))
    }

    async fn settle(self, settlement: Settlement) -> Result<Settled, Error> {
        self.end(settlement).await?;
        Ok(Settled::Recorded)
    }
}

/// An answer that could not be recorded at once is recorded later, by the same statement.
impl LeaseControl for TokenlessClaim {
    fn dispatching(&self) -> Boxed<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn record(&self, settlement: Settlement) -> Boxed<'_, ()> {
        Box::pin(self.end(settlement))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl TokenlessClaim {
    async fn end(&self, settlement: Settlement) -> Result<(), Error> {
        let settle = match settlement {
            Settlement::Commit(kept) | Settlement::Refuse(kept) => {
                sqlx::query(SETTLE).bind(&self.key).bind(kept.answer.encode())
            }
            _ => sqlx::query(ABANDON).bind(&self.key),
        };
        settle.execute(&self.pool).await.map(drop).map_err(unavailable)
    }
}
