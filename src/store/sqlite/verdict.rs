//! What a look-up means.

use std::ops::ControlFlow::{self, Break, Continue};

use super::shared::Shared;
use crate::db::sqlite::statements::{ANNOUNCED, COMPLETED, ORPHANED, RUNNING, Seen};
use crate::error::{Error, ErrorKind};
use crate::fingerprint::Fingerprint;
use crate::policy::{Judgement, State, judge};
use crate::record::{Answer, Record};
use crate::store::{ClaimRequest, Verdict};

/// A verdict; or nothing stands in the way but, maybe, the announcement with that token, whose owner is dead.
pub(super) type Look<C> = ControlFlow<Verdict<C>, Option<Vec<u8>>>;

/// The verdict of what a look-up found. A fingerprint is compared before an answer is decoded (case F16).
pub(super) fn judge_row<C>(shared: &Shared, request: &ClaimRequest, seen: Option<Seen>) -> Result<Look<C>, Error> {
    let unreadable = || Error::new(ErrorKind::Unreadable);
    let Some(seen) = seen else { return Ok(Continue(None)) };
    let state = match seen.state {
        ANNOUNCED if !stands(shared, &seen) => return Ok(Continue(Some(seen.token))),
        ANNOUNCED => State::Running,
        COMPLETED => State::Completed,
        // A running row that another transaction can see was committed by its own handler (H29).
        RUNNING | ORPHANED => State::Orphaned,
        _ => return Err(unreadable()),
    };
    let stored = Fingerprint::from_bytes(&seen.fingerprint).ok_or_else(unreadable)?;
    let compared = request.compare(&stored);
    Ok(Break(match judge(state, compared) {
        Judgement::Mismatch => Verdict::Mismatch,
        Judgement::InProgress => Verdict::InProgress { retry_after: None },
        Judgement::Orphaned => Verdict::Orphaned,
        Judgement::Replay => {
            let answer = Answer::decode(seen.answer.ok_or_else(unreadable)?)
                .map_err(|error| Error::with_source(ErrorKind::Unreadable, error))?;
            Verdict::Replay(Record { fingerprint: stored, answer })
        }
    }))
}

/// Whether somebody stands behind an announcement. If it ends while this is asked, the announcement that replaces it
/// finds the row changed and does nothing.
fn stands(shared: &Shared, seen: &Seen) -> bool {
    match seen.owner.as_deref() {
        Some(owner) if shared.owner.is(owner) => shared.knows(&seen.token),
        Some(owner) => shared.owner.is_alive(owner),
        None => true,
    }
}
