//! What a look-up means.

use std::ops::ControlFlow::{self, Break, Continue};

use super::shared::Shared;
use crate::db::sqlite::statements::{ANNOUNCED, COMPLETED, ORPHANED, RUNNING, Seen};
use crate::error::{Error, ErrorKind};
use crate::policy::State;
use crate::store::{ClaimRequest, Verdict, stored};

/// A verdict; or nothing stands in the way but, maybe, the announcement with that token, whose owner is dead.
pub(super) type Look<C> = ControlFlow<Verdict<C>, Option<Vec<u8>>>;

/// The verdict of what a look-up found.
pub(super) fn judge_row<C>(shared: &Shared, request: &ClaimRequest, seen: Option<Seen>) -> Result<Look<C>, Error> {
    let Some(seen) = seen else { return Ok(Continue(None)) };
    let state = match seen.state {
        ANNOUNCED if !stands(shared, &seen.token, seen.owner.as_deref()) => return Ok(Continue(Some(seen.token))),
        ANNOUNCED => State::Running,
        COMPLETED => State::Completed,
        // A running row that another transaction can see was committed by its own handler (H29).
        RUNNING | ORPHANED => State::Orphaned,
        _ => return Err(ErrorKind::Unreadable.into()),
    };
    stored::verdict(request, state, &seen.fingerprint, seen.answer).map(Break)
}

/// Whether somebody stands behind an announcement. If it ends while this is asked, the announcement that replaces it
/// finds the row changed and does nothing.
pub(super) fn stands(shared: &Shared, token: &[u8], owner: Option<&[u8]>) -> bool {
    match owner {
        Some(owner) if shared.owner.is(owner) => shared.knows(token),
        Some(owner) => shared.owner.is_alive(owner),
        None => true,
    }
}
