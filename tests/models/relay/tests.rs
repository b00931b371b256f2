use super::super::check::{breaks, holds};
use super::{Faults, Mistake, Relays};

const NONE: Faults = Faults { crashes: 0, stalls: 0, losses: 0, refusals: 0 };

const fn relays(mistake: Mistake, faults: Faults) -> Relays {
    Relays { mistake, late: true, faults }
}

// M30, M31, M32, case B21
#[test]
fn without_faults_each_event_arrives_once() {
    holds("relay, calm", &relays(Mistake::Nothing, NONE));
    holds("relay, refusals", &relays(Mistake::Nothing, Faults { refusals: 1, ..NONE }));
}

// M31, M32, M33
#[test]
fn a_stalled_relay_overtakes_nobody() {
    holds("relay, a stall", &relays(Mistake::Nothing, Faults { stalls: 1, ..NONE }));
    let both = relays(Mistake::Nothing, Faults { stalls: 1, refusals: 1, ..NONE });
    holds("relay, a stall and a refusal, nothing late", &Relays { late: false, ..both });
}

// M32, M34
#[test]
fn a_killed_relay_loses_nothing() {
    holds("relay, a crash", &relays(Mistake::Nothing, Faults { crashes: 1, ..NONE }));
}

// M32, M36
#[test]
fn a_lost_answer_loses_nothing() {
    holds("relay, a loss", &relays(Mistake::Nothing, Faults { losses: 1, ..NONE }));
}

#[test]
fn a_window_of_two_in_a_key_is_caught() {
    let faults = Faults { losses: 1, ..NONE };
    breaks("window of two", relays(Mistake::WindowOfTwo, faults), "events of a key arrive in order");
}

#[test]
fn a_deletion_before_the_ack_is_caught() {
    let faults = Faults { crashes: 1, ..NONE };
    breaks("deletes before ack", relays(Mistake::DeletesBeforeAck, faults), "no event is lost");
}

#[test]
fn a_dead_letter_without_the_epoch_is_caught() {
    let property = "what was acked to its owner is no dead letter";
    let faults = Faults { stalls: 1, refusals: 1, ..NONE };
    breaks("buries without epoch", relays(Mistake::BuriesWithoutEpoch, faults), property);
}

#[test]
fn a_lost_answer_that_counts_as_an_ack_is_caught() {
    let faults = Faults { losses: 1, ..NONE };
    breaks("unknown is acked", relays(Mistake::UnknownIsAcked, faults), "no event is lost");
}

#[test]
fn a_deletion_that_is_reported_early_is_caught() {
    let property = "without losses nothing arrives twice";
    breaks("reports deletion early", relays(Mistake::ReportsDeletionEarly, NONE), property);
}

#[test]
fn a_relay_that_never_looks_below_is_caught() {
    breaks("no look below", relays(Mistake::NoLookBelow, NONE), "no event is stuck");
}
