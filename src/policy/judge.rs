//! What a stored record means for the request that met it. Every path of every store asks here (S1).

use crate::fingerprint::Match;

/// Where a stored operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its first request has been accepted and has not been settled.
    Running,
    /// The lease of its last attempt has ended, and the operation may be run again (S21).
    Lapsed,
    /// The lease of its last attempt has ended, and only a person can tell what came of it (S21).
    Unknown,
    /// Its answer is stored.
    Completed,
    /// Its transaction was ended by the handler itself: whether the work is done cannot be told (H29).
    Orphaned,
}

impl State {
    /// Where an operation stands that is held by a lease: `held` says that an attempt which stopped must not be followed
    /// by another one.
    #[must_use]
    pub fn of_lease(ended: bool, held: bool) -> Self {
        match (ended, held) {
            (false, _) => Self::Running,
            (true, false) => Self::Lapsed,
            (true, true) => Self::Unknown,
        }
    }
}

/// What to tell the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The stored answer.
    Replay,
    /// 409: the same request is being worked on.
    InProgress,
    /// 422: the key belongs to another request.
    Mismatch,
    /// 409 for good: a person has to look.
    Orphaned,
    /// 409 for good: the last attempt stopped after it had called somebody else.
    Unknown,
    /// Nothing: it may take the operation over, with a larger fence.
    TakeOver,
}

/// Judges a live record. A mismatch outranks every state (H21); a fingerprint of another profile cannot be compared
/// and counts as a match (H18), so that a rolling deploy never tells an honest retry 422.
#[must_use]
pub fn judge(state: State, compared: Match) -> Judgement {
    match (compared, state) {
        (Match::Different, _) => Judgement::Mismatch,
        (Match::Same | Match::OtherProfile, State::Running) => Judgement::InProgress,
        (Match::Same | Match::OtherProfile, State::Completed) => Judgement::Replay,
        (Match::Same | Match::OtherProfile, State::Orphaned) => Judgement::Orphaned,
        (Match::Same | Match::OtherProfile, State::Unknown) => Judgement::Unknown,
        (Match::Same | Match::OtherProfile, State::Lapsed) => Judgement::TakeOver,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [State; 5] = [State::Running, State::Lapsed, State::Unknown, State::Completed, State::Orphaned];

    // S1, H21, case C12, case F16: checked before the state, so before an answer is even decoded.
    #[test]
    fn a_mismatch_outranks_every_state() {
        for state in ALL {
            assert_eq!(judge(state, Match::Different), Judgement::Mismatch);
        }
    }

    // H18
    #[test]
    fn another_profile_is_never_a_mismatch() {
        for state in ALL {
            assert_eq!(judge(state, Match::OtherProfile), judge(state, Match::Same));
            assert_ne!(judge(state, Match::OtherProfile), Judgement::Mismatch);
        }
    }

    // H22
    #[test]
    fn a_matching_request_is_told_the_state() {
        assert_eq!(judge(State::Completed, Match::Same), Judgement::Replay);
        assert_eq!(judge(State::Running, Match::Same), Judgement::InProgress);
        assert_eq!(judge(State::Orphaned, Match::Same), Judgement::Orphaned);
    }

    // S21, cases L01, L03
    #[test]
    fn a_lease_that_ended_is_taken_over_or_held() {
        let told = |ended, held| judge(State::of_lease(ended, held), Match::Same);
        assert_eq!(told(false, false), Judgement::InProgress);
        assert_eq!(told(false, true), Judgement::InProgress);
        assert_eq!(told(true, false), Judgement::TakeOver);
        assert_eq!(told(true, true), Judgement::Unknown);
    }
}
