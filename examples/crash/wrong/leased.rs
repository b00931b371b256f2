//! A store by leases that does not look in one place: whose lease it is, whether it has ended, or who asks.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use idempotency::store::{Boxed, Claim, ClaimRequest, Fence, LeaseControl, Settled, Settlement, Store, Verdict};
use idempotency::{Error, ErrorKind};
use sqlx::PgPool;

use super::{Wrong, name, replay, unavailable};

pub const LEASE: Duration = Duration::from_millis(300);

/// Parameters: 1 name, 2 fingerprint, 3 whether it waits for the end of a lease. As in real stores, fences are the clock.
const CLAIM: &str = "INSERT INTO wrong_leases (name, fingerprint, fence, until)
    VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::int8, clock_timestamp() + interval '300 milliseconds')
    ON CONFLICT (name) DO UPDATE SET fence = greatest(wrong_leases.fence + 1, excluded.fence), until = excluded.until
        WHERE wrong_leases.answer IS NULL AND wrong_leases.fingerprint = excluded.fingerprint
            AND (wrong_leases.until < clock_timestamp() OR NOT $3)
    RETURNING fence";
const ANSWER: &str = "SELECT fingerprint, answer FROM wrong_leases WHERE name = $1";
/// Parameters: 1 name, 2 fence, 3 whether the owner is compared, 4 answer.
const RENEW: &str = "UPDATE wrong_leases SET until = clock_timestamp() + interval '300 milliseconds'
    WHERE name = $1 AND (fence = $2 OR NOT $3)";
const SETTLE: &str =
    "UPDATE wrong_leases SET answer = $4 WHERE name = $1 AND (fence = $2 AND answer IS NULL OR NOT $3)";
const ABANDON: &str = "UPDATE wrong_leases SET until = clock_timestamp() WHERE name = $1 AND (fence = $2 OR NOT $3)";

#[derive(Clone)]
pub struct LeasedStore {
    pool: PgPool,
    wrong: Wrong,
}

#[derive(Clone)]
pub struct LeasedClaim {
    store: LeasedStore,
    name: String,
    fence: i64,
}

impl LeasedStore {
    pub fn new(pool: PgPool, wrong: Wrong) -> Self {
        Self { pool, wrong }
    }
}

impl Store for LeasedStore {
    type Claim = LeasedClaim;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<LeasedClaim>, Error> {
        let name = name(request);
        let fingerprint = request.fingerprint().to_bytes();
        let claim = sqlx::query_scalar(CLAIM).bind(&name).bind(&fingerprint[..]);
        let claim = claim.bind(self.wrong != Wrong::TakeOverAtOnce).fetch_optional(&self.pool);
        if let Some(fence) = claim.await.map_err(unavailable)? {
            return Ok(Verdict::Claimed(LeasedClaim { store: self.clone(), name, fence }));
        }
        let seen = sqlx::query_as(ANSWER).bind(&name).fetch_one(&self.pool);
        let (stored, answer): (Vec<u8>, Option<Vec<u8>>) = seen.await.map_err(unavailable)?;
        let stored = if self.wrong == Wrong::AnswerAnybody { &fingerprint[..] } else { &stored };
        answer.map_or(Ok(Verdict::InProgress { retry_after: None }), |answer| replay(request, stored, answer))
    }
}

impl Claim for LeasedClaim {
    fn fence(&self) -> Option<Fence> {
        Some(Fence(self.fence.unsigned_abs()))
    }

    fn lease(&self) -> Option<Duration> {
        Some(LEASE)
    }

    async fn renew(&mut self) -> Result<(), Error> {
        self.change(RENEW, None).await
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
impl LeaseControl for LeasedClaim {
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

impl LeasedClaim {
    async fn end(&self, settlement: Settlement) -> Result<(), Error> {
        match settlement {
            Settlement::Commit(kept) | Settlement::Refuse(kept) => {
                self.change(SETTLE, Some(&kept.answer.encode()[..])).await
            }
            _ => self.change(ABANDON, None).await,
        }
    }

    /// Changes the row of this owner, or of whoever it is.
    async fn change(&self, text: &'static str, answer: Option<&[u8]>) -> Result<(), Error> {
        let compares = self.store.wrong != Wrong::SettleWithoutToken;
        let change = sqlx::query(text).bind(&self.name).bind(self.fence).bind(compares);
        let change = match answer {
            Some(answer) => change.bind(answer),
            None => change,
        };
        let done = change.execute(&self.store.pool).await.map_err(unavailable)?;
        if done.rows_affected() == 1 { Ok(()) } else { Err(ErrorKind::LeaseLost.into()) }
    }
}
