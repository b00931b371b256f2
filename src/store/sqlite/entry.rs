//! A claim's row from its announcement to its end, which comes however the claim goes (S16).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::claim::SqliteClaim;
use super::shared::{Shared, own_error};
use super::turn::Turn;
use crate::db::sqlite::statements::{self, ANNOUNCED, Announcement};
use crate::db::sqlite::wait::patiently;
use crate::error::Error;
use crate::store::{ClaimRequest, Kept};

/// Between tries of what must be done while the store lives.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A row of ours. Dropped, it is taken back by a task of the store.
pub(super) struct Entry {
    pub(super) shared: Arc<Shared>,
    /// Its token is this row's alone.
    pub(super) request: ClaimRequest,
    duty: Mutex<Duty>,
}

/// What is left to do with the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    Nothing,
    TakeBack,
    /// The handler's transaction was ended by somebody else (H29).
    Orphan,
}

impl Entry {
    pub(super) fn new(shared: Arc<Shared>, request: ClaimRequest) -> Self {
        shared.know(request.token());
        Self { shared, request, duty: Mutex::new(Duty::Nothing) }
    }

    /// Commits the announcement. `None`: there is a live row.
    pub(super) async fn announce(self, turn: &Turn, instead_of: Option<&[u8]>) -> Result<Option<SqliteClaim>, Error> {
        self.owe(Duty::TakeBack);
        let announcement = Announcement {
            fingerprint: self.request.fingerprint(),
            token: self.request.token(),
            owner: self.shared.owner.id(),
            retention: self.request.retention(),
            instead_of,
        };
        let lookup = self.request.lookup();
        let shared = &self.shared;
        let announced = patiently!(
            turn.until(),
            statements::announce(&mut *shared.desk(turn.until()).await?, lookup, &announcement).await
        )
        .map_err(own_error)?;
        if announced {
            return Ok(Some(SqliteClaim::new(self)));
        }
        self.owe(Duty::Nothing);
        Ok(None)
    }

    /// Stores the answer outside a handler's transaction. Not where the row is no longer ours.
    pub(super) async fn finish(&self, turn: &Turn, kept: &Kept) -> Result<bool, Error> {
        let (lookup, token) = (self.request.lookup(), self.request.token());
        let answer = kept.answer.encode();
        let finished = patiently!(
            turn.until(),
            statements::settle(
                &mut *self.shared.books(turn.until()).await?,
                lookup,
                token,
                ANNOUNCED,
                kept.retention,
                &answer
            )
            .await
        )
        .map_err(own_error)?;
        self.settled();
        Ok(finished)
    }

    /// Whether the answer of this claim is committed.
    pub(super) async fn find_own(&self, until: Instant) -> Result<Option<i64>, Error> {
        let (lookup, token) = (self.request.lookup(), self.request.token());
        patiently!(until, statements::find_own(&mut *self.shared.desk(until).await?, lookup, token).await)
            .map_err(own_error)
    }

    /// Nothing is left to do.
    pub(super) fn settled(&self) {
        self.owe(Duty::Nothing);
    }

    /// The key is to be closed until a person looks.
    pub(super) fn orphaned(&self) {
        self.owe(Duty::Orphan);
    }

    /// Does what is left to do with the row. What fails is tried again in the background when the entry is dropped.
    pub(super) async fn discharge(&self, turn: &Turn) -> Result<(), Error> {
        discharge(&self.shared, &self.request, self.duty(), turn).await?;
        self.settled();
        Ok(())
    }

    fn owe(&self, duty: Duty) {
        *self.duty.lock().unwrap_or_else(PoisonError::into_inner) = duty;
    }

    fn duty(&self) -> Duty {
        *self.duty.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        match self.duty() {
            Duty::Nothing => self.shared.forget(self.request.token()),
            duty => {
                let (shared, request) = (Arc::clone(&self.shared), self.request.clone());
                self.shared.spawn(until_discharged(shared, request, duty));
            }
        }
    }
}

/// Until it is done the claim stays known, so that its key is told "in progress" and not given away half undone.
async fn until_discharged(mut shared: Arc<Shared>, request: ClaimRequest, duty: Duty) {
    let _known = Known { shared: Arc::downgrade(&shared), request: &request };
    let mut pause = FIRST_PAUSE;
    loop {
        if let Ok(turn) = shared.turn().await
            && discharge(&shared, &request, duty, &turn).await.is_ok()
        {
            return;
        }
        // The store does not live on for this: without its owner the row counts for nothing.
        let store = Arc::downgrade(&shared);
        drop(shared);
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        match store.upgrade() {
            Some(upgraded) => shared = upgraded,
            None => return,
        }
    }
}

/// Forgets a claim, also where its task is cut off by the end of the runtime.
struct Known<'a> {
    shared: std::sync::Weak<Shared>,
    request: &'a ClaimRequest,
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.forget(self.request.token());
        }
    }
}

async fn discharge(shared: &Shared, request: &ClaimRequest, duty: Duty, turn: &Turn) -> Result<(), Error> {
    let (lookup, token) = (request.lookup(), request.token());
    match duty {
        Duty::Nothing => Ok(()),
        Duty::TakeBack => {
            patiently!(turn.until(), statements::take_back(&mut *shared.desk(turn.until()).await?, lookup, token).await)
                .map_err(own_error)
        }
        Duty::Orphan => {
            let retention = request.retention();
            patiently!(
                turn.until(),
                statements::orphan(&mut *shared.books(turn.until()).await?, lookup, token, retention).await
            )
            .map_err(own_error)
        }
    }
}
