//! What a publisher's answer means for the event (M34, M35).

use std::time::Duration;

/// A publisher's answer, without its words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Reply {
    /// The destination has it for good.
    Acked,
    /// The destination will not have it.
    Refused {
        /// Now and ever.
        permanent: bool,
    },
    /// The destination could not be asked; nothing was written there.
    Unavailable {
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// It may have it or not.
    Unknown,
}

/// What follows an answer that does not come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum OnUnknown {
    /// It is sent again, with the same id: for destinations or consumers that drop duplicates.
    #[default]
    Retry,
    /// It waits for an operator: for destinations where a second one does harm (case B65).
    Park,
}

/// What becomes of an event with a key that is refused for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum OnExhausted {
    /// It stays the head of its key and holds the key up, until an operator redrives or discards it.
    #[default]
    Block,
    /// It goes to the dead letters, and its key goes on without it.
    Skip,
}

/// The rules of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// So many failed attempts at an event.
    pub attempts: u32,
    /// See there.
    pub on_unknown: OnUnknown,
    /// See there.
    pub on_exhausted: OnExhausted,
}

/// What is known of the event.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Whether it has a key.
    pub keyed: bool,
    /// Failed attempts before this one.
    pub attempts: u32,
    /// Whether the destination acked another event while this one was under way.
    pub acked_meanwhile: bool,
}

/// What to do with the event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Delete it.
    Done,
    /// Record that so many attempts have failed, and try again after a while.
    Retry {
        /// This one counted.
        attempts: u32,
    },
    /// The destination is to blame: nothing is counted, its breaker opens.
    Away {
        /// When the destination wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// It holds its key up.
    Block {
        /// This one counted.
        attempts: u32,
    },
    /// To the dead letters; its key goes on.
    Bury {
        /// This one counted.
        attempts: u32,
    },
    /// It waits for an operator, with its key if it has one.
    Park {
        /// This one counted.
        attempts: u32,
    },
}

/// What an answer means.
#[must_use]
pub fn verdict(reply: Reply, rules: Rules, facts: Facts) -> Verdict {
    let attempts = facts.attempts.saturating_add(1);
    let exhausted = || match (facts.keyed, rules.on_exhausted) {
        (true, OnExhausted::Block) => Verdict::Block { attempts },
        (true, OnExhausted::Skip) | (false, _) => Verdict::Bury { attempts },
    };
    let counted = || if attempts >= rules.attempts.max(1) { exhausted() } else { Verdict::Retry { attempts } };
    match reply {
        Reply::Acked => Verdict::Done,
        Reply::Refused { permanent: true } => exhausted(),
        Reply::Refused { permanent: false } => counted(),
        Reply::Unavailable { retry_after } => Verdict::Away { retry_after },
        Reply::Unknown => match rules.on_unknown {
            OnUnknown::Park => Verdict::Park { attempts },
            OnUnknown::Retry if facts.acked_meanwhile => counted(),
            OnUnknown::Retry => Verdict::Away { retry_after: None },
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULES: Rules = Rules { attempts: 3, on_unknown: OnUnknown::Retry, on_exhausted: OnExhausted::Block };
    const FRESH: Facts = Facts { keyed: true, attempts: 0, acked_meanwhile: false };

    fn rules() -> impl Strategy<Value = Rules> {
        (0_u32..5, any::<bool>(), any::<bool>()).prop_map(|(attempts, park, skip)| Rules {
            attempts,
            on_unknown: if park { OnUnknown::Park } else { OnUnknown::Retry },
            on_exhausted: if skip { OnExhausted::Skip } else { OnExhausted::Block },
        })
    }

    fn facts() -> impl Strategy<Value = Facts> {
        (any::<bool>(), 0_u32..6, any::<bool>()).prop_map(|(keyed, attempts, acked_meanwhile)| Facts {
            keyed,
            attempts,
            acked_meanwhile,
        })
    }

    proptest! {
        // M34, case B38: an outage uses no attempt up, however often it is met.
        #[test]
        fn unavailable_is_never_an_attempt(rules in rules(), facts in facts()) {
            let verdict = verdict(Reply::Unavailable { retry_after: None }, rules, facts);
            prop_assert_eq!(verdict, Verdict::Away { retry_after: None });
        }

        // M35: an event with a key leaves the outbox without an ack only where its key was told to go on.
        #[test]
        fn a_key_is_left_by_skip_alone(rules in rules(), facts in facts(), permanent in any::<bool>()) {
            let verdict = verdict(Reply::Refused { permanent }, rules, facts);
            if matches!(verdict, Verdict::Bury { .. }) {
                prop_assert!(!facts.keyed || rules.on_exhausted == OnExhausted::Skip);
            }
            prop_assert!(verdict != Verdict::Done);
        }
    }

    // M34
    #[test]
    fn an_unknown_outcome_counts_only_if_the_destination_worked_meanwhile() {
        assert_eq!(verdict(Reply::Unknown, RULES, FRESH), Verdict::Away { retry_after: None });
        let worked = Facts { acked_meanwhile: true, ..FRESH };
        assert_eq!(verdict(Reply::Unknown, RULES, worked), Verdict::Retry { attempts: 1 });
        assert_eq!(verdict(Reply::Unknown, RULES, Facts { attempts: 2, ..worked }), Verdict::Block { attempts: 3 });
    }

    // M34, case B65
    #[test]
    fn an_unknown_outcome_is_parked_where_a_second_one_does_harm() {
        let rules = Rules { on_unknown: OnUnknown::Park, ..RULES };
        assert_eq!(verdict(Reply::Unknown, rules, FRESH), Verdict::Park { attempts: 1 });
        assert_eq!(
            verdict(Reply::Unavailable { retry_after: None }, rules, FRESH),
            Verdict::Away { retry_after: None }
        );
    }

    // M35
    #[test]
    fn the_last_attempt_blocks_the_key_or_buries_the_event() {
        let last = Facts { attempts: 2, ..FRESH };
        let refused = Reply::Refused { permanent: false };
        assert_eq!(verdict(refused, RULES, FRESH), Verdict::Retry { attempts: 1 });
        assert_eq!(verdict(refused, RULES, last), Verdict::Block { attempts: 3 });
        assert_eq!(verdict(refused, RULES, Facts { keyed: false, ..last }), Verdict::Bury { attempts: 3 });
        let skip = Rules { on_exhausted: OnExhausted::Skip, ..RULES };
        assert_eq!(verdict(refused, skip, last), Verdict::Bury { attempts: 3 });
        assert_eq!(verdict(Reply::Refused { permanent: true }, RULES, FRESH), Verdict::Block { attempts: 1 });
    }
}
