//! What is stored, compared with what is asked.

use super::ClaimRequest;
use crate::events::{Event, emit};
use crate::fingerprint::{Fingerprint, Match};

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub(crate) use entry::StoredEntry;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub(super) use row::told;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql", feature = "redis"))]
pub(super) use row::verdict;

/// Compares, and counts what cannot be compared (H18).
pub(super) fn compare(request: &ClaimRequest, stored: &Fingerprint) -> Match {
    let compared = request.compare(stored);
    if compared == Match::OtherProfile {
        emit(Event::OtherProfile);
    }
    compared
}

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql", feature = "redis"))]
mod row {
    use bytes::Bytes;

    use super::compare;
    use crate::error::{Error, ErrorKind};
    use crate::fingerprint::Fingerprint;
    use crate::policy::{Judgement, State, judge};
    use crate::record::{Answer, Record};
    use crate::store::{ClaimRequest, Verdict};

    /// The verdict of a live row: the one way from columns (S1). The fingerprint is compared before the answer is decoded
    /// (case F16).
    pub(in crate::store) fn verdict<C>(
        request: &ClaimRequest,
        state: State,
        fingerprint: &[u8],
        answer: Option<Bytes>,
    ) -> Result<Verdict<C>, Error> {
        let stored = Fingerprint::from_bytes(fingerprint).ok_or(ErrorKind::Unreadable)?;
        told(judge(state, compare(request, &stored)), stored, answer)
    }

    /// A judgement as the verdict of whoever has met the row.
    pub(in crate::store) fn told<C>(
        judgement: Judgement,
        stored: Fingerprint,
        answer: Option<Bytes>,
    ) -> Result<Verdict<C>, Error> {
        Ok(match judgement {
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

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod entry {
    use std::time::Duration;

    use bytes::Bytes;

    use crate::error::{Error, ErrorKind};
    use crate::lookup::LookupKey;
    use crate::policy::State;
    use crate::record::Answer;
    use crate::store::{Entry, Token};

    /// A record as an operator's statement reads it. What the state's number means only its engine knows.
    pub(crate) struct StoredEntry {
        pub(crate) lookup: (String, String, String),
        pub(crate) state: i64,
        pub(crate) token: Vec<u8>,
        pub(crate) answer: Option<Bytes>,
        pub(crate) age: Duration,
        pub(crate) expires_in: Duration,
    }

    impl StoredEntry {
        pub(in crate::store) fn entry(self, state: State) -> Result<Entry, Error> {
            let (scope, key, endpoint) = &self.lookup;
            let lookup = LookupKey::from_stored(scope, key, endpoint).ok_or(ErrorKind::Unreadable)?;
            let token = self.token.as_slice().try_into().map_err(|_| ErrorKind::Unreadable)?;
            let mut entry = Entry::new(lookup, state, Token::from_bytes(token));
            entry.age = self.age;
            entry.expires_in = self.expires_in;
            // An answer that cannot be read is no reason to show nothing.
            entry.status = self.answer.and_then(|answer| Answer::decode(answer).ok()).map(|answer| answer.status);
            Ok(entry)
        }
    }
}
