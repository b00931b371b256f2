use super::super::check::{breaks, holds};
use super::{Claims, Faults, Mistake};

/// Two requests that are the same, and another one with their key.
const fn claims(mistake: Mistake) -> Claims {
    Claims { mistake, clients: &[0, 0, 1], faults: Faults { crashes: 1, losses: 1, refusals: 1, ends: 1 } }
}

// S1, S6, S11, H20, H21, H29, H32
#[test]
fn a_claim_in_a_transaction_holds_in_every_order_of_events() {
    holds("transactional claim", &claims(Mistake::Nothing));
}

// H21: three that are the same, none of which may be told 422.
#[test]
fn duplicates_alone_are_never_told_422() {
    holds("transactional claim, duplicates", &Claims { clients: &[0, 0, 0], ..claims(Mistake::Nothing) });
}

#[test]
fn a_claim_without_its_lock_is_caught() {
    breaks("no lock", claims(Mistake::NoLock), "nobody waits for a rival's transaction");
}

#[test]
fn an_insert_that_replaces_a_live_row_is_caught() {
    breaks("replaces a live row", claims(Mistake::ReplacesLiveRow), "no operation runs twice");
}

#[test]
fn an_orphan_that_counts_as_free_is_caught() {
    breaks("an orphan is free", claims(Mistake::OrphanIsFree), "no operation runs twice");
}

#[test]
fn an_answer_before_commit_is_caught() {
    let property = "whoever has an answer has the stored one";
    breaks("answers before COMMIT", claims(Mistake::AnswersBeforeCommit), property);
}

#[test]
fn a_refusal_that_overwrites_is_caught() {
    let property = "whoever has an answer has the stored one";
    breaks("a refusal overwrites", claims(Mistake::RefusalOverwrites), property);
}

#[test]
fn a_probe_that_is_enough_for_422_is_caught() {
    breaks("a probe is enough", claims(Mistake::ProbeIsEnough), "an honest retry is never told 422");
}

#[test]
fn a_rerun_after_a_lost_commit_is_caught() {
    breaks("reruns after a lost COMMIT", claims(Mistake::RerunsAfterLostCommit), "no operation runs twice");
}

#[test]
fn a_lock_of_the_session_is_caught() {
    breaks("lock of the session", claims(Mistake::LockOfSession), "no key is stuck");
}
