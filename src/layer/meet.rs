//! Where a request meets the others that have its key in this process: it is told, it waits, or it asks (H20, H46).

use std::sync::Arc;
use std::time::Duration;

use http_body::Body;
use tokio::time::{Instant, timeout_at};

use super::Shared;
use super::inflight::{Meeting, Queued, Seat, Ticket, Turn, Word};
use super::reply::{self, Reply};
use super::within::within;
use crate::events::{Event, emit};
use crate::fingerprint::{Fingerprint, Match};
use crate::policy::{Judgement, State, judge};
use crate::record::Record;
use crate::store::{ClaimRequest, Store};

/// What comes of it: a reply, or the right to ask the store.
pub(super) enum Met<R: Body> {
    Reply(Reply<R>),
    /// With the seat of one that has waited.
    Ticket(Ticket, Option<Seat>),
}

/// What a look at the table gives.
enum Found<R: Body> {
    Reply(Reply<R>),
    Ticket(Ticket),
    /// The same request is being worked on; when to ask again, if the store said so.
    Busy(Option<Duration>),
}

/// As good as for ever, and within every clock.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Until when a request waits for the answer of another one. `None`: not at all.
pub(super) fn patience<S>(shared: &Shared<S>) -> Option<Instant> {
    shared.config.wait.map(|limit| Instant::now() + limit.min(LONGEST_WAIT))
}

/// Meets the other requests of this process.
///
/// Waiting holds nothing but a place in the queue. Dropped at any point, a place or a baton passes on to the next.
pub(super) async fn meet<S: Store, R: Body>(
    shared: &Shared<S>,
    claim: &ClaimRequest,
    until: Option<Instant>,
) -> Met<R> {
    loop {
        let retry_after = match find(shared, claim).await {
            Found::Reply(reply) => return Met::Reply(reply),
            Found::Ticket(ticket) => return Met::Ticket(ticket, None),
            Found::Busy(retry_after) => retry_after,
        };
        let busy = || Met::Reply(reply::in_progress(retry_after));
        let Some(until) = until else { return busy() };
        let mut waiting = match shared.room.inflight.queue(claim.lookup().digest(), shared.config.caps) {
            Queued::Waiting(waiting) => waiting,
            Queued::Full => return busy(),
            Queued::Gone => continue,
        };
        match timeout_at(until, waiting.turn()).await {
            Ok(Some(Turn::Settled(record))) => return Met::Reply(replay(claim, &record)),
            Ok(Some(Turn::Baton(ticket))) => return Met::Ticket(ticket, Some(waiting.into_seat())),
            Ok(None) => {}
            Err(_) => return busy(),
        }
    }
}

/// The reply of a request whose answer was stored here a moment ago.
pub(super) fn cached<S, R: Body>(shared: &Shared<S>, claim: &ClaimRequest) -> Option<Reply<R>> {
    let record = shared.config.replay_cache.as_ref()?.get(claim.lookup().digest())?;
    Some(replay(claim, &record))
}

/// The right to ask for a key that nobody else in this process is at: nearly every request, and nothing to wait for.
pub(super) fn alone<S>(shared: &Shared<S>, claim: &ClaimRequest) -> Option<Ticket> {
    shared.room.inflight.ask_alone(claim.lookup().digest())
}

/// However often the one who asks changes, a verdict is awaited as long as a claim may take; then, in doubt, 409.
async fn find<S: Store, R: Body>(shared: &Shared<S>, claim: &ClaimRequest) -> Found<R> {
    let found = async {
        loop {
            match shared.room.inflight.meet(claim.lookup().digest()) {
                Meeting::Ask(ticket) => return Found::Ticket(ticket),
                Meeting::Running(owner) => return running(claim, &owner),
                Meeting::Elsewhere(asker) if asker == *claim.fingerprints() => return Found::Busy(None),
                // The store knows whether another request's fingerprint is the owner's: ask, for oneself alone.
                Meeting::Elsewhere(_) => return Found::Ticket(Ticket::without_place()),
                // Whoever asked may get an error, go, or learn nothing of this request: then the next one asks.
                Meeting::Wait(word) => {
                    if let Some(found) = word.await.ok().and_then(|word| heed(claim, &word)) {
                        return found;
                    }
                }
            }
        }
    };
    within!(shared.config.claim_timeout, found).unwrap_or(Found::Busy(None))
}

/// What somebody else's verdict means for this request.
fn heed<R: Body>(claim: &ClaimRequest, word: &Word) -> Option<Found<R>> {
    match word {
        Word::Running(owner) => Some(running(claim, owner)),
        Word::Committed(record) => Some(Found::Reply(replay(claim, record))),
        // Equal in all profiles: one that is equal in the current one may differ in the one that was compared (H18).
        Word::Mismatch(asker) => (asker == claim.fingerprints()).then(|| Found::Reply(reply::mismatch())),
        Word::InProgress(asker, wait) => (asker == claim.fingerprints()).then_some(Found::Busy(*wait)),
    }
}

fn running<R: Body>(claim: &ClaimRequest, owner: &Fingerprint) -> Found<R> {
    match judged(claim, State::Running, owner) {
        Judgement::Mismatch => Found::Reply(reply::mismatch()),
        _ => Found::Busy(None),
    }
}

fn replay<R: Body>(claim: &ClaimRequest, record: &Arc<Record>) -> Reply<R> {
    match judged(claim, State::Completed, &record.fingerprint) {
        Judgement::Mismatch => reply::mismatch(),
        _ => Reply::stored(record.answer.clone()),
    }
}

/// By the same decision as the store's own (S1).
fn judged(claim: &ClaimRequest, state: State, owner: &Fingerprint) -> Judgement {
    let compared = claim.compare(owner);
    if compared == Match::OtherProfile {
        emit(Event::OtherProfile);
    }
    judge(state, compared)
}
