//! Operations under a key without HTTP: jobs, message handlers, RPC (H47).

use std::fmt;
use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap, StatusCode};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout};

use crate::attempt::{Attempt, overdue};
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
use crate::db::{Dialect, Tx, TxError};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit, emit_error};
use crate::fingerprint::{Fingerprint, Profile};
use crate::key::Key;
use crate::layer::heartbeat::Held;
use crate::layer::late;
use crate::layer::unwind::Caught;
use crate::lookup::{Endpoint, LookupKey};
use crate::record::{Answer, AnswerBody};
use crate::scope::ScopeId;
use crate::store::{Claim, ClaimRequest, Kept, Settled, Settlement, Store, Verdict};

/// No profile of an HTTP request. Such two cannot be compared and would count as the same, so they must not meet:
/// see [`NAMES`].
const PROFILE: [u8; 8] = *b"\x01run\0\0\0\0";
/// Stands before an operation's name. The endpoint of a request is empty or starts with a method, which has no colon.
const NAMES: &str = "run:";
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// What is to be done once: a name, a key in a scope, and the input that makes it this operation and no other.
#[derive(Clone, Debug)]
pub struct Operation {
    claim: ClaimRequest,
    claim_timeout: Duration,
}

impl Operation {
    /// The operation `name` under `key`. `input` is all that it depends on: the same key with other input is a
    /// mismatch. It never meets a request behind a layer over the same store, whatever its name.
    #[must_use]
    pub fn new(name: &str, scope: ScopeId, key: Key, input: &[u8]) -> Self {
        let digest = Sha256::digest(input).into();
        Self::with_fingerprint(
            LookupKey::new(scope, key, Endpoint::named(&format!("{NAMES}{name}"))),
            Fingerprint::new(Profile::from_bytes(PROFILE), digest),
        )
    }

    /// With a fingerprint of your own.
    #[must_use]
    pub fn with_fingerprint(lookup: LookupKey, fingerprint: Fingerprint) -> Self {
        Self { claim: ClaimRequest::new(lookup, fingerprint, RETENTION), claim_timeout: CLAIM_TIMEOUT }
    }

    /// How long its result is kept (24 h), from its acceptance; at least 60 s from its end.
    #[must_use]
    pub fn retention(self, retention: Duration) -> Self {
        let claim = ClaimRequest::new(self.claim.lookup().clone(), *self.claim.fingerprint(), retention);
        Self { claim, ..self }
    }

    /// How long its claim may take, the wait for a connection included (5 s); then
    /// [`Unavailable`](ErrorKind::Unavailable).
    #[must_use]
    pub fn claim_timeout(self, limit: Duration) -> Self {
        Self { claim_timeout: limit, ..self }
    }
}

/// How the work wants its operation to end; the bytes are its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Keep writes and result.
    Commit(Bytes),
    /// Keep the result, undo the writes.
    Refuse(Bytes),
    /// Keep nothing: the key is free.
    Abandon(Bytes),
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ran {
    /// The work ran just now.
    Executed(Finish),
    /// It had run before; this is its result.
    Replayed(Bytes),
    /// It had run before, and its result was not kept.
    NotKept,
    /// It is running.
    InProgress {
        /// When to ask again, where the store says so.
        retry_after: Option<Duration>,
    },
    /// The key belongs to other input.
    Mismatch,
    /// An earlier run ended its transaction itself; a person has to look.
    Orphaned,
    /// An earlier run stopped after it had called somebody else; a person has to look.
    Unknown,
}

/// What the work may use.
pub struct Running {
    extensions: Extensions,
    attempt: Attempt,
}

impl Running {
    /// The claim's transaction, for transactional stores. One at a time; drop it before the work ends.
    ///
    /// # Errors
    /// See [`TxError`].
    ///
    /// # Cancel safety
    /// As [`Tx::take`]: dropping the future leaves the transaction takeable.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    pub async fn tx<DB: Dialect>(&self) -> Result<Tx<DB>, TxError> {
        Tx::take(&self.extensions).await
    }

    /// What the store has attached, for stores of your own.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Which attempt this is.
    #[must_use]
    pub fn attempt(&self) -> &Attempt {
        &self.attempt
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// Why an operation gave no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The work failed; nothing was kept.
    Work(E),
    /// The store failed: see [`Error::kind`].
    Store(Error),
}

// By hand, so that the work may fail with a `Box<dyn Error>`, which is no `Error` itself.
impl<E: fmt::Display> fmt::Display for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Work(error) => error.fmt(f),
            Self::Store(_) => f.write_str("the store failed"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for RunError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Work(_) => None,
            Self::Store(error) => Some(error),
        }
    }
}

/// Runs operations once, without HTTP. Implemented for every [`Store`].
pub trait RunOnce: Store {
    /// Claims the operation, runs `work`, and settles: the same claim and the same outcomes as behind the layer. A lease
    /// store that could not record the result is asked again, for a minute at most, before this returns.
    ///
    /// # Errors
    /// [`RunError::Work`]: what the work failed with; nothing was kept. [`RunError::Store`]: the store.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work. Transactional stores then keep nothing; lease stores free the key when the
    /// lease ends.
    ///
    /// # Panics
    /// The work's panic goes on to the caller; nothing was kept, and the key is free.
    fn run<F, Fut, E>(&self, operation: &Operation, work: F) -> impl Future<Output = Result<Ran, RunError<E>>> + Send
    where
        F: FnOnce(Running) -> Fut + Send,
        Fut: Future<Output = Result<Finish, E>> + Send,
        E: Send,
    {
        async move {
            let asked = operation.claim.again();
            let asked_at = Instant::now();
            let claimed = timeout(operation.claim_timeout, self.claim(&asked)).await;
            let claimed = claimed.unwrap_or_else(|elapsed| Err(Error::with_source(ErrorKind::Unavailable, elapsed)));
            match claimed.map_err(RunError::Store)? {
                Verdict::Claimed(claim) => {
                    let attempt = Attempt::new(&asked, &claim, asked_at.into_std());
                    if attempt.is_overdue(Instant::now().into_std()) {
                        // Another attempt may be running by now (S20).
                        let _ = claim.settle(Settlement::Abandon).await;
                        return Err(RunError::Store(overdue()));
                    }
                    execute(&asked, claim, attempt, work).await
                }
                verdict => Ok(told(verdict)),
            }
        }
    }
}

impl<S: Store> RunOnce for S {}

async fn execute<C, F, Fut, E>(asked: &ClaimRequest, claim: C, attempt: Attempt, work: F) -> Result<Ran, RunError<E>>
where
    C: Claim,
    F: FnOnce(Running) -> Fut,
    Fut: Future<Output = Result<Finish, E>>,
{
    let mut extensions = Extensions::new();
    claim.attach(&mut extensions);
    let is_lease = claim.lease().is_some() || claim.fence().is_some();
    let mut held = Held::alone(claim, &attempt);
    let running = Running { extensions, attempt: attempt.clone() };
    let finish = match Caught::calling(|| work(running)).await {
        Ok(Ok(finish)) => finish,
        // The work's own failure is what the caller has to know.
        Ok(Err(error)) => {
            give_up(held, &attempt).await;
            return Err(RunError::Work(error));
        }
        Err(payload) => {
            emit(Event::Panicked);
            give_up(held, &attempt).await;
            resume_unwind(payload);
        }
    };
    held.take_back().map_err(RunError::Store)?;
    let Some(claim) = held.release().claim().await else {
        emit(Event::Unsaved);
        return Ok(Ran::Executed(finish));
    };
    let settlement = settlement(asked, &finish);
    let late = attempt.control().map(|control| (Arc::clone(control), settlement.clone()));
    match claim.settle(settlement).await {
        Ok(Settled::Recorded) => {
            emit(if matches!(finish, Finish::Abandon(_)) { Event::Abandoned } else { Event::Executed });
            Ok(Ran::Executed(finish))
        }
        Ok(Settled::Superseded(verdict)) => Ok(told(verdict)),
        // The work is done and no transaction can undo it (H35).
        Err(error) if is_lease && error.kind() != ErrorKind::LeaseLost => {
            emit_error(Event::Unsaved, &error);
            if let Some((control, settlement)) = late {
                Box::pin(late::record(control, settlement)).await;
            }
            Ok(Ran::Executed(finish))
        }
        Err(error) => Err(RunError::Store(error)),
    }
}

/// What the settlement says is logged by the store.
async fn give_up<C: Claim>(held: Held<C>, attempt: &Attempt) {
    if let Some(claim) = held.release().claim().await {
        let _ = claim.settle(Settlement::of_failure(attempt)).await;
    }
}

fn settlement(asked: &ClaimRequest, finish: &Finish) -> Settlement {
    let kept = |result: &Bytes| Kept {
        answer: Answer {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: AnswerBody::Kept(result.clone()),
            trailers: None,
        },
        retention: asked.retention(),
    };
    match finish {
        Finish::Commit(result) => Settlement::Commit(kept(result)),
        Finish::Refuse(result) => Settlement::Refuse(kept(result)),
        Finish::Abandon(_) => Settlement::Abandon,
    }
}

fn told<C>(verdict: Verdict<C>) -> Ran {
    match verdict {
        Verdict::Replay(record) => match record.answer.body {
            AnswerBody::Kept(result) => Ran::Replayed(result),
            AnswerBody::NotKept => Ran::NotKept,
        },
        Verdict::InProgress { retry_after } => Ran::InProgress { retry_after },
        Verdict::Mismatch => Ran::Mismatch,
        Verdict::Orphaned => Ran::Orphaned,
        Verdict::Unknown => Ran::Unknown,
        // Not for us to have.
        Verdict::Claimed(_) => Ran::InProgress { retry_after: None },
    }
}
