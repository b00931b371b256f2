//! What is stored, compared with what is asked.

use super::ClaimRequest;
use crate::events::{Event, emit};
use crate::fingerprint::{Fingerprint, Match};

#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
pub(super) use row::verdict;

/// Compares, and counts what cannot be compared (H18).
pub(super) fn compare(request: &ClaimRequest, stored: &Fingerprint) -> Match {
    let compared = request.compare(stored);
    if compared == Match::OtherProfile {
        emit(Event::OtherProfile);
    }
    compared
}

#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
mod row {
    use bytes::Bytes;

    use super::compare;
    use crate::error::{Error, ErrorKind};
    use crate::fingerprint::Fingerprint;
    use crate::policy::{Judgement, State, judge};
    use crate::record::{Answer, Record};
    use crate::store::{ClaimRequest, Verdict};

    /// The verdict of a live row: the one way from columns (S1). The fingerprint is compared before the answer is decoded (case F16).
    pub(in crate::store) fn verdict<C>(
        request: &ClaimRequest,
        state: State,
        fingerprint: &[u8],
        answer: Option<Bytes>,
    ) -> Result<Verdict<C>, Error> {
        let stored = Fingerprint::from_bytes(fingerprint).ok_or(ErrorKind::Unreadable)?;
        Ok(match judge(state, compare(request, &stored)) {
            Judgement::Mismatch => Verdict::Mismatch,
            Judgement::InProgress => Verdict::InProgress { retry_after: None },
            Judgement::Orphaned => Verdict::Orphaned,
            Judgement::Unknown => Verdict::Unknown,
            // Taking over is a step of a store by leases, which asks before it comes here.
            Judgement::TakeOver => Verdict::InProgress { retry_after: None },
            Judgement::Replay => {
                let answer = Answer::decode(answer.ok_or(ErrorKind::Unreadable)?)
                    .map_err(|error| Error::with_source(ErrorKind::Unreadable, error))?;
                Verdict::Replay(Record { fingerprint: stored, answer })
            }
        })
    }
}
