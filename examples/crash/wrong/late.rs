//! Stores whose answer is written after the effect, in a transaction of its own.

use std::time::Duration;

use http::Extensions;
use idempotency::store::{Claim, ClaimRequest, PostgresClaim, Settled, Settlement, Store, Verdict};
use idempotency::{Error, Key, LookupKey, PostgresStore};
use sqlx::PgPool;

use super::{Wrong, record, unavailable};

#[derive(Clone)]
pub struct LateStore {
    /// Lends its transactions, each under a key that nobody else has.
    inner: PostgresStore,
    pool: PgPool,
    has_lock: bool,
}

pub struct LateClaim {
    inner: PostgresClaim,
    key: String,
    store: LateStore,
}

impl LateStore {
    pub fn new(inner: PostgresStore, pool: PgPool, wrong: Wrong) -> Self {
        Self { inner, pool, has_lock: wrong == Wrong::CommitBeforeClaim }
    }

    /// A lock for longer than services are stopped.
    async fn lock(&self, key: &str) -> Result<bool, sqlx::Error> {
        let locked = sqlx::query(
            "INSERT INTO wrong_locks (id_key, until) VALUES ($1, clock_timestamp() + interval '3.5 seconds')
             ON CONFLICT (id_key) DO UPDATE SET until = excluded.until WHERE wrong_locks.until < clock_timestamp()",
        );
        Ok(locked.bind(key).execute(&self.pool).await?.rows_affected() == 1)
    }

    async fn unlock(&self, key: &str) -> Result<(), sqlx::Error> {
        let unlock = sqlx::query("DELETE FROM wrong_locks WHERE id_key = $1");
        unlock.bind(key).execute(&self.pool).await.map(drop)
    }

    async fn answer(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let answer = sqlx::query_scalar("SELECT answer FROM wrong_answers WHERE id_key = $1").bind(key);
        answer.fetch_optional(&self.pool).await.map_err(unavailable)
    }
}

impl Store for LateStore {
    type Claim = LateClaim;

    async fn claim(&self, request: &ClaimRequest) -> Result<Verdict<LateClaim>, Error> {
        let key = request.lookup().key().as_str().to_owned();
        if self.has_lock && !self.lock(&key).await.map_err(unavailable)? {
            return match self.answer(&key).await? {
                Some(answer) => Ok(Verdict::Replay(record(request, answer)?)),
                None => Ok(Verdict::InProgress { retry_after: None }),
            };
        }
        if let Some(answer) = self.answer(&key).await? {
            self.unlock(&key).await.map_err(unavailable)?;
            return Ok(Verdict::Replay(record(request, answer)?));
        }
        let alone = Key::new(&uuid::Uuid::new_v4().to_string());
        let alone = alone.map_err(|error| Error::with_source(idempotency::ErrorKind::Setup, error))?;
        let lookup = LookupKey::new(request.lookup().scope().clone(), alone, request.lookup().endpoint().clone());
        let alone = ClaimRequest::new(lookup, *request.fingerprint(), request.retention());
        Ok(match self.inner.claim(&alone).await? {
            Verdict::Claimed(inner) => Verdict::Claimed(LateClaim { inner, key, store: self.clone() }),
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
        let Self { inner, key, store } = self;
        let answer = match &settlement {
            Settlement::Commit(kept) | Settlement::Refuse(kept) => Some(kept.answer.encode()),
            _ => None,
        };
        // The effect is there from here on, and nothing says so.
        inner.settle(settlement).await?;
        // As if the database were some way off.
        tokio::time::sleep(Duration::from_millis(30)).await;
        if let Some(answer) = answer {
            let insert = "INSERT INTO wrong_answers (id_key, answer) VALUES ($1, $2) ON CONFLICT DO NOTHING";
            sqlx::query(insert).bind(&key).bind(answer).execute(&store.pool).await.map_err(unavailable)?;
        }
        if store.has_lock {
            store.unlock(&key).await.map_err(unavailable)?;
        }
        Ok(Settled::Recorded)
    }
}
