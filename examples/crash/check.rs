//! What is wrong with what was heard and found. Pure.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use crate::ask::Answer;
use crate::book::Operation;
use crate::effects::Effect;
use crate::service::Sort;

/// What is to be held against the store.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    pub is_lease: bool,
    /// What began before then may have been forgotten by the store, which does not promise to remember it.
    pub forgotten_until: Option<Instant>,
}

/// What was found.
#[derive(Default, Debug)]
pub struct Found {
    pub violations: Vec<String>,
    /// Operations that were done again since the store had forgotten them.
    pub forgotten: u64,
}

pub fn check(promise: Promise, operations: &[Operation], effects: &[Effect]) -> Found {
    let mut by_operation: HashMap<i64, Vec<&Effect>> = HashMap::new();
    for effect in effects {
        by_operation.entry(effect.operation).or_default().push(effect);
    }
    let mut found = Found::default();
    for (number, operation) in operations.iter().enumerate() {
        let effects = i64::try_from(number).ok().and_then(|number| by_operation.remove(&number)).unwrap_or_default();
        let may_be_forgotten = promise.forgotten_until.is_some_and(|until| operation.began <= until);
        let wrongs = if promise.is_lease {
            under_a_lease(operation, &effects, may_be_forgotten)
        } else {
            in_a_transaction(operation, &effects)
        };
        if may_be_forgotten && !all_equal(operation) {
            found.forgotten += 1;
        }
        let wrongs = answered(operation, may_be_forgotten).into_iter().chain(wrongs);
        found.violations.extend(wrongs.map(|what| format!("operation {number} ({:?}): {what}", operation.sort)));
    }
    let strays = by_operation.len();
    if strays > 0 {
        found.violations.push(format!("{strays} effects of operations that nobody asked for"));
    }
    found
}

fn all(operation: &Operation) -> impl Iterator<Item = &Answer> {
    operation.answers.iter().chain(&operation.last)
}

/// Byte for byte.
fn all_equal(operation: &Operation) -> bool {
    all(operation).map(|answer| (answer.status, &answer.digest)).collect::<HashSet<_>>().len() <= 1
}

/// Every operation has an answer, and its key is done.
fn answered(operation: &Operation, may_be_forgotten: bool) -> Option<String> {
    if operation.answers.is_empty() {
        return Some("it was never answered".to_owned());
    }
    match &operation.last {
        None => Some("its key had no answer in the end".to_owned()),
        Some(last) if !last.is_replay && !may_be_forgotten => Some("it ran again in the end".to_owned()),
        Some(_) => None,
    }
}

/// One effect, or none of one that was refused, and one answer.
fn in_a_transaction(operation: &Operation, effects: &[&Effect]) -> Vec<String> {
    let mut wrong = Vec::new();
    let (count, status) = if operation.sort == Sort::Declined { (0, 402) } else { (1, 201) };
    if effects.len() != count {
        wrong.push(format!("{} effects instead of {count}", effects.len()));
    }
    if !all_equal(operation) {
        wrong.push("its answers differ".to_owned());
    }
    if let Some(answer) = all(operation).find(|answer| answer.status != status) {
        wrong.push(format!("it was answered {}", answer.status));
    }
    if let [effect] = effects
        && all(operation).any(|answer| answer.digest != effect.digest)
    {
        wrong.push("its answer is not that of its effect".to_owned());
    }
    wrong
}

/// One effect under a fence, and one answer from the first replay on (H35).
fn under_a_lease(operation: &Operation, effects: &[&Effect], may_be_forgotten: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    if effects.is_empty() {
        wrong.push("no effect".to_owned());
    }
    let fences: HashSet<i64> = effects.iter().map(|effect| effect.fence).collect();
    if fences.len() != effects.len() {
        wrong.push(format!("{} effects under {} fences", effects.len(), fences.len()));
    }
    if all(operation).any(|answer| !effects.iter().any(|effect| effect.digest == answer.digest)) {
        wrong.push("an answer is that of no effect".to_owned());
    }
    // A guard keeps who has lost its lease from committing after its follower.
    if operation.sort != Sort::Plain && !effects.is_sorted_by(|one, next| one.fence < next.fence) {
        wrong.push("an effect was committed after one of a larger fence".to_owned());
    }
    // A checkpoint is committed with the effect: nobody does it again.
    if operation.sort == Sort::Checkpointed && (effects.len() != 1 || !all_equal(operation)) {
        wrong.push(format!("{} effects, and its answers are equal: {}", effects.len(), all_equal(operation)));
    }
    if !may_be_forgotten && !equal_from_the_first_replay_on(operation) {
        wrong.push("its answers differ from the first replay on".to_owned());
    }
    wrong
}

/// Replays are equal, and so is whatever was asked for when one had been heard.
fn equal_from_the_first_replay_on(operation: &Operation) -> bool {
    let Some(first) = all(operation).filter(|answer| answer.is_replay).min_by_key(|answer| answer.heard) else {
        return true;
    };
    all(operation)
        .filter(|answer| answer.is_replay || answer.sent >= first.heard)
        .all(|answer| (answer.status, &answer.digest) == (first.status, &first.digest))
}
