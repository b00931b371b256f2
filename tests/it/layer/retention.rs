//! How long an answer is kept (H44, H24).

use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use idempotency::testing::ManualClock;
use idempotency::{IdempotencyLayer, MemoryStore, Retention, Scope};
use tokio::task::JoinSet;

use crate::support::http::{Gate, Runs, post, send};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const MOMENT: Duration = Duration::from_millis(1);

fn clocked() -> (ManualClock, IdempotencyLayer<MemoryStore>) {
    let clock = ManualClock::default();
    (clock.clone(), IdempotencyLayer::new(MemoryStore::new().clock(clock), Scope::shared()))
}

// H44, cases L05 and O15: 24 hours, and replays do not refresh it.
#[tokio::test]
async fn an_answer_is_kept_for_a_day_and_no_replay_prolongs_it() {
    let (clock, layer) = clocked();
    let app = Runs::default().app().layer(layer);
    assert_eq!(send(&app, post("k")).await.text(), "run 1");
    clock.advance(DAY / 2);
    assert!(send(&app, post("k")).await.is_replay());
    clock.advance(DAY / 2 - MOMENT);
    assert!(send(&app, post("k")).await.is_replay());
    clock.advance(MOMENT);
    assert_eq!(send(&app, post("k")).await.text(), "run 2");
}

// H44: from acceptance, and 60 s from the answer at least.
#[tokio::test]
async fn the_time_runs_from_acceptance() {
    for (retention, handler_takes, kept_after) in [(20 * HOUR, HOUR, 19 * HOUR), (HOUR, HOUR, Duration::from_secs(60))]
    {
        let (clock, layer) = clocked();
        let (runs, gate) = (Runs::default(), Gate::new());
        let app = gate.app(&runs).layer(layer.retention(retention));
        let first = tokio::spawn({
            let app = app.clone();
            async move { send(&app, post("k")).await }
        });
        gate.entered().await;
        clock.advance(handler_takes);
        gate.open(2);
        assert_eq!(first.await.unwrap().text(), "run 1");
        clock.advance(kept_after - MOMENT);
        assert!(send(&app, post("k")).await.is_replay());
        clock.advance(MOMENT);
        assert_eq!(send(&app, post("k")).await.text(), "run 2");
    }
}

// H3, case O05: the layer's, replaced by the request's, replaced by the answer's.
#[tokio::test]
async fn the_request_and_the_answer_can_say_how_long() {
    for (layers, requests, answers, expected) in
        [(2, None, None, 2), (2, Some(5), None, 5), (2, Some(5), Some(3), 3), (2, None, Some(9), 9)]
    {
        let (clock, layer) = clocked();
        let runs = Runs::default();
        let handler = runs.clone();
        let app = Router::new().fallback(async move || {
            let mut response = format!("run {}", handler.next()).into_response();
            response.extensions_mut().extend(answers.map(|hours| Retention(hours * HOUR)).into_iter().fold(
                http::Extensions::new(),
                |mut extensions, retention| {
                    extensions.insert(retention);
                    extensions
                },
            ));
            response
        });
        let app = app.layer(layer.retention(layers * HOUR));
        let send_one = async || {
            let mut request = post("k");
            if let Some(hours) = requests {
                request.extensions_mut().insert(Retention(hours * HOUR));
            }
            send(&app, request).await
        };
        assert_eq!(send_one().await.text(), "run 1");
        clock.advance(expected * HOUR - MOMENT);
        assert!(send_one().await.is_replay(), "{layers} {requests:?} {answers:?}");
        clock.advance(MOMENT);
        assert_eq!(send_one().await.text(), "run 2", "{layers} {requests:?} {answers:?}");
    }
}

// H3: as a response part.
#[tokio::test]
async fn retention_is_a_response_part() {
    let (clock, layer) = clocked();
    let app = Router::new().fallback(async || (Retention(HOUR), "answer")).layer(layer);
    send(&app, post("k")).await;
    clock.advance(HOUR);
    assert!(!send(&app, post("k")).await.is_replay());
}

// H44: "for ever" is a time, and so is none at all.
#[tokio::test]
async fn the_longest_and_the_shortest_retention_work() {
    let (clock, layer) = clocked();
    clock.advance(HOUR);
    let app = Runs::default().app().layer(layer.retention(Duration::MAX));
    for replayed in [false, true, true] {
        assert_eq!(send(&app, post("k")).await.is_replay(), replayed);
        clock.advance(1000 * DAY);
    }
    let (clock, layer) = clocked();
    let app = Runs::default().app().layer(layer.retention(Duration::ZERO));
    for (wait, text) in [(59, "run 1"), (0, "run 1"), (1, "run 1"), (0, "run 2")] {
        assert_eq!(send(&app, post("k")).await.text(), text);
        clock.advance(Duration::from_secs(wait));
    }
}

// H24, case L09: expired is absent for everyone at once, and one of them wins.
#[tokio::test]
async fn an_expired_answer_is_absent_for_all_and_one_of_them_runs() {
    let (clock, layer) = clocked();
    let (runs, gate) = (Runs::default(), Gate::new());
    let app = gate.app(&runs).layer(layer);
    gate.open(1);
    assert_eq!(send(&app, post("k")).await.text(), "run 1");
    gate.entered().await;
    clock.advance(DAY);
    let mut all = JoinSet::new();
    for _ in 0..20 {
        let app = app.clone();
        all.spawn(async move { send(&app, post("k")).await });
    }
    gate.entered().await;
    for _ in 0..19 {
        assert_eq!(all.join_next().await.unwrap().unwrap().said(), "409 in-progress");
    }
    gate.open(1);
    assert_eq!(all.join_next().await.unwrap().unwrap().text(), "run 2");
    assert_eq!(runs.count(), 2);
}
