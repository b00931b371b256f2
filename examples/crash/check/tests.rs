//! One test for each promise: kept, and broken.

use super::*;
use crate::service::Order;

const LEASE: Duration = Duration::from_secs(1);
const IN_A_TRANSACTION: Promise = Promise { lease: None, forgotten_until: None };
const UNDER_A_LEASE: Promise = Promise { lease: Some(LEASE), forgotten_until: None };

/// Everything that is known of one operation.
struct Case {
    began: Instant,
    operation: Operation,
    effects: Vec<Effect>,
}

impl Case {
    /// Run once, and replayed in the end.
    fn of(sort: Sort) -> Self {
        let began = Instant::now();
        let order = Order { operation: 0, sort, before: 0, after: 0, filler: 0 };
        let operation = Operation { order, began, is_long: false, answers: Vec::new(), last: None };
        let case = Self { began, operation, effects: Vec::new() };
        let status = if sort == Sort::Declined { 402 } else { 201 };
        let case = case.answered(status, "a", false, 0).in_the_end(status, "a", true);
        if sort == Sort::Declined { case } else { case.done("a", 0) }
    }

    fn answer(&self, (status, digest, is_replay): (u16, &str, bool), second: u64) -> Answer {
        let sent = self.began + Duration::from_secs(second);
        let heard = sent + Duration::from_millis(500);
        Answer { sent, heard, status, is_replay, digest: digest.to_owned(), flaw: None }
    }

    fn answered(mut self, status: u16, digest: &str, is_replay: bool, second: u64) -> Self {
        self.operation.answers.push(self.answer((status, digest, is_replay), second));
        self
    }

    fn in_the_end(mut self, status: u16, digest: &str, is_replay: bool) -> Self {
        self.operation.last = Some(self.answer((status, digest, is_replay), 100));
        self
    }

    /// An effect under the fence that is made in that millisecond.
    fn done(mut self, digest: &str, millisecond: i64) -> Self {
        self.effects.push(Effect { operation: 0, fence: millisecond * 1000, digest: digest.to_owned() });
        self
    }

    fn judge(&self, promise: Promise) -> String {
        let found = check(promise, std::slice::from_ref(&self.operation), &self.effects, Clock::start());
        found.violations.into_iter().map(|violation| violation.what).collect()
    }

    fn is_kept(&self, promise: Promise) {
        assert_eq!(self.judge(promise), "");
    }

    fn breaks(&self, promise: Promise, what: &str) {
        let said = self.judge(promise);
        assert!(said.contains(what), "{what}: {said}");
    }
}

#[test]
fn what_is_done_once_and_answered_so_is_in_order() {
    for sort in [Sort::Plain, Sort::Declined, Sort::Flaky] {
        Case::of(sort).answered(if sort == Sort::Declined { 402 } else { 201 }, "a", true, 3).is_kept(IN_A_TRANSACTION);
    }
    for sort in [Sort::Plain, Sort::Guarded, Sort::Checkpointed] {
        Case::of(sort).answered(201, "a", true, 3).is_kept(UNDER_A_LEASE);
    }
}

#[test]
fn a_number_of_effects_other_than_one_is_found() {
    Case::of(Sort::Plain).done("b", 0).breaks(IN_A_TRANSACTION, "2 effects instead of 1");
    Case::of(Sort::Declined).done("a", 0).breaks(IN_A_TRANSACTION, "1 effects instead of 0");
    let mut none = Case::of(Sort::Flaky);
    none.effects.clear();
    none.breaks(IN_A_TRANSACTION, "0 effects instead of 1");
    none.breaks(UNDER_A_LEASE, "no effect");
}

#[test]
fn an_answer_of_another_run_is_found() {
    Case::of(Sort::Plain).answered(201, "b", true, 3).breaks(IN_A_TRANSACTION, "its answers differ");
    Case::of(Sort::Declined).answered(402, "b", true, 3).breaks(IN_A_TRANSACTION, "its answers differ");
    let mut other = Case::of(Sort::Plain);
    other.effects[0].digest = "b".to_owned();
    other.breaks(IN_A_TRANSACTION, "its answer is not that of its effect");
    other.breaks(UNDER_A_LEASE, "an answer is that of no effect");
}

#[test]
fn another_status_is_found() {
    Case::of(Sort::Plain).answered(402, "a", true, 3).breaks(IN_A_TRANSACTION, "it was answered 402");
    Case::of(Sort::Declined).answered(201, "a", true, 3).breaks(IN_A_TRANSACTION, "it was answered 201");
    let all = Case::of(Sort::Plain).in_the_end(402, "a", true);
    all.breaks(UNDER_A_LEASE, "it was answered 402");
}

#[test]
fn a_flaw_of_an_answer_is_found() {
    let mut case = Case::of(Sort::Plain);
    case.operation.answers[0].flaw = Some("an answer is another operation's");
    case.breaks(IN_A_TRANSACTION, "another operation's");
    case.breaks(UNDER_A_LEASE, "another operation's");
}

#[test]
fn a_key_that_is_not_done_is_found() {
    for promise in [IN_A_TRANSACTION, UNDER_A_LEASE] {
        let mut case = Case::of(Sort::Plain);
        case.operation.answers.clear();
        case.breaks(promise, "it was never answered");
        case.operation.last = None;
        case.breaks(promise, "its key had no answer in the end");
        Case::of(Sort::Plain).in_the_end(201, "a", false).breaks(promise, "it ran again in the end");
    }
}

// H35
#[test]
fn under_a_lease_another_run_may_follow_one_that_was_not_recorded() {
    let again = Case::of(Sort::Plain).done("b", 1000).in_the_end(201, "b", true);
    again.is_kept(UNDER_A_LEASE);
    again.breaks(IN_A_TRANSACTION, "2 effects instead of 1");
}

#[test]
fn a_lease_that_was_not_waited_for_is_found() {
    let early = Case::of(Sort::Plain).done("b", 800).in_the_end(201, "b", true);
    early.breaks(UNDER_A_LEASE, "it was taken over after 800ms of a lease of 1s");
    let twice = Case::of(Sort::Plain).done("b", 0).in_the_end(201, "b", true);
    twice.breaks(UNDER_A_LEASE, "2 effects under 1 fences");
}

#[test]
fn an_answer_that_changes_after_a_replay_is_found() {
    let changed = Case::of(Sort::Plain).done("b", 1000).answered(201, "a", true, 3).in_the_end(201, "b", true);
    changed.breaks(UNDER_A_LEASE, "its answers differ from the first replay on");
    let run = Case::of(Sort::Plain).done("b", 1000).answered(201, "a", true, 3).answered(201, "b", false, 5);
    run.breaks(UNDER_A_LEASE, "its answers differ from the first replay on");
}

// S20: most owners must have kept their leases.
#[test]
fn long_operations_that_run_again_while_nothing_is_disturbed_are_found() {
    let judge = |again: usize| {
        let cases = (0..4).map(|number| {
            let mut case = Case::of(Sort::Plain);
            if number < again {
                case = case.done("b", 1000).in_the_end(201, "b", true);
            }
            case.operation.is_long = true;
            case.operation.order.operation = i64::try_from(number).unwrap_or_default();
            case.effects.iter_mut().for_each(|effect| effect.operation = case.operation.order.operation);
            (case.operation, case.effects)
        });
        let (operations, effects): (Vec<Operation>, Vec<Vec<Effect>>) = cases.unzip();
        check(UNDER_A_LEASE, &operations, &effects.concat(), Clock::start()).violations
    };
    assert_eq!(judge(2), []);
    let said = judge(3);
    assert!(said[0].what.starts_with("3 of 4 operations that took long ran again"), "{said:?}");
}

// S23, S24
#[test]
fn guards_and_checkpoints_promise_more() {
    let late = |sort| {
        let mut case = Case::of(sort).done("b", 1000).in_the_end(201, "b", true);
        case.effects.reverse();
        case
    };
    late(Sort::Plain).is_kept(UNDER_A_LEASE);
    late(Sort::Guarded).breaks(UNDER_A_LEASE, "committed after one of a larger fence");
    let again = Case::of(Sort::Checkpointed).done("b", 1000).in_the_end(201, "b", true);
    again.breaks(UNDER_A_LEASE, "2 effects, and its answers are equal: false");
}

#[test]
fn what_may_be_forgotten_may_run_again() {
    let case = Case::of(Sort::Plain).done("b", 10).in_the_end(201, "b", false);
    let promise = Promise { forgotten_until: Some(case.began), ..UNDER_A_LEASE };
    case.is_kept(promise);
    let found = check(promise, std::slice::from_ref(&case.operation), &case.effects, Clock::start());
    assert_eq!(found.forgotten, 1);
    case.breaks(UNDER_A_LEASE, "it ran again in the end");
}

#[test]
fn an_effect_that_nobody_asked_for_is_found() {
    let mut case = Case::of(Sort::Plain).done("b", 0);
    case.effects[1].operation = 7;
    case.breaks(IN_A_TRANSACTION, "the first is 7");
}

#[test]
fn a_violation_names_operation_key_and_evidence() {
    let case = Case::of(Sort::Plain).done("b", 0);
    let found = check(IN_A_TRANSACTION, std::slice::from_ref(&case.operation), &case.effects, Clock::start());
    let [violation] = &found.violations[..] else { panic!("{found:?}") };
    assert!(violation.what.starts_with("operation 0 (Plain, key operation-0 of even): "), "{}", violation.what);
    assert_eq!(violation.evidence.len(), 1 + 2 + 1 + 1);
}
