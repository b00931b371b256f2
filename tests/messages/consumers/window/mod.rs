//! The dedup window on Redis (M10).

mod outages;
mod owners;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idempotency::inbox::{DedupGuard, DedupWindow, DedupWindowBuilder, Entered, MessageId, Passed, WindowError};

use crate::support::brokers::Broker;
use crate::support::redis::{cluster_urls, prefix, url};

/// What the tests fail with.
#[derive(Debug, PartialEq)]
struct Refused;

/// Counts runs, and how many ran at once.
#[derive(Clone, Default)]
struct Runs {
    all: Arc<AtomicUsize>,
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Runs {
    async fn run(&self, time: Duration) -> Result<usize, Refused> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(time).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        Ok(self.all.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn count(&self) -> usize {
        self.all.load(Ordering::SeqCst)
    }
}

fn window() -> DedupWindowBuilder {
    DedupWindow::single(url(), "mailer").prefix(prefix())
}

fn id(id: &str) -> MessageId {
    MessageId::new("orders", id).unwrap()
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The guard of a message that must be the first.
async fn first(window: &DedupWindow, message: &str) -> DedupGuard {
    match window.enter(&id(message)).await.unwrap() {
        Entered::First(guard) => guard,
        other => panic!("{message}: {other:?}"),
    }
}

async fn is_busy(window: &DedupWindow, message: &str) -> bool {
    matches!(window.enter(&id(message)).await.unwrap(), Entered::Busy { .. })
}

async fn is_duplicate(window: &DedupWindow, message: &str) -> bool {
    matches!(window.enter(&id(message)).await.unwrap(), Entered::Duplicate)
}

// M10
#[tokio::test]
async fn a_message_is_processed_once_within_the_window() {
    let _calm = Broker::Redis.calm().await;
    let (window, runs) = (window().build().unwrap(), Runs::default());
    window.check().await.unwrap();
    for n in 0..3 {
        let passed = window.process(&id("a"), || runs.run(Duration::ZERO)).await.unwrap();
        assert!(if n == 0 { matches!(passed, Passed::First(1)) } else { matches!(passed, Passed::Duplicate) });
    }
    assert!(matches!(window.process(&id("b"), || runs.run(Duration::ZERO)).await, Ok(Passed::First(2))));
}

// M2: bytes, of all parts.
#[tokio::test]
async fn identities_are_compared_as_bytes() {
    let _calm = Broker::Redis.calm().await;
    let window = window().build().unwrap();
    for spelling in ["a", "A", "a ", "\u{e9}", "e\u{301}", &"x".repeat(300), &"x".repeat(301)] {
        first(&window, spelling).await.done().await.unwrap();
    }
    let shifted = MessageId::new("order", "sa").unwrap();
    assert!(matches!(window.enter(&shifted).await.unwrap(), Entered::First(_)));
}

// Case B25
#[tokio::test]
async fn two_consumers_of_one_message_both_process_it() {
    let _calm = Broker::Redis.calm().await;
    let prefix = prefix();
    let of = |consumer: &str| DedupWindow::single(url(), consumer).prefix(&prefix).build().unwrap();
    first(&of("mailer"), "a").await.done().await.unwrap();
    first(&of("ledger"), "a").await.done().await.unwrap();
    assert!(is_duplicate(&of("mailer"), "a").await);
}

// Case B23
#[tokio::test]
async fn a_failed_handler_frees_its_message() {
    let _calm = Broker::Redis.calm().await;
    let (window, runs) = (window().build().unwrap(), Runs::default());
    let failed = window.process(&id("a"), async || Err::<(), _>(Refused)).await;
    assert!(matches!(failed, Err(WindowError::Handler(Refused))));
    let panicking = window.clone();
    let panicked = tokio::spawn(async move {
        panicking.process(&id("a"), async || -> Result<(), Refused> { panic!("on purpose") }).await.map(drop)
    });
    assert!(panicked.await.unwrap_err().is_panic());
    assert!(matches!(window.process(&id("a"), || runs.run(Duration::ZERO)).await, Ok(Passed::First(1))));
    assert!(is_duplicate(&window, "a").await);
}

// M10: nobody waits, and nobody is a duplicate before the first is done.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_at_once_one_processes_and_the_others_come_again() {
    let _calm = Broker::Redis.calm().await;
    let (window, runs) = (window().build().unwrap(), Runs::default());
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let (window, runs) = (window.clone(), runs.clone());
            tokio::spawn(async move {
                loop {
                    match window.process(&id("a"), || runs.run(millis(150))).await.unwrap() {
                        Passed::Busy { retry_after } => {
                            assert!((millis(100)..=millis(1000)).contains(&retry_after), "{retry_after:?}");
                            tokio::time::sleep(retry_after).await;
                        }
                        passed => return matches!(passed, Passed::First(_)),
                    }
                }
            })
        })
        .collect();
    let mut firsts = 0;
    for task in tasks {
        firsts += usize::from(task.await.unwrap());
    }
    assert_eq!((firsts, runs.count(), runs.most.load(Ordering::SeqCst)), (1, 1, 1));
}

// M10: what the window does not cover.
#[tokio::test]
async fn a_message_that_comes_after_the_window_is_processed_again() {
    let _calm = Broker::Redis.calm().await;
    let window = window().processing(millis(100)).window(millis(400)).build().unwrap();
    first(&window, "a").await.done().await.unwrap();
    assert!(is_duplicate(&window, "a").await);
    tokio::time::sleep(millis(500)).await;
    first(&window, "a").await.done().await.unwrap();
}

#[tokio::test]
async fn a_window_may_be_on_a_cluster() {
    let _calm = Broker::Redis.calm().await;
    let window = DedupWindow::cluster(cluster_urls(), "mailer").prefix(prefix()).build().unwrap();
    window.check().await.unwrap();
    for message in ["a", "b", "c", "d", "e", "f"] {
        let guard = first(&window, message).await;
        assert!(is_busy(&window, message).await);
        guard.renew().await.unwrap();
        guard.done().await.unwrap();
        assert!(is_duplicate(&window, message).await);
    }
}
