//! Answers that are too long, too slow, streams or secrets (H40, H41).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, Method, Response, StatusCode};
use http_body_util::BodyExt;
use idempotency::{IdempotencyLayer, MemoryStore, Outcome, Scope};
use tower::ServiceExt;

use crate::support::bodies::{Script, Step};
use crate::support::fake::Fake;
use crate::support::http::{Runs, layer, post, post_body, request, send};

type Make = Arc<dyn Fn() -> Response<Body> + Send + Sync>;

fn made(runs: &Runs, make: impl Fn() -> Response<Body> + Send + Sync + 'static) -> Router {
    let (runs, make): (_, Make) = (runs.clone(), Arc::new(make));
    Router::new().fallback(async move || {
        runs.next();
        make()
    })
}

fn of(body: Script) -> Response<Body> {
    Response::builder().status(201).body(Body::new(body)).unwrap()
}

/// The first caller gets `text`; a retry is told 410, with the first one's status, and nothing runs again.
async fn not_kept(app: Router, runs: &Runs, text: &str, status: u16) {
    let first = send(&app, post("k")).await;
    assert_eq!((first.status.as_u16(), first.text(), &first.broken), (status, text, &None));
    for _ in 0..2 {
        let retry = send(&app, post("k")).await;
        assert_eq!(retry.said(), "410 answer-not-kept");
        assert_eq!(retry.json()["original-status"], status);
        assert_eq!(retry.problem.unwrap().kept_status().unwrap(), status);
        assert!(!retry.headers.contains_key("retry-after") && !retry.is_replay());
    }
    assert_eq!(send(&app, post_body("k", "[]")).await.said(), "422 key-reused");
    assert_eq!(runs.count(), 1);
}

// H40, cases R08 and R09
#[tokio::test]
async fn an_answer_over_the_limit_is_sent_whole_and_not_kept() {
    for known in [true, false] {
        let runs = Runs::default();
        let app = made(&runs, move || {
            let body = Script::new([Step::Data("123"), Step::Yield, Step::Data("45"), Step::Yield, Step::Data("678")]);
            of(if known { body.hint(8) } else { body })
        });
        not_kept(app.layer(layer().answer_limit(4)), &runs, "12345678", 201).await;
    }
}

// H40: the limit itself still fits.
#[tokio::test]
async fn an_answer_of_exactly_the_limit_is_kept() {
    for known in [true, false] {
        let runs = Runs::default();
        let app = made(&runs, move || {
            let body = Script::chunks(["12", "34"]);
            of(if known { body.hint(4) } else { body })
        });
        let app = app.layer(layer().answer_limit(4));
        assert_eq!(send(&app, post("k")).await.text(), "1234");
        let replay = send(&app, post("k")).await;
        assert!(replay.is_replay() && replay.text() == "1234");
    }
}

// H40, case R08: eight mebibytes by default.
#[tokio::test]
async fn the_default_limit_is_eight_mebibytes() {
    const LIMIT: usize = 8 * 1024 * 1024;
    for (length, kept) in [(LIMIT, true), (LIMIT + 1, false)] {
        let runs = Runs::default();
        let app = made(&runs, move || Response::new(Body::from(vec![b'x'; length]))).layer(layer());
        assert_eq!(send(&app, post("k")).await.body.len(), length);
        assert_eq!(send(&app, post("k")).await.is_replay(), kept);
        assert_eq!(runs.count(), 1);
    }
}

// H40, case R07: streams are committed at once and sent as they come.
#[tokio::test]
async fn a_stream_is_committed_before_its_first_byte_and_not_kept() {
    for content_type in [
        "text/event-stream",
        "Text/Event-Stream; charset=utf-8",
        "application/x-ndjson",
        "application/ndjson",
        "multipart/x-mixed-replace;boundary=b",
    ] {
        let (runs, store) = (Runs::default(), Fake::new());
        let app = made(&runs, move || {
            let body = Script::new([Step::Data("data: 1"), Step::Hang]);
            Response::builder().header("content-type", content_type).body(Body::new(body)).unwrap()
        });
        let app = app.layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
        let mut first = app.clone().oneshot(post("k")).await.unwrap().into_body();
        assert_eq!(store.settlements(), ["commit"], "{content_type}");
        // The first caller is in the middle of its stream.
        assert_eq!(first.frame().await.unwrap().unwrap().into_data().unwrap(), "data: 1");
        assert_eq!(send(&app, post("k")).await.said(), "410 answer-not-kept", "{content_type}");
        assert_eq!(runs.count(), 1);
    }
}

// H40: by the handler's own word; a refusal may stream as well.
#[tokio::test]
async fn a_handler_can_declare_its_answer_a_stream() {
    for (outcome, settlement) in [(Outcome::commit(), "commit"), (Outcome::refuse(), "refuse")] {
        let (runs, store) = (Runs::default(), Fake::new());
        let app = made(&runs, move || {
            let mut response = of(Script::new([Step::Data("1"), Step::Yield, Step::Data("2")]));
            response.extensions_mut().insert(outcome.streaming());
            response
        });
        not_kept(app.layer(IdempotencyLayer::new(store.clone(), Scope::shared())), &runs, "12", 201).await;
        assert_eq!(store.settlements(), [settlement]);
    }
}

// H41, case K16: secrets that are shown once.
#[tokio::test]
async fn a_handler_can_keep_its_body_out_of_the_store() {
    let runs = Runs::default();
    let app = made(&runs, || {
        let mut response = of(Script::chunks(["s3cret"]));
        response.extensions_mut().insert(Outcome::commit().without_body());
        response
    });
    not_kept(app.layer(layer()), &runs, "s3cret", 201).await;
}

// H40: 101 and CONNECT.
#[tokio::test]
async fn an_upgrade_is_not_kept() {
    let runs = Runs::default();
    let upgrade = || Response::builder().status(101).header("upgrade", "x").body(Body::empty()).unwrap();
    not_kept(made(&runs, upgrade).layer(layer()), &runs, "", 101).await;
    let runs = Runs::default();
    let app = made(&runs, || Response::new(Body::empty())).layer(layer().methods([Method::CONNECT]));
    let connect = || request(Method::CONNECT, "a.example:443", Some("k"), "");
    assert_eq!(send(&app, connect()).await.said(), "200");
    assert_eq!(send(&app, connect()).await.said(), "410 answer-not-kept");
    assert_eq!(runs.count(), 1);
}

/// Chunks with a pause before each but the first.
fn slow(pause: Duration) -> Body {
    Body::from_stream(stream::unfold(0, move |number| async move {
        if number > 0 {
            tokio::time::sleep(pause).await;
        }
        (number < 4).then(|| (Ok::<_, std::io::Error>(Bytes::from(number.to_string())), number + 1))
    }))
}

// H40: ten seconds by default; then what there is, and the rest as it comes.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_complete_in_time_is_sent_as_it_comes() {
    for (limit, seconds) in [(None, 10), (Some(Duration::from_secs(2)), 2)] {
        let runs = Runs::default();
        let app = made(&runs, || Response::new(slow(Duration::from_secs(7))));
        let app = app.layer(limit.into_iter().fold(layer(), IdempotencyLayer::buffer_for));
        let start = tokio::time::Instant::now();
        let head = app.clone().oneshot(post("head")).await.unwrap();
        assert_eq!((head.status().as_u16(), start.elapsed().as_secs()), (200, seconds));
        assert_eq!(head.into_body().collect().await.unwrap().to_bytes(), "0123");
        let runs = Runs::default();
        let app = made(&runs, || Response::new(slow(Duration::from_secs(7))));
        let app = app.layer(limit.into_iter().fold(layer(), IdempotencyLayer::buffer_for));
        not_kept(app, &runs, "0123", 200).await;
    }
    let runs = Runs::default();
    let app = made(&runs, || Response::new(slow(Duration::from_secs(1)))).layer(layer());
    assert_eq!(send(&app, post("k")).await.text(), "0123");
    assert!(send(&app, post("k")).await.is_replay());
}

// H40: the first caller gets the trailers of a long answer, too.
#[tokio::test]
async fn the_trailers_of_an_answer_over_the_limit_are_sent() {
    let trailers = || HeaderMap::from_iter([(HeaderName::from_static("x-sum"), "1".parse().unwrap())]);
    let runs = Runs::default();
    let app = made(&runs, move || of(Script::new([Step::Data("12345"), Step::Trailers(trailers())])));
    let first = send(&app.layer(layer().answer_limit(4)), post("k")).await;
    assert_eq!((first.text(), first.trailers.clone()), ("12345", Some(trailers())));
}

// H32, case L24: a body that breaks is abandoned; its reader sees as much, and that it is broken.
#[tokio::test]
async fn a_broken_body_frees_the_key_and_reaches_the_caller_broken() {
    for steps in [&["12", "34"][..], &[]] {
        let (runs, store) = (Runs::default(), Fake::new());
        let app = made(&runs, move || {
            let data = steps.iter().map(|text| Step::Data(text));
            of(Script::new(data.chain([Step::Fail("the disk is gone")])))
        });
        let app = app.layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
        for run in 1..=2 {
            let answer = send(&app, post("k")).await;
            assert_eq!(answer.text(), steps.concat());
            assert!(answer.broken.unwrap().contains("the disk is gone"));
            assert_eq!(runs.count(), run);
        }
        assert_eq!(store.settlements(), ["abandon", "abandon"]);
    }
}

// H32: what is not kept anyway is not held back.
#[tokio::test]
async fn an_abandoned_answer_is_sent_as_it_comes() {
    let runs = Runs::default();
    let app = made(&runs, || {
        let body = Script::new([Step::Data("first"), Step::Hang]);
        Response::builder().status(StatusCode::NOT_FOUND).body(Body::new(body)).unwrap()
    });
    let store = MemoryStore::new();
    let app = app.layer(IdempotencyLayer::new(store.clone(), Scope::shared()));
    let mut body = app.oneshot(post("k")).await.unwrap().into_body();
    assert!(store.is_empty());
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
}

// H40: nothing is read of a body that is known to be too long.
#[tokio::test]
async fn a_body_known_to_be_too_long_is_not_read_before_the_settlement() {
    let polls = Arc::<std::sync::Mutex<Option<_>>>::default();
    let out = Arc::clone(&polls);
    let runs = Runs::default();
    let app = made(&runs, move || {
        let body = Script::chunks(["12345"]).hint(5);
        *out.lock().unwrap() = Some(Arc::clone(&body.polls));
        of(body)
    });
    let response = app.layer(layer().answer_limit(4)).oneshot(post("k")).await.unwrap();
    assert_eq!(polls.lock().unwrap().as_ref().unwrap().load(Ordering::SeqCst), 0);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "12345");
}
