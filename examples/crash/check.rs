//! What is wrong with what was heard and found. Pure.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::ask::Answer;
use crate::book::Operation;
use crate::clock::Clock;
use crate::effects::Effect;
use crate::service::Sort;

/// What is to be held against the store.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// How long a claim is held at least, where it is a lease.
    pub lease: Option<Duration>,
    /// What began before then may have been forgotten by the store, which does not promise to remember it.
    pub forgotten_until: Option<Instant>,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub what: String,
    /// What was asked, done and heard, one line each.
    pub evidence: Vec<String>,
}

impl From<String> for Violation {
    fn from(what: String) -> Self {
        Self { what, evidence: Vec::new() }
    }
}

/// What was found.
#[derive(Default, Debug)]
pub struct Found {
    /// One at most of each operation.
    pub violations: Vec<Violation>,
    /// Operations that were done again since the store had forgotten them.
    pub forgotten: u64,
}

pub fn check(promise: Promise, operations: &[Operation], effects: &[Effect], clock: Clock) -> Found {
    let mut by_operation: HashMap<i64, Vec<&Effect>> = HashMap::new();
    for effect in effects {
        by_operation.entry(effect.operation).or_default().push(effect);
    }
    let (mut found, mut long, mut again) = (Found::default(), 0, 0);
    for operation in operations {
        let effects = by_operation.remove(&operation.order.operation).unwrap_or_default();
        if operation.is_long {
            long += 1;
            again += usize::from(effects.len() > 1);
        }
        let may_be_forgotten = promise.forgotten_until.is_some_and(|until| operation.began <= until);
        let mut wrongs = answered(operation, may_be_forgotten);
        wrongs.extend(match promise.lease {
            Some(lease) => under_a_lease(operation, &effects, lease, may_be_forgotten),
            None => in_a_transaction(operation, &effects),
        });
        if may_be_forgotten && !all_equal(operation) {
            found.forgotten += 1;
        }
        if !wrongs.is_empty() {
            let order = &operation.order;
            let (number, sort, key, tenant) = (order.operation, order.sort, order.key(), order.tenant());
            let what = format!("operation {number} ({sort:?}, key {key} of {tenant}): {}", wrongs.join("; "));
            found.violations.push(Violation { what, evidence: evidence(operation, &effects, clock) });
        }
    }
    // A machine that has too much to do may lose one.
    if 2 * again > long {
        let what = format!("{again} of {long} operations that took long ran again, though nothing was disturbed");
        found.violations.push(what.into());
    }
    let mut strays: Vec<i64> = by_operation.into_keys().collect();
    strays.sort_unstable();
    if let Some(first) = strays.first() {
        let what = format!("{} operations that nobody asked for have effects, the first is {first}", strays.len());
        found.violations.push(what.into());
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

/// Every operation has its own answers, whole, and its key is done.
fn answered(operation: &Operation, may_be_forgotten: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    if operation.answers.is_empty() {
        wrong.push("it was never answered".to_owned());
    }
    match &operation.last {
        None => wrong.push("its key had no answer in the end".to_owned()),
        Some(last) if !last.is_replay && !may_be_forgotten => wrong.push("it ran again in the end".to_owned()),
        Some(_) => {}
    }
    let status = if operation.order.sort == Sort::Declined { 402 } else { 201 };
    if let Some(answer) = all(operation).find(|answer| answer.status != status) {
        wrong.push(format!("it was answered {}", answer.status));
    }
    let flaws: BTreeSet<&str> = all(operation).filter_map(|answer| answer.flaw).collect();
    wrong.extend(flaws.into_iter().map(str::to_owned));
    wrong
}

/// One effect, or none of one that was refused, and one answer.
fn in_a_transaction(operation: &Operation, effects: &[&Effect]) -> Vec<String> {
    let mut wrong = Vec::new();
    let count = if operation.order.sort == Sort::Declined { 0 } else { 1 };
    if effects.len() != count {
        wrong.push(format!("{} effects instead of {count}", effects.len()));
    }
    if !all_equal(operation) {
        wrong.push("its answers differ".to_owned());
    }
    if let [effect] = effects
        && all(operation).any(|answer| answer.digest != effect.digest)
    {
        wrong.push("its answer is not that of its effect".to_owned());
    }
    wrong
}

/// One effect under a fence, and one answer from the first replay on (H35).
fn under_a_lease(operation: &Operation, effects: &[&Effect], lease: Duration, may_be_forgotten: bool) -> Vec<String> {
    let (mut wrong, sort) = (Vec::new(), operation.order.sort);
    if effects.is_empty() {
        wrong.push("no effect".to_owned());
    }
    let fences: HashSet<i64> = effects.iter().map(|effect| effect.fence).collect();
    if fences.len() != effects.len() {
        wrong.push(format!("{} effects under {} fences", effects.len(), fences.len()));
    }
    if let Some(held) = shortest(fences)
        && held < lease - lease / 10
        && !may_be_forgotten
    {
        wrong.push(format!("it was taken over after {held:?} of a lease of {lease:?}"));
    }
    if all(operation).any(|answer| !effects.iter().any(|effect| effect.digest == answer.digest)) {
        wrong.push("an answer is that of no effect".to_owned());
    }
    // A guard keeps who has lost its lease from committing after its follower.
    if sort != Sort::Plain && !effects.is_sorted_by(|one, next| one.fence < next.fence) {
        wrong.push("an effect was committed after one of a larger fence".to_owned());
    }
    // A checkpoint is committed with the effect: nobody does it again.
    if sort == Sort::Checkpointed && (effects.len() != 1 || !all_equal(operation)) {
        wrong.push(format!("{} effects, and its answers are equal: {}", effects.len(), all_equal(operation)));
    }
    if !may_be_forgotten && !equal_from_the_first_replay_on(operation) {
        wrong.push("its answers differ from the first replay on".to_owned());
    }
    wrong
}

/// The shortest time from one owner to the next. A fence is the server's clock at its claim, in microseconds, and handlers
/// that fail keep their lease to its end: so it is never less than a lease, unless somebody was not waited for. (A statement
/// reads the clock for the lease and for the fence, which are nearly the same instant.)
fn shortest(fences: HashSet<i64>) -> Option<Duration> {
    let mut fences: Vec<i64> = fences.into_iter().collect();
    fences.sort_unstable();
    fences.windows(2).map(|pair| Duration::from_micros(pair[0].abs_diff(pair[1]))).min()
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

/// All that is known of an operation, with the digests' first digits.
fn evidence(operation: &Operation, effects: &[&Effect], clock: Clock) -> Vec<String> {
    let short = |digest: &str| digest.get(..12).unwrap_or(digest).to_owned();
    let heard = |answer: &Answer, when: &str| {
        let how = if answer.is_replay { "replay" } else { "run" };
        let (digest, sent, heard) = (short(&answer.digest), clock.at(answer.sent), clock.at(answer.heard));
        format!("answer {} {digest} ({how}{when}), asked for at {sent}, heard at {heard}", answer.status)
    };
    let mut lines = vec![format!("begun at {}, {:?}", clock.at(operation.began), operation.order)];
    lines.extend(effects.iter().map(|effect| format!("effect {}, fence {}", short(&effect.digest), effect.fence)));
    lines.extend(operation.answers.iter().map(|answer| heard(answer, "")));
    lines.extend(operation.last.iter().map(|answer| heard(answer, ", in the end")));
    lines
}

#[cfg(test)]
mod tests;
