//! Owners that are too slow, that die, and that are not sure what their server has heard.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use idempotency::ErrorKind;
use idempotency::inbox::{DedupWindow, Entered, Passed};

use super::{Duration, Runs, first, id, is_busy, is_duplicate, millis, window};
use crate::support::brokers::Broker;
use crate::support::redis::{cutter, kind, prefix, url};

// M10: compare-and-set at the end. The slow owner neither marks nor frees nor prolongs what is somebody else's by now.
#[tokio::test]
async fn a_lapsed_owner_changes_nothing() {
    let _calm = Broker::Redis.calm().await;
    let window = window().processing(millis(300)).build().unwrap();
    let slow = first(&window, "a").await;
    assert!(is_busy(&window, "a").await);
    tokio::time::sleep(millis(400)).await;
    let next = first(&window, "a").await;
    assert_eq!(kind(slow.done().await), ErrorKind::LeaseLost);
    assert_eq!(kind(slow.renew().await), ErrorKind::LeaseLost);
    assert_eq!(kind(slow.free().await), ErrorKind::LeaseLost);
    assert!(is_busy(&window, "a").await, "the next owner lost its message");
    next.done().await.unwrap();
    assert!(is_duplicate(&window, "a").await);
}

// M10
#[tokio::test]
async fn a_lapsed_owner_marks_nothing_where_nobody_followed() {
    let _calm = Broker::Redis.calm().await;
    let window = window().processing(millis(100)).build().unwrap();
    let slow = first(&window, "a").await;
    tokio::time::sleep(millis(200)).await;
    assert_eq!(kind(slow.done().await), ErrorKind::LeaseLost);
    let next = first(&window, "a").await;
    next.done().await.unwrap();
    assert_eq!(kind(slow.free().await), ErrorKind::LeaseLost);
    assert!(is_duplicate(&window, "a").await, "a lapsed owner freed what was done");
}

// M10: not by its owner either.
#[tokio::test]
async fn what_is_done_is_neither_freed_nor_prolonged() {
    let _calm = Broker::Redis.calm().await;
    let window = window().build().unwrap();
    let guard = first(&window, "a").await;
    guard.done().await.unwrap();
    assert_eq!(kind(guard.renew().await), ErrorKind::LeaseLost);
    assert_eq!(kind(guard.free().await), ErrorKind::LeaseLost);
    assert!(is_duplicate(&window, "a").await);
}

// M10: a handler may last longer than the time for processing, as long as it lives.
#[tokio::test(flavor = "multi_thread")]
async fn the_right_is_renewed_while_the_handler_runs() {
    let _calm = Broker::Redis.calm().await;
    let (window, runs) = (window().processing(millis(500)).build().unwrap(), Runs::default());
    let (working, counted) = (window.clone(), runs.clone());
    let work = tokio::spawn(async move { working.process(&id("a"), || counted.run(millis(2000))).await });
    tokio::time::sleep(millis(100)).await;
    while !work.is_finished() {
        assert!(!matches!(window.enter(&id("a")).await.unwrap(), Entered::First(_)), "two at once");
        tokio::time::sleep(millis(50)).await;
    }
    assert!(matches!(work.await.unwrap(), Ok(Passed::First(1))));
    assert!(is_duplicate(&window, "a").await);
}

// S6: an answer that was cut off is asked for again, and the owner recognises itself.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_is_asked_for_again() {
    let _calm = Broker::Redis.calm().await;
    let (cutter, prefix) = (cutter().await, prefix());
    let cut_off = DedupWindow::single(cutter.url(), "mailer").prefix(&prefix).build().unwrap();
    let window = DedupWindow::single(url(), "mailer").prefix(&prefix).build().unwrap();
    first(&cut_off, "warm").await.free().await.unwrap();

    cutter.cut();
    let guard = first(&cut_off, "a").await;
    assert!(cutter.has_cut());
    cutter.cut();
    guard.renew().await.unwrap();
    cutter.cut();
    guard.done().await.unwrap();
    assert!(cutter.has_cut() && is_duplicate(&window, "a").await);

    let guard = first(&cut_off, "b").await;
    cutter.cut();
    guard.free().await.unwrap();
    assert!(cutter.has_cut());
    first(&window, "b").await.done().await.unwrap();
}

/// Says to a process of this very binary whose window it enters.
const OWNER: &str = "IDEMPOTENCY_TEST_WINDOW_OWNER";

/// The body of that process: it enters the window, says so, and works for ever. In any other process nothing.
#[tokio::test]
async fn an_owner_in_a_process_of_its_own() {
    let Ok(prefix) = std::env::var(OWNER) else { return };
    let window = DedupWindow::single(url(), "mailer").prefix(prefix).processing(millis(1500)).build().unwrap();
    let work = async || -> Result<(), ()> {
        println!("entered");
        std::io::stdout().flush().unwrap();
        std::future::pending().await
    };
    let _ = window.process(&id("a"), work).await;
}

// M10: a killed owner costs the time for processing, and no more.
#[tokio::test(flavor = "multi_thread")]
async fn the_message_of_a_killed_owner_is_free_when_its_time_is_over() {
    let _calm = Broker::Redis.calm().await;
    let prefix = prefix();
    let window = DedupWindow::single(url(), "mailer").prefix(&prefix).build().unwrap();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "consumers::window::owners::an_owner_in_a_process_of_its_own"])
        .env(OWNER, &prefix)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("entered")), "the owner did not come so far");
    // Longer than its time: it is renewed.
    tokio::time::sleep(millis(2000)).await;
    assert!(is_busy(&window, "a").await);
    owner.kill().unwrap();
    owner.wait().unwrap();
    let killed = Instant::now();
    assert!(is_busy(&window, "a").await, "it was free before its time was over");
    let guard = loop {
        match window.enter(&id("a")).await.unwrap() {
            Entered::First(guard) => break guard,
            Entered::Busy { retry_after } => tokio::time::sleep(retry_after.min(millis(100))).await,
            Entered::Duplicate => panic!("nobody has done it"),
        }
        assert!(killed.elapsed() < Duration::from_secs(4), "still busy");
    };
    guard.done().await.unwrap();
}
