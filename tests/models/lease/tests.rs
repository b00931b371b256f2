use idempotency::store::OnUnknown;

use super::super::check::{breaks, holds};
use super::{Faults, Leases, Mistake};

const FAULTS: Faults = Faults { crashes: 1, stalls: 1, losses: 1, abandons: 1 };

/// Two requests that are the same, and another one with their key: guarded work and a call that compares fences.
const fn guarded(mistake: Mistake) -> Leases {
    Leases { mistake, on_unknown: OnUnknown::Rerun, clients: &[0, 0, 1], faults: FAULTS }
}

/// The same with a call that must not be made twice.
const fn once(mistake: Mistake) -> Leases {
    Leases { on_unknown: OnUnknown::HoldDispatched, ..guarded(mistake) }
}

const WORK: &str = "guarded work with a checkpoint is done once";
const ORDER: &str = "calls come in the order of their fences";
const ONCE: &str = "a call that must not be repeated is made once";
const ANSWERS: &str = "all answers are the stored one";

// S3, S6, S20, S21, S23, S24
#[test]
fn guarded_work_holds_in_every_order_of_events() {
    holds("lease, guarded", &guarded(Mistake::Nothing));
}

// S3, S6, S21, S22
#[test]
fn a_dispatched_call_holds_in_every_order_of_events() {
    holds("lease, dispatched", &once(Mistake::Nothing));
}

// S3
#[test]
fn more_stalls_than_one_change_nothing() {
    let faults = Faults { crashes: 0, stalls: 3, losses: 0, abandons: 0 };
    holds("lease, guarded, stalls", &Leases { faults, ..guarded(Mistake::Nothing) });
    holds("lease, dispatched, stalls", &Leases { faults, ..once(Mistake::Nothing) });
}

#[test]
fn a_call_without_a_fence_check_is_caught() {
    breaks("no fence check", guarded(Mistake::NoFenceCheck), ORDER);
}

#[test]
fn a_guard_without_the_token_is_caught() {
    breaks("guard without token", guarded(Mistake::GuardWithoutToken), WORK);
}

#[test]
fn a_settlement_without_the_token_is_caught() {
    breaks("settles without token", guarded(Mistake::SettleWithoutToken), ANSWERS);
}

#[test]
fn a_take_over_of_a_live_lease_is_caught() {
    let property = "an owner loses nothing before its lease has ended";
    breaks("takes a live lease", guarded(Mistake::TakesLiveLease), property);
    breaks("takes what it has not seen", guarded(Mistake::TakesUnseen), property);
}

#[test]
fn a_fence_that_starts_again_is_caught() {
    breaks("fence starts again", guarded(Mistake::FenceStartsAgain), "fences grow");
}

#[test]
fn a_checkpoint_apart_from_its_work_is_caught() {
    breaks("checkpoint apart", guarded(Mistake::CheckpointApart), WORK);
}

#[test]
fn a_call_before_its_dispatch_is_caught() {
    breaks("calls before dispatch", once(Mistake::CallsBeforeDispatch), ONCE);
}

#[test]
fn a_dispatch_without_the_token_is_caught() {
    breaks("dispatch without token", once(Mistake::DispatchWithoutToken), ONCE);
}

#[test]
fn a_held_key_that_is_taken_over_is_caught() {
    breaks("held is taken over", once(Mistake::HeldIsTakenOver), ONCE);
}

#[test]
fn a_claim_that_does_not_know_itself_is_caught() {
    breaks("own token is foreign", once(Mistake::OwnTokenIsForeign), "nobody is its own rival");
}

#[test]
fn an_operator_who_overwrites_is_caught() {
    breaks("operator overwrites", once(Mistake::OperatorOverwrites), ANSWERS);
}
