//! What was asked, and what was heard of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::ask::Answer;
use crate::service::Order;

/// How many operations are named that were told what nobody may be told.
const NAMED: usize = 8;

/// One operation under one key.
#[derive(Clone, Debug)]
pub struct Operation {
    pub order: Order,
    pub began: Instant,
    /// Whether it takes longer than a lease, while nothing is disturbed.
    pub is_long: bool,
    /// All final answers, in the order in which they were heard.
    pub answers: Vec<Answer>,
    /// The answer that is there when everything is over.
    pub last: Option<Answer>,
}

#[derive(Default)]
pub struct Book {
    /// By its number.
    operations: Mutex<Vec<Operation>>,
    /// What nobody may be told, how often it was, and to the first of whom.
    wrong: Mutex<BTreeMap<String, (u64, BTreeSet<usize>)>>,
    pub attempts: AtomicU64,
    /// Attempts that were told to come again.
    pub told_later: AtomicU64,
    /// Attempts without an answer.
    pub unanswered: AtomicU64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Book {
    /// The number of a new operation.
    pub fn begin(&self, order: impl FnOnce(usize) -> Order, is_long: bool) -> usize {
        let mut operations = locked(&self.operations);
        let (number, began) = (operations.len(), Instant::now());
        operations.push(Operation { order: order(number), began, is_long, answers: Vec::new(), last: None });
        number
    }

    pub fn order(&self, number: usize) -> Order {
        locked(&self.operations)[number].order.clone()
    }

    pub fn answered(&self, number: usize, answer: Answer) {
        locked(&self.operations)[number].answers.push(answer);
    }

    pub fn answered_at_last(&self, number: usize, answer: Answer) {
        locked(&self.operations)[number].last = Some(answer);
    }

    pub fn wrong(&self, number: usize, what: String) {
        let mut wrong = locked(&self.wrong);
        let (times, whom) = wrong.entry(what).or_default();
        *times += 1;
        if whom.len() < NAMED {
            whom.insert(number);
        }
    }

    pub fn len(&self) -> usize {
        locked(&self.operations).len()
    }

    pub fn operations(&self) -> Vec<Operation> {
        locked(&self.operations).clone()
    }

    pub fn wrongs(&self) -> Vec<String> {
        let say = |(what, (times, whom)): (&String, &(u64, BTreeSet<usize>))| {
            let whom: Vec<String> = whom.iter().map(ToString::to_string).collect();
            format!("clients were told {what}, {times} times: operation {}", whom.join(", "))
        };
        locked(&self.wrong).iter().map(say).collect()
    }

    pub fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
