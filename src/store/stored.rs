//! What a stored row means for a request: the one way from columns to a verdict (S1).

use bytes::Bytes;

use super::{ClaimRequest, Verdict};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, emit};
use crate::fingerprint::{Fingerprint, Match};
use crate::policy::{Judgement, State, judge};
use crate::record::{Answer, Record};

/// The verdict of a live row. The fingerprint is compared before the answer is decoded (case F16).
pub(super) fn verdict<C>(
    request: &ClaimRequest,
    state: State,
    fingerprint: &[u8],
    answer: Option<Bytes>,
) -> Result<Verdict<C>, Error> {
    let stored = Fingerprint::from_bytes(fingerprint).ok_or(ErrorKind::Unreadable)?;
    let compared = request.compare(&stored);
    if compared == Match::OtherProfile {
        emit(Event::OtherProfile);
    }
    Ok(match judge(state, compared) {
        Judgement::Mismatch => Verdict::Mismatch,
        Judgement::InProgress => Verdict::InProgress { retry_after: None },
        Judgement::Orphaned => Verdict::Orphaned,
        Judgement::Replay => {
            let answer = Answer::decode(answer.ok_or(ErrorKind::Unreadable)?)
                .map_err(|error| Error::with_source(ErrorKind::Unreadable, error))?;
            Verdict::Replay(Record { fingerprint: stored, answer })
        }
    })
}
