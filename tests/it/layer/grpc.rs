//! gRPC (H36): a real tonic server under the layer, and a real tonic client.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, HeaderName, Response as HttpResponse};
use idempotency::problem::ProblemKind;
use idempotency::{ErrorKind, IdempotencyLayer, MemoryStore, Outcome, Scope};
use tonic::metadata::MetadataMap;
use tonic::service::LayerExt;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};

use crate::support::bodies::{Script, Step};
use crate::support::fake::{Fake, LentTransaction};
use crate::support::grpc::{Calls, Served, Spoken, keyed, text};
use crate::support::http::{Answered, Gate, KEY, Runs, layer, request, send};

const LATE: &str = "/test.Calls/Late";

/// A layer over this store, one scope for all.
fn over(store: &Fake) -> IdempotencyLayer<Fake> {
    IdempotencyLayer::new(store.clone(), Scope::shared())
}

/// Says `run N`, or fails with the code that it is told as `fail CODE`.
fn counted(runs: &Runs) -> Calls {
    let runs = runs.clone();
    Calls::new(move |request: Request<_>| {
        let run = format!("run {}", runs.next());
        async move {
            match request.into_inner().text.strip_prefix("fail ") {
                None => Ok(Response::new(text(run))),
                Some(code) => Err(Status::new(Code::from(code.parse::<i32>().unwrap()), format!("{run}: 100% é"))),
            }
        }
    })
}

fn metadata<'a>(metadata: &'a MetadataMap, name: &str) -> Option<&'a str> {
    metadata.get(name).map(|value| value.to_str().unwrap())
}

fn is_replay(of: &MetadataMap) -> bool {
    metadata(of, "idempotent-replayed") == Some("true")
}

fn said(spoken: Spoken) -> (String, bool) {
    let answer = spoken.unwrap();
    (answer.get_ref().text.clone(), is_replay(answer.metadata()))
}

/// A refusal's code and the problem's name, checked for what all refusals have.
fn refused(spoken: Spoken) -> (Code, String) {
    let status = spoken.unwrap_err();
    let uri = metadata(status.metadata(), "idempotency-problem").unwrap_or_else(|| panic!("no refusal: {status:?}"));
    let kind = ProblemKind::ALL.iter().find(|kind| kind.type_uri() == uri).unwrap();
    assert_eq!((status.code(), status.message()), (Code::from(kind.grpc_code()), kind.detail()));
    let wait = metadata(status.metadata(), "retry-after");
    assert_eq!(wait.is_some_and(|wait| wait.parse::<u64>().unwrap() >= 1), kind.waiting_helps(), "{uri}");
    assert!(!is_replay(status.metadata()));
    (status.code(), kind.slug().to_owned())
}

fn refusal(code: Code, slug: &str) -> (Code, String) {
    (code, slug.to_owned())
}

// H36, H39: message, initial metadata and trailers reach the client, the first time and on a replay.
#[tokio::test]
async fn a_call_runs_once_and_replays() {
    let runs = Runs::default();
    let served = Served::under(layer(), counted(&runs)).await;
    for replayed in [false, true, true] {
        let answer = served.say("k", "pay").await.unwrap();
        assert_eq!((answer.get_ref().text.as_str(), is_replay(answer.metadata())), ("run 1", replayed));
        assert_eq!(metadata(answer.metadata(), KEY), Some("k"));
        assert_eq!(metadata(answer.metadata(), "grpc-status"), Some("0"), "from the trailers");
    }
    assert_eq!(said(served.say("other", "pay").await), ("run 2".to_owned(), false));
    for replayed in [false, true] {
        let mut request = keyed("late", "pay");
        request.metadata_mut().insert("x-status", "0".parse().unwrap());
        let answer = served.call(LATE, request).await.unwrap();
        assert_eq!((answer.get_ref().text.as_str(), is_replay(answer.metadata())), ("late", replayed));
        assert_eq!(metadata(answer.metadata(), "x-sum"), Some("1"), "a trailer of the handler's own");
    }
    assert_eq!(runs.count(), 3);
}

// H45: over one service of several, by `named_layer`; the others are left as they are.
#[tokio::test]
async fn a_layer_over_one_service() {
    let runs = Runs::default();
    let served = Served::router(Server::builder().add_service(layer().require_key().named_layer(counted(&runs)))).await;
    for replayed in [false, true] {
        assert_eq!(said(served.say("k", "pay").await), ("run 1".to_owned(), replayed));
    }
    // Another method is another operation.
    let mut late = keyed("k", "pay");
    late.metadata_mut().insert("x-status", "0".parse().unwrap());
    assert_eq!(said(served.call(LATE, late).await), ("late".to_owned(), false));
    let bare = served.call("/test.Calls/Say", Request::new(text("pay"))).await;
    assert_eq!(refused(bare), refusal(Code::InvalidArgument, "missing-key"));
    assert_eq!(served.call("/test.Others/Say", keyed("k", "")).await.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(runs.count(), 2);
}

/// What a call that ends with this code is settled as.
fn settlement(code: i32) -> &'static str {
    match code {
        0 => "commit",
        3 | 5 | 6 | 9 | 11 => "refuse",
        _ => "abandon",
    }
}

// H36: each code, said in the head (as tonic does) and in the trailers.
#[tokio::test]
async fn the_status_decides_wherever_it_is() {
    for code in 1..17 {
        let (runs, store) = (Runs::default(), Fake::new());
        let served = Served::under(over(&store), counted(&runs)).await;
        let mut seen = Vec::new();
        for _ in 0..2 {
            let status = served.say("k", &format!("fail {code}")).await.unwrap_err();
            assert_eq!(status.code(), Code::from(code));
            assert_eq!(metadata(status.metadata(), KEY), Some("k"));
            seen.push((status.message().to_owned(), is_replay(status.metadata())));
        }
        assert_eq!(store.settlements()[0], settlement(code), "{code}");
        let kept = settlement(code) != "abandon";
        let again = if kept { "run 1: 100% é" } else { "run 2: 100% é" };
        assert_eq!(seen, [("run 1: 100% é".to_owned(), false), (again.to_owned(), kept)], "{code}");
    }
    for code in 0..17 {
        let (runs, store) = (Runs::default(), Fake::new());
        let served = Served::under(over(&store), counted(&runs)).await;
        for _ in 0..2 {
            let mut request = keyed("k", "");
            request.metadata_mut().insert("x-status", code.to_string().parse().unwrap());
            match served.call(LATE, request).await {
                Ok(answer) => assert_eq!((code, answer.get_ref().text.as_str()), (0, "late")),
                Err(status) => {
                    assert_eq!((status.code(), metadata(status.metadata(), "x-sum")), (Code::from(code), Some("1")));
                }
            }
        }
        assert_eq!(store.settlements()[0], settlement(code), "{code}");
        assert_eq!(runs.count(), if settlement(code) == "abandon" { 2 } else { 1 }, "{code}");
    }
}

// H20, H21, H36: ABORTED while it runs, FAILED_PRECONDITION for another call with the key, also while it runs.
#[tokio::test]
async fn in_progress_and_reused() {
    let (runs, gate) = (Runs::default(), Gate::new());
    let (counter, waiting) = (runs.clone(), gate.clone());
    let calls = Calls::new(move |_| {
        let (run, gate) = (counter.next(), waiting.clone());
        async move {
            gate.pass().await;
            Ok(Response::new(text(format!("run {run}"))))
        }
    });
    let served = Served::under(layer(), calls).await;
    let test = async {
        gate.entered().await;
        assert_eq!(refused(served.say("k", "pay").await), refusal(Code::Aborted, "in-progress"));
        assert_eq!(refused(served.say("k", "other").await), refusal(Code::FailedPrecondition, "key-reused"));
        let status = served.say("k", "pay").await.unwrap_err();
        assert_eq!(metadata(status.metadata(), KEY), Some("k"), "refusals echo the key");
        gate.open(1);
    };
    let (first, ()) = tokio::join!(served.say("k", "pay"), test);
    assert_eq!(said(first), ("run 1".to_owned(), false));
    assert_eq!(said(served.say("k", "pay").await), ("run 1".to_owned(), true));
    assert_eq!(refused(served.say("k", "other").await), refusal(Code::FailedPrecondition, "key-reused"));
    assert_eq!(runs.count(), 1);
}

// H36, H43
#[tokio::test]
async fn refusals_have_codes_that_clients_understand() {
    let runs = Runs::default();
    let served = Served::under(layer().require_key().body_limit(64), counted(&runs)).await;
    let bare = served.call("/test.Calls/Say", Request::new(text(""))).await;
    assert_eq!(refused(bare), refusal(Code::InvalidArgument, "missing-key"));
    assert_eq!(refused(served.say("\"open", "").await), refusal(Code::InvalidArgument, "malformed-key"));
    let long = "x".repeat(100);
    assert_eq!(refused(served.say("k", &long).await), refusal(Code::ResourceExhausted, "body-too-large"));
    assert_eq!(runs.count(), 0);
    for (kind, code, slug) in [
        (ErrorKind::NotRecorded, Code::Unavailable, "not-recorded"),
        (ErrorKind::CommitRefused, Code::Internal, "commit-refused"),
        (ErrorKind::LeaseLost, Code::Aborted, "lease-lost"),
    ] {
        let served = Served::under(over(&Fake::new().unsettled(kind)), counted(&runs)).await;
        assert_eq!(refused(served.say("k", "").await), refusal(code, slug));
    }
    let scopeless = IdempotencyLayer::new(MemoryStore::new(), Scope::from_extension(|_: &Runs| None::<String>));
    let served = Served::under(scopeless, counted(&runs)).await;
    assert_eq!(refused(served.say("k", "").await), refusal(Code::Internal, "scope-unavailable"));
}

// H23, H36: without the store the handler does not run.
#[tokio::test]
async fn a_store_that_is_down_is_unavailable() {
    let runs = Runs::default();
    let served = Served::under(over(&Fake::new().down(ErrorKind::Unavailable)), counted(&runs)).await;
    assert_eq!(refused(served.say("k", "").await), refusal(Code::Unavailable, "store-unavailable"));
    assert_eq!(runs.count(), 0);
}

// H36: a streaming method is left out by `guard`, and by sending no key.
#[tokio::test]
async fn a_streaming_method_is_left_out() {
    let runs = Runs::default();
    let guarded = layer().guard(|parts| !parts.uri.path().ends_with("/Count"));
    for (layer, request) in [(guarded, keyed("k", "")), (layer(), Request::new(text("")))] {
        let before = runs.count();
        let served = Served::under(layer, counted(&runs)).await;
        for run in 1..3 {
            let mut copy = Request::new(request.get_ref().clone());
            *copy.metadata_mut() = request.metadata().clone();
            let mut answers = served.count(copy).await.unwrap().into_inner();
            let mut seen = Vec::new();
            while let Some(answer) = answers.message().await.unwrap() {
                seen.push(answer.text);
            }
            assert_eq!(seen, vec![format!("run {}", before + run); 2]);
        }
    }
}

// H32: the handler's own word goes with tonic's response extensions; its errors are judged by the policy.
#[tokio::test]
async fn a_handlers_word_and_a_policy_of_ones_own() {
    let store = Fake::new();
    let calls = Calls::new(async |_| {
        let mut response = Response::new(text("free"));
        response.extensions_mut().insert(Outcome::abandon());
        Ok(response)
    });
    let served = Served::under(over(&store), calls).await;
    for _ in 0..2 {
        assert_eq!(said(served.say("k", "").await), ("free".to_owned(), false));
    }
    assert_eq!(store.settlements(), ["abandon", "abandon"]);

    let (runs, store) = (Runs::default(), Fake::new());
    // What it says of HTTP has no say here.
    let policy = idempotency::policy::Policy::from_fn(|_| Outcome::abandon())
        .grpc(|code| if matches!(code, Some(0 | 7)) { Outcome::commit() } else { Outcome::abandon() });
    let served = Served::under(over(&store).policy(policy), counted(&runs)).await;
    for (key, what) in [("a", ""), ("b", "fail 7"), ("c", "fail 9")] {
        let _ = served.say(key, what).await;
    }
    assert_eq!(store.settlements(), ["commit", "commit", "abandon"]);
}

/// A gRPC answer of these steps, without a server.
async fn answered(layer: IdempotencyLayer<Fake>, key: Option<&str>, steps: fn() -> Vec<Step>) -> Answered {
    let app = Router::new().fallback(async move || {
        HttpResponse::builder()
            .header("content-type", "application/grpc")
            .body(Body::new(Script::new(steps())))
            .unwrap()
    });
    send(&app.layer(layer), call(key)).await
}

fn call(key: Option<&str>) -> http::Request<Body> {
    let mut request = request(http::Method::POST, "/test.Calls/Say", key, "");
    request.headers_mut().insert("content-type", "application/grpc+proto".parse().unwrap());
    request
}

fn status(code: &'static str) -> Step {
    Step::Trailers(HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), code.parse().unwrap())]))
}

// H36, H40: an answer whose status is not waited for has done its work: it is kept as "not kept" and never run again.
#[tokio::test(start_paused = true)]
async fn an_answer_too_long_or_too_slow_is_done_and_not_kept() {
    let long = || vec![Step::Data("12345"), Step::Yield, Step::Data("678"), status("0")];
    let store = Fake::new();
    let first = answered(over(&store).answer_limit(4), Some("k"), long).await;
    assert_eq!((first.text(), first.trailers.as_ref().unwrap()["grpc-status"].to_str().unwrap()), ("12345678", "0"));
    let again = answered(over(&store).answer_limit(4), Some("k"), long).await;
    assert_eq!((again.status.as_u16(), again.header("grpc-status")), (200, Some("15")));
    assert_eq!(again.header("idempotency-problem"), Some("urn:idempotency:problem:answer-not-kept"));
    assert_eq!(again.header("content-type"), Some("application/grpc"));
    assert!(again.body.is_empty() && again.trailers.is_none());
    assert_eq!(store.settlements(), ["commit"]);

    let store = Fake::new();
    let slow = over(&store).buffer_for(Duration::from_secs(1));
    let app = Router::new().fallback(async || HttpResponse::new(Body::new(Script::new([Step::Data("1"), Step::Hang]))));
    let first = tower::ServiceExt::oneshot(app.layer(slow), call(Some("k"))).await.unwrap();
    assert_eq!((first.status().as_u16(), store.settlements()), (200, vec!["commit"]));
}

// H32, H36: a body that breaks, ends without a status, or is no gRPC answer at all leaves nothing behind.
#[tokio::test]
async fn an_answer_without_a_status_is_abandoned() {
    let store = Fake::new();
    answered(over(&store), Some("a"), || vec![Step::Data("1")]).await;
    assert!(answered(over(&store), Some("b"), || vec![Step::Data("1"), Step::Fail("gone")]).await.broken.is_some());
    answered(over(&store), Some("c"), || vec![status("what")]).await;
    let none = Router::new().layer(over(&store));
    assert_eq!(send(&none, call(Some("d"))).await.status, 404);
    assert_eq!(store.settlements(), ["abandon"; 4]);
}

// H2, H36: without a key nothing is buffered: the head decides, and what sends messages has not failed.
#[tokio::test]
async fn a_call_without_a_key_commits_by_its_head() {
    let store = Fake::new().lending(None);
    answered(over(&store), None, || vec![Step::Data("1"), status("0")]).await;
    for (code, http) in [(Some("0"), 200), (Some("9"), 200), (Some("13"), 200), (None, 404)] {
        let app = Router::new().fallback(async move |request: axum::extract::Request| {
            assert!(request.extensions().get::<LentTransaction>().is_some());
            let mut response = HttpResponse::builder().status(http);
            if let Some(code) = code {
                response = response.header("grpc-status", code);
            }
            response.body(Body::empty()).unwrap()
        });
        send(&app.layer(over(&store)), call(None)).await;
    }
    assert_eq!(store.settlements(), ["keep", "keep", "undo", "undo", "undo"]);
    let failing = Fake::new().lending(Some(ErrorKind::CommitRefused));
    let answer = answered(over(&failing), None, || vec![status("0")]).await;
    assert_eq!((answer.header("grpc-status"), answer.status.as_u16()), (Some("13"), 200));
}

// H36, H42: a renderer for HTTP has no say, and the refusal of a layer further in is not stored.
#[tokio::test]
async fn refusals_keep_their_form_and_are_never_stored() {
    let outer = Fake::new();
    let inner = over(&Fake::new().down(ErrorKind::Unavailable)).refusals(|_: &_| unreachable!("not for gRPC"));
    let app = Router::new().layer(inner).layer(over(&outer));
    let answer = send(&app, call(Some("k"))).await;
    assert_eq!(
        (answer.header("grpc-status"), answer.problem.unwrap().kind()),
        (Some("14"), ProblemKind::StoreUnavailable)
    );
    assert_eq!(outer.settlements(), ["abandon"]);
}

// H36: what only begins like it is a POST as any other.
#[tokio::test]
async fn grpc_web_is_not_grpc() {
    let app = Runs::default().app().layer(layer().require_key());
    let mut request = call(None);
    request.headers_mut().insert("content-type", "application/grpc-web+proto".parse().unwrap());
    assert_eq!(send(&app, request).await.said(), "400 missing-key");
}
