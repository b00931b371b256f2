//! What was asked, and what was heard of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::ask::Answer;
use crate::service::Sort;

/// One operation under one key.
#[derive(Clone, Debug)]
pub struct Operation {
    pub sort: Sort,
    pub began: Instant,
    /// All final answers, in the order in which they were heard.
    pub answers: Vec<Answer>,
    /// The answer that is there when everything is over.
    pub last: Option<Answer>,
}

#[derive(Default)]
pub struct Book {
    /// By its number.
    operations: Mutex<Vec<Operation>>,
    /// What nobody may be told, and how often it was.
    wrong: Mutex<BTreeMap<String, u64>>,
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
    pub fn begin(&self, sort: impl FnOnce(usize) -> Sort) -> usize {
        let mut operations = locked(&self.operations);
        let number = operations.len();
        operations.push(Operation { sort: sort(number), began: Instant::now(), answers: Vec::new(), last: None });
        number
    }

    pub fn answered(&self, number: usize, answer: Answer) {
        locked(&self.operations)[number].answers.push(answer);
    }

    pub fn answered_at_last(&self, number: usize, answer: Answer) {
        locked(&self.operations)[number].last = Some(answer);
    }

    pub fn wrong(&self, what: String) {
        *locked(&self.wrong).entry(what).or_default() += 1;
    }

    pub fn len(&self) -> usize {
        locked(&self.operations).len()
    }

    pub fn operations(&self) -> Vec<Operation> {
        locked(&self.operations).clone()
    }

    pub fn wrongs(&self) -> Vec<String> {
        locked(&self.wrong).iter().map(|(what, times)| format!("clients were told {what}, {times} times")).collect()
    }

    pub fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
