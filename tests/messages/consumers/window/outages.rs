//! A server that is away, and one that forgets.

use idempotency::ErrorKind;
use idempotency::inbox::{DedupWindowBuilder, Entered, Passed, WindowError};

use super::{Duration, Refused, Runs, first, id, is_duplicate, millis, window};
use crate::support::brokers::Broker;
use crate::support::redis::{Admin, disturb, kind, url};

fn quick() -> DedupWindowBuilder {
    window().connect_timeout(millis(300)).response_timeout(millis(300))
}

// M10: closed by default.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_processed_while_redis_is_down() {
    let _alone = Broker::Redis.alone().await;
    let (window, runs) = (quick().build().unwrap(), Runs::default());
    first(&window, "warm").await.done().await.unwrap();
    for what in ["kill", "pause"] {
        let down = disturb(what, "single");
        let refused = window.process(&id(what), || runs.run(Duration::ZERO)).await;
        assert!(matches!(refused, Err(WindowError::Window(error)) if error.kind() == ErrorKind::Unavailable), "{what}");
        assert_eq!(kind(window.check().await), ErrorKind::Unavailable);
        assert_eq!(runs.count(), 0, "the handler ran without a window");
        down.end();
    }
    assert!(matches!(window.process(&id("later"), || runs.run(Duration::ZERO)).await, Ok(Passed::First(1))));
}

// M10: open only where the host says so.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_window_processes_without_protection_while_redis_is_down() {
    let _alone = Broker::Redis.alone().await;
    let (window, runs) = (quick().run_unprotected_without_redis().build().unwrap(), Runs::default());
    let down = disturb("kill", "single");
    for n in 1..=2 {
        let passed = window.process(&id("a"), || runs.run(Duration::ZERO)).await;
        assert!(matches!(passed, Ok(Passed::First(count)) if count == n), "{passed:?}");
    }
    let Ok(Entered::First(guard)) = window.enter(&id("a")).await else { panic!("closed") };
    assert!(!guard.is_protected());
    guard.renew().await.unwrap();
    guard.done().await.unwrap();
    down.end();
    assert!(matches!(window.process(&id("a"), || runs.run(Duration::ZERO)).await, Ok(Passed::First(3))));
    assert!(is_duplicate(&window, "a").await);
    // Only what cannot be reached is open: a handler's error is one.
    let failed = window.process(&id("b"), async || Err::<(), _>(Refused)).await;
    assert!(matches!(failed, Err(WindowError::Handler(Refused))));
}

// M10: the effect is there and the mark is not. The host is told, and can acknowledge.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_cannot_be_marked_is_told_as_such() {
    let _alone = Broker::Redis.alone().await;
    let window = quick().build().unwrap();
    let mut down = None;
    let passed = window
        .process(&id("a"), async || {
            down = Some(disturb("kill", "single"));
            Ok::<_, Refused>(7)
        })
        .await;
    drop(down);
    let Ok(Passed::Unmarked { output: 7, error }) = passed else { panic!("{passed:?}") };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

// M10: an outage that is over soon costs nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_is_tried_again_for_a_while() {
    let _alone = Broker::Redis.alone().await;
    let window = quick().build().unwrap();
    let (sent, mut paused) = tokio::sync::oneshot::channel();
    let ending = tokio::task::spawn_blocking(move || {
        sent.send(disturb("pause", "single")).ok().unwrap();
    });
    let passed = window
        .process(&id("a"), async || {
            ending.await.unwrap();
            let down = paused.try_recv().unwrap();
            tokio::task::spawn_blocking(move || {
                std::thread::sleep(millis(700));
                down.end();
            });
            Ok::<_, Refused>(7)
        })
        .await;
    assert!(matches!(passed, Ok(Passed::First(7))), "{passed:?}");
    assert!(is_duplicate(&window, "a").await);
}

// Case B59
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_what_it_must_know_is_refused_at_the_start() {
    let _alone = Broker::Redis.alone().await;
    let mut admin = Admin::single(&url()).await;
    for policy in ["allkeys-lru", "allkeys-random", "volatile-ttl"] {
        admin.command::<()>(&["CONFIG", "SET", "maxmemory", "512mb"]).await;
        admin.command::<()>(&["CONFIG", "SET", "maxmemory-policy", policy]).await;
        let checked = window().build().unwrap().check().await;
        admin.command::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
        admin.command::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await;
        assert_eq!(kind(checked), ErrorKind::Setup, "{policy}");
    }
    window().build().unwrap().check().await.unwrap();
}
