//! How a key is asked for.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{MySql, MySqlConnection};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::{MySqlClaim, RUNNING, Shared, state_of};
use crate::db::begin::undisturbed;
use crate::db::fault::in_claim;
use crate::db::mysql::session::Session;
use crate::db::mysql::sql;
use crate::db::mysql::statements::{Found, Seen};
use crate::error::{Error, ErrorKind};
use crate::policy::State;
use crate::store::{ClaimRequest, Verdict, stored};

/// How often a claim asks again that was held up by somebody who is gone when it looks who that was.
const ASKED: u32 = 6;

type Answer = Result<Verdict<MySqlClaim>, Error>;

/// Asks to the end, whoever leaves: a statement that is dropped half-way would leave its answer to the next one.
pub(super) async fn ask(store: &Arc<Shared>, request: &ClaimRequest) -> Answer {
    // Waiting for a connection may be cut at any time.
    let connection = store.pool.acquire().await.map_err(in_claim::<MySql>)?;
    let (store, request) = (Arc::clone(store), request.clone());
    let session = store.session(&request);
    let asking = async move {
        let mut lent = session.lend(connection, store.begin).await?;
        // A connection that does not answer is given up in the end, also where nobody asks any more.
        let asking = timeout(store.settle_timeout, asked(&store, &request, &session, &mut lent)).await;
        let answer = asking.unwrap_or_else(|elapsed| Err(Error::with_source(ErrorKind::Unavailable, elapsed)));
        Ok(answer.map(|verdict| match verdict {
            Some(verdict) => verdict,
            None => Verdict::Claimed(MySqlClaim::new(store, request, session, lent.into_transaction())),
        }))
        // Otherwise nothing was written, and nobody waits until the session is in order.
    };
    undisturbed(asking).await.map_err(in_claim::<MySql>)?
}

/// `None`: the key is ours, in this transaction.
async fn asked(
    store: &Shared,
    request: &ClaimRequest,
    session: &Session,
    transaction: &mut MySqlConnection,
) -> Result<Option<Verdict<MySqlClaim>>, Error> {
    let lock = session.lock_name();
    for time in 1..=ASKED {
        let seen = store.statements.claim(transaction, request, lock.as_deref()).await;
        match seen.map_err(in_claim::<MySql>)? {
            Seen::Claimed(number) => {
                session.is_number(number);
                return Ok(None);
            }
            Seen::Row(found) => return of_row(request, found).map(Some),
            Seen::Held => {}
        }
        if let Some(verdict) = look(store, request, transaction).await? {
            return Ok(Some(verdict));
        }
        if time < ASKED {
            sleep(pause(time)).await;
            let again = session.packet(store.begin);
            // The server ends what is open before it begins.
            run(transaction, session.packet(sql::ROLLBACK_AND_RELEASE)).await?;
            run(transaction, again).await?;
        }
    }
    Ok(Some(Verdict::InProgress { retry_after: None }))
}

/// Who holds the key, from what is not committed. `None`: nobody any more.
async fn look(
    store: &Shared,
    request: &ClaimRequest,
    transaction: &mut MySqlConnection,
) -> Result<Option<Verdict<MySqlClaim>>, Error> {
    run(transaction, sql::REOPEN_DIRTY).await?;
    let peeked = store.statements.peek(transaction, request.lookup()).await.map_err(in_claim::<MySql>)?;
    let Some(peeked) = peeked.filter(|found| !found.expired) else { return Ok(None) };
    let is_running = peeked.state == RUNNING;
    // What is not committed is running, whatever it says.
    let verdict = stored::verdict(request, State::Running, &peeked.fingerprint, None)?;
    if is_running || !matches!(verdict, Verdict::InProgress { .. }) {
        return Ok(Some(verdict));
    }
    // It says that it is done: perhaps it is committed, and somebody else was only looking at it.
    run(transaction, sql::REOPEN_COMMITTED).await?;
    let found = store.statements.find(transaction, request.lookup()).await.map_err(in_claim::<MySql>)?;
    match found.filter(|found| !found.expired) {
        Some(found) => of_row(request, found).map(Some),
        None => Ok(Some(verdict)),
    }
}

/// The verdict of a live row that is committed.
fn of_row(request: &ClaimRequest, found: Found) -> Answer {
    stored::verdict(request, state_of(found.state)?, &found.fingerprint, found.answer)
}

async fn run(transaction: &mut MySqlConnection, text: impl sqlx::SqlSafeStr) -> Result<(), Error> {
    sqlx::raw_sql(text).execute(transaction).await.map(drop).map_err(in_claim::<MySql>)
}

/// A few milliseconds, not in step with others.
fn pause(time: u32) -> Duration {
    let chance = u64::from(Uuid::new_v4().as_bytes()[0] % 8);
    Duration::from_millis(chance * u64::from(time) / 2 + 1)
}
