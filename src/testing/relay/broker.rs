//! A broker in memory: a log, and whatever a test wants it to answer.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::outbox::PendingEvent;
use crate::outbox::publish::{Answer, Publisher, Publishing};

type Way = Pin<Box<dyn Future<Output = Option<Answer>> + Send>>;
type Judge = Arc<dyn Fn(Arc<PendingEvent>) -> Way + Send + Sync>;

/// One copy in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The event's id.
    pub id: Uuid,
    /// Its key.
    pub key: Option<String>,
    /// Its payload, as text.
    pub text: String,
}

/// A publisher that keeps what it acks. Clones share the log.
#[derive(Clone)]
pub struct Broker {
    log: Arc<Mutex<Vec<Copy>>>,
    judge: Judge,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker").finish_non_exhaustive()
    }
}

impl Default for Broker {
    fn default() -> Self {
        Self::new()
    }
}

impl Broker {
    /// One that acks everything at once.
    #[must_use]
    pub fn new() -> Self {
        Self { log: Arc::default(), judge: Arc::new(|_| Box::pin(async { None })) }
    }

    /// The same log behind a judge, which may take its time. What it answers is the answer, and the event is not kept; `None`:
    /// it is kept and acked.
    #[must_use]
    pub fn judged<F>(&self, judge: impl Fn(Arc<PendingEvent>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<Answer>> + Send + 'static,
    {
        Self { log: Arc::clone(&self.log), judge: Arc::new(move |event| Box::pin(judge(event))) }
    }

    fn log(&self) -> MutexGuard<'_, Vec<Copy>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything, from its start.
    #[must_use]
    pub fn copies(&self) -> Vec<Copy> {
        self.log().clone()
    }

    /// How many copies are not the first ones.
    #[must_use]
    pub fn duplicates(&self) -> usize {
        let copies = self.log();
        copies.len() - copies.iter().map(|copy| copy.id).collect::<HashSet<_>>().len()
    }

    /// How many events it has.
    #[must_use]
    pub fn events(&self) -> usize {
        self.log().iter().map(|copy| copy.id).collect::<HashSet<_>>().len()
    }

    /// The texts of each key in the order of their first copies.
    #[must_use]
    pub fn first_copies(&self) -> BTreeMap<Option<String>, Vec<String>> {
        let mut seen = HashSet::new();
        let mut first: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
        for copy in self.log().iter().filter(|copy| seen.insert(copy.id)) {
            first.entry(copy.key.clone()).or_default().push(copy.text.clone());
        }
        first
    }

    /// Keeps a copy.
    pub fn keep(&self, event: &PendingEvent) {
        let text = String::from_utf8_lossy(event.event().payload_ref()).into_owned();
        self.log().push(Copy { id: event.id(), key: event.event().key_ref().map(str::to_owned), text });
    }
}

impl Publisher for Broker {
    fn publish(&self, event: Arc<PendingEvent>) -> Publishing<'_> {
        let way = (self.judge)(Arc::clone(&event));
        Box::pin(async move {
            match way.await {
                Some(answer) => answer,
                None => {
                    self.keep(&event);
                    Answer::ACKED
                }
            }
        })
    }
}
