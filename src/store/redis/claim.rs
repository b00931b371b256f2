//! A key that is held on a server.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::fault::fault;
use super::link::{Link, Open};
use super::reply::int;
use super::scripts::{Step, micros};
use crate::error::{Error, ErrorKind};
use crate::store::{Boxed, Claim, Fence, Kept, LeaseControl, OnUnknown, Settled, Settlement, Token};

/// A record is kept at least this long after it was settled (H44).
pub(super) const LEAST_KEPT: Duration = Duration::from_secs(60);
/// For how many milliseconds a free record remembers its last token and fence: longer than a copy of a call is under
/// way, and than a server's clock steps back.
pub(super) const REMEMBERED: &str = "10000";

/// What one record's owner needs to speak of it.
#[derive(Clone)]
pub(super) struct Owner {
    pub(super) link: Arc<Link>,
    pub(super) key: Arc<str>,
    pub(super) token: Token,
    pub(super) on_unknown: OnUnknown,
    pub(super) replicas: Option<Replicas>,
}

/// How many replicas must have a claim or a settlement before it counts, and how long they have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replicas {
    pub(super) count: u32,
    pub(super) within: Duration,
}

impl Replicas {
    /// Whether the replicas have what was written by this connection.
    pub(super) async fn confirm(self, link: &Link, mut open: Open, key: &str) -> Result<(), Error> {
        let answer = open.connection.wait(key, self.count, self.within).await;
        let confirmed = link.seen(&open, answer).map_err(|error| fault(&error))?;
        if int(Some(&confirmed))? < u64::from(self.count) {
            return Err(Error::with_source(ErrorKind::Unavailable, "redis: too few replicas have it in time"));
        }
        Ok(())
    }
}

impl Owner {
    /// A step that only the owner may take.
    async fn step(&self, step: Step, args: &[&[u8]]) -> Result<Open, Error> {
        let (answer, open) = self.link.run(step, &self.key, args).await?;
        match int(Some(&answer))? {
            1 => Ok(open),
            0 => Err(ErrorKind::LeaseLost.into()),
            _ => Err(ErrorKind::Unreadable.into()),
        }
    }

    /// The same, on as many servers as the store asks for.
    async fn step_everywhere(&self, step: Step, args: &[&[u8]]) -> Result<(), Error> {
        let open = self.step(step, args).await?;
        match self.replicas {
            Some(replicas) => replicas.confirm(&self.link, open, &self.key).await,
            None => Ok(()),
        }
    }

    async fn renew(&self, lease: Duration) -> Result<(), Error> {
        self.step(Step::Renew, &[self.token.as_bytes(), micros(lease).as_bytes()]).await.map(drop)
    }

    /// From here on an attempt that stops has called somebody else (S22).
    async fn dispatching(&self) -> Result<(), Error> {
        let held: &[u8] = if self.on_unknown.holds_dispatched() { b"1" } else { b"0" };
        self.step_everywhere(Step::Hold, &[self.token.as_bytes(), held]).await
    }

    /// Nobody else's record is touched, and an end that is recorded already is a success (S3; cases L12, L13, D05).
    pub(super) async fn settle(&self, settlement: &Settlement) -> Result<(), Error> {
        let token: &[u8] = self.token.as_bytes();
        match settlement {
            Settlement::Commit(kept) | Settlement::Refuse(kept) => {
                let Kept { answer, retention } = kept;
                let (retention, least) = (micros(*retention), micros(LEAST_KEPT));
                let (status, answer) = (answer.status.as_u16().to_string(), answer.encode());
                let args = [token, retention.as_bytes(), least.as_bytes(), status.as_bytes(), &answer];
                self.step_everywhere(Step::Complete, &args).await
            }
            Settlement::Abandon => self.step_everywhere(Step::Release, &[token, REMEMBERED.as_bytes()]).await,
            Settlement::Unknown => self.step_everywhere(Step::Stop, &[token]).await,
        }
    }
}

/// A key held in a [`RedisStore`](super::RedisStore). Dropped, it frees the key when the lease ends.
pub struct RedisClaim {
    pub(super) owner: Owner,
    pub(super) lease: Duration,
    pub(super) fence: u64,
    pub(super) attempt: u64,
}

impl Claim for RedisClaim {
    fn attempt(&self) -> u64 {
        self.attempt
    }

    fn fence(&self) -> Option<Fence> {
        Some(Fence(self.fence))
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.lease)
    }

    fn control(&self) -> Option<Arc<dyn LeaseControl>> {
        Some(Arc::new(RedisControl(self.owner.clone())))
    }

    async fn renew(&mut self) -> Result<(), Error> {
        self.owner.renew(self.lease).await
    }

    async fn settle(self, settlement: Settlement) -> Result<Settled, Error> {
        match self.owner.settle(&settlement).await {
            Ok(()) => Ok(Settled::Recorded),
            // The server may have recorded it before it fell silent.
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                Err(Error::with_source(ErrorKind::NotRecorded, error))
            }
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for RedisClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisClaim").field("fence", &self.fence).finish_non_exhaustive()
    }
}

struct RedisControl(Owner);

impl LeaseControl for RedisControl {
    fn dispatching(&self) -> Boxed<'_, ()> {
        Box::pin(self.0.dispatching())
    }

    fn record(&self, settlement: Settlement) -> Boxed<'_, ()> {
        Box::pin(async move { self.0.settle(&settlement).await })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
