//! Clients: one key for each operation, tried again until there is an answer, some of them at several services at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::arguments::Arguments;
use crate::ask::{Asker, Heard};
use crate::book::Book;
use crate::fleet::{Fleet, SERVICES};
use crate::place::Place;
use crate::service::{Order, Sort};

const CLIENTS: usize = 40;
/// How long everything may take once there are no faults any more.
const CALM: Duration = Duration::from_secs(45);

pub struct Clients {
    asker: Asker,
    fleet: Arc<Fleet>,
    book: Arc<Book>,
    arguments: Arguments,
    stop: AtomicBool,
}

impl Clients {
    pub fn new(arguments: &Arguments, fleet: Arc<Fleet>, book: Arc<Book>) -> Arc<Self> {
        Arc::new(Self { asker: Asker::new(), fleet, book, arguments: arguments.clone(), stop: AtomicBool::new(false) })
    }

    pub fn start(self: &Arc<Self>) -> JoinSet<()> {
        let mut working = JoinSet::new();
        for _ in 0..CLIENTS {
            let clients = Arc::clone(self);
            working.spawn(async move { clients.work().await });
        }
        working
    }

    /// No new operations: those that have begun are tried until they are answered, or it is too late.
    pub async fn finish(&self, mut working: JoinSet<()>) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = tokio::time::timeout(CALM, async { while working.join_next().await.is_some() {} }).await;
    }

    async fn work(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.book.begin(|number| self.order(number).sort);
            let mut rng = self.rng(number);
            // A client that hedges, or that has lost its patience: several requests with one key.
            let senders = *[1, 1, 1, 2, 2, 3].get(rng.random_range(0..6)).unwrap_or(&1);
            join_all((0..senders).map(|_| self.until_answered(number))).await;
            if rng.random_bool(0.5) {
                self.until_answered(number).await;
            }
        }
    }

    async fn until_answered(&self, number: usize) {
        loop {
            let patience = if rand::random_bool(0.07) { 5..60 } else { 300..2500 };
            let patience = Duration::from_millis(rand::rng().random_range(patience));
            Book::count(&self.book.attempts);
            match self.ask(number, patience).await {
                Heard::Answer(answer) => return self.book.answered(number, answer),
                Heard::Later => Book::count(&self.book.told_later),
                Heard::Nothing => Book::count(&self.book.unanswered),
                Heard::Wrong(what) => self.book.wrong(what),
            }
            let pause = rand::rng().random_range(20..120);
            sleep(Duration::from_millis(pause)).await;
        }
    }

    async fn ask(&self, number: usize, patience: Duration) -> Heard {
        let address = self.fleet.address(rand::rng().random_range(0..SERVICES));
        let body = serde_json::to_vec(&self.order(number)).map(Bytes::from).unwrap_or_default();
        self.asker.ask(address, &format!("operation-{number}"), body, patience).await
    }

    /// Asks once more for each operation, now that everything is calm.
    pub async fn ask_again(self: &Arc<Self>) {
        let (until, all) = (Instant::now() + CALM, self.book.len());
        let mut asking = JoinSet::new();
        for first in 0..CLIENTS {
            let clients = Arc::clone(self);
            asking.spawn(async move {
                for number in (first..all).step_by(CLIENTS) {
                    clients.ask_at_last(number, until).await;
                }
            });
        }
        asking.join_all().await;
    }

    /// Each has its time; those that come late are asked at least once.
    ///
    /// A lease may have been left without a record: its service answered, could not record, and was killed (H35). Then the
    /// operation runs once more, and is done.
    async fn ask_at_last(&self, number: usize, until: Instant) {
        let mut may_run = self.arguments.place.is_lease();
        loop {
            match self.ask(number, Duration::from_secs(10)).await {
                Heard::Answer(answer) if may_run && !answer.is_replay => {
                    may_run = false;
                    self.book.answered(number, answer);
                }
                Heard::Answer(answer) => return self.book.answered_at_last(number, answer),
                Heard::Wrong(what) => return self.book.wrong(format!("{what} in the end")),
                _ if Instant::now() >= until => return,
                _ => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// What the services find wrong with themselves.
    pub async fn inspect(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for number in 0..SERVICES {
            match self.asker.inspect(self.fleet.address(number)).await {
                Ok(found) => wrong.extend(found.into_iter().map(|what| format!("service {number}: {what}"))),
                Err(error) => wrong.push(format!("service {number} cannot be inspected: {error}")),
            }
        }
        wrong
    }

    fn rng(&self, number: usize) -> StdRng {
        StdRng::seed_from_u64(self.arguments.seed ^ (number as u64).rotate_left(32))
    }

    /// What this operation asks for: always the same.
    fn order(&self, number: usize) -> Order {
        let mut rng = self.rng(number);
        let place = self.arguments.place;
        let sorts: &[Sort] = match place {
            _ if self.arguments.wrong.is_some() => &[Sort::Plain],
            Place::Redis => &[Sort::Plain],
            Place::PostgresLease => &[Sort::Plain, Sort::Guarded, Sort::Checkpointed],
            Place::Postgres | Place::MariaDb | Place::Sqlite => {
                &[Sort::Plain, Sort::Plain, Sort::Plain, Sort::Declined, Sort::Flaky]
            }
        };
        let longest = match place {
            // One writer at a time: work is done in its turn.
            Place::Sqlite => 4,
            // Many are to be at work when their service is stopped.
            _ if place.is_lease() || self.arguments.wrong.is_some() => 150,
            _ => 40,
        };
        let slow = if rng.random_bool(0.04) { 10 } else { 1 };
        Order {
            operation: i64::try_from(number).unwrap_or(i64::MAX),
            sort: sorts[rng.random_range(0..sorts.len())],
            before: rng.random_range(0..longest) * slow,
            after: rng.random_range(0..longest) * slow,
            filler: if rng.random_bool(0.02) { 100_000 } else { rng.random_range(0..500) },
        }
    }
}
