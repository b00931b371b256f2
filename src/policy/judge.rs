//! What a stored record means for the request that met it. Every path of every store asks here (S1).

use crate::fingerprint::Match;

/// Where a stored operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its first request has been accepted and has not been settled.
    Running,
    /// Its answer is stored.
    Completed,
    /// Its transaction was ended by the handler itself: whether the work is done cannot be told (H29).
    Orphaned,
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // S1, H21, case C12, case F16: checked before the state, so before an answer is even decoded.
    #[test]
    fn a_mismatch_outranks_every_state() {
        for state in [State::Running, State::Completed, State::Orphaned] {
            assert_eq!(judge(state, Match::Different), Judgement::Mismatch);
        }
    }

    // H18
    #[test]
    fn another_profile_is_never_a_mismatch() {
        for state in [State::Running, State::Completed, State::Orphaned] {
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
}
