//! Stores whose answer is written after the effect, in a transaction of its own.

use std::time::Duration;

use http::Extensions;
use idempotency::store::{Claim, ClaimRequest, PostgresClaim, Settled, Settlement, Store, Verdict};
use idempotency::{Error, Key, LookupKey, PostgresStore};
use sqlx::PgPool;

use super::{Wrong, name, replay, unavailable};

#[derive(Clone)]
pub struct LateStore {
    /// Lends its transactions, each under a key that nobody else has.
    inner: PostgresStore,
    pool: PgPool,
    has_lock: bool,
}

pub struct LateClaim {
    inner: PostgresClaim,
    request: ClaimRequest,
    store: LateStore,
}

impl LateStore {
    pub fn new(inner: PostgresStore, pool: PgPool, wrong: Wrong) -> Self {
        Self { inner, pool, has_lock: wrong == Wrong::CommitBeforeClaim }
    }

    /// A lock for longer than services are stopped.
    async fn lock(&self, request: &ClaimRequest) -> Result<bool, sqlx::Error> {
        let locked = sqlx::query(
            "INSERT INTO wrong_locks (name, until) VALUES ($1, clock_timestamp() + interval '3.5 seconds')
             ON CONFLICT (name) DO UPDATE SET until = excluded.until WHERE wrong_locks.until < clock_timestamp()",
        );
        Ok(locked.bind(name(request)).execute(&self.pool).await?.rows_affected() == 1)
    }

    async fn unlock(&self, request: &ClaimRequest) -> Result<(), sqlx::Error> {
        let unlock = sqlx::query("DELETE FROM wrong_locks WHERE name = $1");
        unlock.bind(name(request)).execute(&self.pool).await.map(drop)
    }

    async fn answer(&self, request: &ClaimRequest) -> Result<Option<Verdict<LateClaim>>, Error> {
        let answer =
            sqlx::query_as("SELECT fingerprint, answer FROM wrong_answers WHERE name = $1").bind(name(request));
        let row: Option<(Vec<u8>, Vec<u8>)> = answer.fetch_optional(&self.pool).await.map_err(unavailable)?;
        row.map(|(fingerprint, answer)| replay(request, &fingerprint, answer)).transpose()
    }
}

impl Store for LateStore {
    type Claim = LateClaim;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<LateClaim>, Error> {
        if self.has_lock && !self.lock(request).await.map_err(unavailable)? {
            return Ok(self.answer(request).await?.unwrap_or(Verdict::InProgress { retry_after: None }));
        }
        if let Some(answered) = self.answer(request).await? {
            self.unlock(request).await.map_err(unavailable)?;
            return Ok(answered);
        }
        let alone = Key::new(&uuid::Uuid::new_v4().to_string());
        let alone = alone.map_err(|error| Error::with_source(idempotency::ErrorKind::Setup, error))?;
        let lookup = LookupKey::new(request.lookup().scope().clone(), alone, request.lookup().endpoint().clone());
        let alone = ClaimRequest::new(lookup, *request.fingerprint(), request.retention());
        Ok(match self.inner.claim(&alone).await? {
            Verdict::Claimed(inner) => {
                Verdict::Claimed(LateClaim { inner, request: request.clone(), store: self.clone() })
            }
            _ => Verdict::InProgress { retry_after: None },
        })
    }
}

impl Claim for LateClaim {
    fn attach(&self, extensions: &mut Extensions) {
        self.inner.attach(extensions);
    }

    fn take_back(&mut self) -> Result<(), Error> {
        self.inner.take_back()
    }

    async fn settle(self, settlement: Settlement) -> Result<Settled, Error> {
        let Self { inner, request, store } = self;
        let answer = match &settlement {
            Settlement::Commit(kept) | Settlement::Refuse(kept) => Some(kept.answer.encode()),
            _ => None,
        };
        // The effect is there from here on, and nothing says so.
        inner.settle(settlement).await?;
        // As if the database were some way off.
        tokio::time::sleep(Duration::from_millis(30)).await;
        if let Some(answer) = answer {
            let insert =
                "INSERT INTO wrong_answers (name, fingerprint, answer) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
            let insert =
                sqlx::query(insert).bind(name(&request)).bind(&request.fingerprint().to_bytes()[..]).bind(answer);
            insert.execute(&store.pool).await.map_err(unavailable)?;
        }
        if store.has_lock {
            store.unlock(&request).await.map_err(unavailable)?;
        }
        Ok(Settled::Recorded)
    }
}
