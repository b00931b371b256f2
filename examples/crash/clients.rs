//! Clients: one key for each operation, tried again until there is an answer, some of them at several services at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Failure;
use crate::arguments::Arguments;
use crate::ask::{Asker, Heard};
use crate::book::Book;
use crate::fleet::{Fleet, SERVICES, WITHOUT_MEMORY};
use crate::place::Place;
use crate::service::{Inspected, Order, Sort};

const CLIENTS: usize = 40;
/// How long everything may take once there are no faults any more.
const CALM: Duration = Duration::from_secs(45);
/// How long a client waits when everything is calm.
const LONG: Duration = Duration::from_secs(10);
/// How many operations take long when everything is calm, and how many milliseconds.
const LONG_ONES: usize = 16;
const LONG_WORK: u64 = 2500;
/// What nobody may be told who asks for the same again.
const KEY_REUSED: &str = "422 key-reused";

fn any_service() -> usize {
    rand::rng().random_range(0..SERVICES)
}

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
    ///
    /// # Errors
    /// If a client was lost: nobody would miss what it has not asked for.
    pub async fn finish(&self, mut working: JoinSet<()>) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let all = async {
            while let Some(ended) = working.join_next().await {
                ended.map_err(|error| format!("a client was lost: {error}"))?;
            }
            Ok::<(), Failure>(())
        };
        tokio::time::timeout(CALM, all).await.unwrap_or(Ok(()))
    }

    /// Operations that take longer than a lease, now that nothing is disturbed: for each somebody waits to follow.
    ///
    /// # Errors
    /// As [`Clients::finish`].
    pub async fn take_long(self: &Arc<Self>) -> Result<(), Failure> {
        if !self.arguments.place.is_lease() || self.arguments.wrong.is_some() {
            return Ok(());
        }
        let mut working = JoinSet::new();
        for _ in 0..LONG_ONES {
            let order = |number| Order { sort: Sort::Plain, before: LONG_WORK, ..self.order(number) };
            let (clients, number) = (Arc::clone(self), self.book.begin(order, true));
            working.spawn(async move {
                join_all((0..2).map(|_| clients.until_answered(number))).await;
            });
        }
        self.finish(working).await
    }

    async fn work(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.book.begin(|number| self.order(number), false);
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
        let order = self.book.order(number);
        loop {
            let patience = if rand::random_bool(0.07) { 5..60 } else { 300..2500 };
            let patience = Duration::from_millis(rand::rng().random_range(patience));
            Book::count(&self.book.attempts);
            match self.ask(any_service(), &order, patience).await {
                Heard::Answer(answer) => return self.book.answered(number, answer),
                Heard::Later => Book::count(&self.book.told_later),
                Heard::Nothing => Book::count(&self.book.unanswered),
                Heard::KeyReused => self.book.wrong(number, KEY_REUSED.to_owned()),
                Heard::Wrong(what) => self.book.wrong(number, what),
            }
            let pause = rand::rng().random_range(20..120);
            sleep(Duration::from_millis(pause)).await;
        }
    }

    async fn ask(&self, service: usize, order: &Order, patience: Duration) -> Heard {
        self.asker.ask(self.fleet.address(service), order, patience).await
    }

    /// Asks once more for each operation, now that everything is calm, and for another one under its key.
    pub async fn ask_again(self: &Arc<Self>) {
        let (until, all) = (Instant::now() + CALM, self.book.len());
        let mut asking = JoinSet::new();
        for first in 0..CLIENTS {
            let clients = Arc::clone(self);
            asking.spawn(async move {
                for number in (first..all).step_by(CLIENTS) {
                    if clients.ask_at_last(number, until).await {
                        clients.ask_for_another(number, until).await;
                    }
                }
            });
        }
        asking.join_all().await;
    }

    /// Each has its time; those that come late are asked at least once. Whether there was an answer.
    ///
    /// A lease may have been left without a record: its service answered, could not record, and was killed (H35). Then the
    /// operation runs once more, and is done.
    async fn ask_at_last(&self, number: usize, until: Instant) -> bool {
        let (order, mut may_run) = (self.book.order(number), self.arguments.place.is_lease());
        loop {
            match self.ask(WITHOUT_MEMORY, &order, LONG).await {
                Heard::Answer(answer) if may_run && !answer.is_replay => {
                    may_run = false;
                    self.book.answered(number, answer);
                }
                Heard::Answer(answer) => {
                    self.book.answered_at_last(number, answer);
                    return true;
                }
                Heard::KeyReused => break self.book.wrong(number, format!("{KEY_REUSED} in the end")),
                Heard::Wrong(what) => break self.book.wrong(number, format!("{what} in the end")),
                Heard::Later | Heard::Nothing if Instant::now() >= until => break,
                Heard::Later | Heard::Nothing => sleep(Duration::from_millis(50)).await,
            }
        }
        false
    }

    /// The key is done: whoever asks for something else under it is told so.
    async fn ask_for_another(&self, number: usize, until: Instant) {
        let another = self.book.order(number).altered();
        let told = loop {
            match self.ask(any_service(), &another, LONG).await {
                Heard::KeyReused => return,
                Heard::Answer(answer) => break answer.status.to_string(),
                Heard::Wrong(what) => break what,
                Heard::Later | Heard::Nothing if Instant::now() >= until => break "nothing in time".to_owned(),
                Heard::Later | Heard::Nothing => sleep(Duration::from_millis(50)).await,
            }
        };
        self.book.wrong(number, format!("{told} for another request under a key that is done"));
    }

    /// What the services find wrong with themselves.
    pub async fn inspect(&self) -> Inspected {
        let mut all = Inspected::default();
        for number in 0..SERVICES {
            let named = |what: String| format!("service {number}: {what}");
            match self.asker.inspect(self.fleet.address(number)).await {
                Ok(Inspected { unsettled, left }) => {
                    all.unsettled.extend(unsettled.into_iter().map(named));
                    all.left.extend(left.into_iter().map(named));
                }
                Err(error) => all.unsettled.push(named(format!("it cannot be inspected: {error}"))),
            }
        }
        all
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
