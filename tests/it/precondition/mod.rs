//! The layer for preconditions, and the extractor (D2).

use axum::Router;
use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, LAST_MODIFIED};
use axum::http::{Method, Request, StatusCode};
use axum::routing::get;
use idempotency::precondition::{Current, EntityTag, PreconditionLayer, Preconditions, Refusal, Verdict};
use tower::Layer;

use crate::support::http::{Answered, send};

fn request(method: Method, path: &str, fields: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

async fn write(preconditions: Preconditions) -> Result<StatusCode, Refusal> {
    match preconditions.judge(Some(&Current::tagged(EntityTag::strong("a").unwrap()))) {
        Verdict::Proceed => Ok(StatusCode::NO_CONTENT),
        _ => Err(Refusal::Failed),
    }
}

fn app(layer: &PreconditionLayer) -> Router {
    let tagged = || {
        [
            (ETAG, "\"a\""),
            (LAST_MODIFIED, "Sun, 02 Jan 2000 00:00:00 GMT"),
            (CACHE_CONTROL, "max-age=5"),
            (CONTENT_TYPE, "text/plain"),
        ]
    };
    Router::new()
        .route("/tagged", get(async move || (tagged(), "content")).put(write).patch(write).post(write))
        .route("/missing", get(async move || (StatusCode::NOT_FOUND, tagged(), "no")))
        .route("/plain", get(async || "content"))
        .layer(layer.clone())
}

async fn ask(layer: &PreconditionLayer, method: Method, path: &str, fields: &[(&str, &str)]) -> Answered {
    send(&app(layer), request(method, path, fields)).await
}

// D2
#[tokio::test]
async fn a_field_that_does_not_parse_is_400_for_every_method() {
    let layer = PreconditionLayer::new();
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::POST] {
        for name in ["if-match", "if-none-match"] {
            for value in ["garbage", "", "\"a b\"", "*, \"a\"", "\"a"] {
                let answer = ask(&layer, method.clone(), "/tagged", &[(name, value)]).await;
                assert_eq!(answer.status, 400, "{method} {name}: {value}");
                assert_eq!(answer.header("cache-control"), Some("no-store"));
            }
        }
    }
    let document = ask(&layer, Method::GET, "/tagged", &[("if-match", "a")]).await;
    assert_eq!(document.said(), "400 malformed-precondition");
}

// D2
#[tokio::test]
async fn a_precondition_that_is_required_and_missing_is_428() {
    let layer = PreconditionLayer::new().require([Method::PUT, Method::PATCH]);
    for method in [Method::PUT, Method::PATCH] {
        let answer = ask(&layer, method.clone(), "/tagged", &[]).await;
        assert_eq!(answer.said(), "428 precondition-required");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(ask(&layer, method.clone(), "/tagged", &[("if-match", "\"a\"")]).await.status, 204);
        assert_eq!(ask(&layer, method.clone(), "/tagged", &[("if-none-match", "\"b\"")]).await.status, 204);
        assert_eq!(ask(&layer, method, "/tagged", &[("if-match", "\"b\"")]).await.said(), "412 precondition-failed");
    }
    assert_eq!(ask(&layer, Method::POST, "/tagged", &[]).await.status, 204);
    assert_eq!(ask(&layer, Method::GET, "/tagged", &[]).await.status, 200);
}

// D2, RFC 9110 section 15.4.5
#[tokio::test]
async fn what_the_client_has_already_is_304() {
    let layer = PreconditionLayer::new();
    let since = "Sun, 02 Jan 2000 00:00:00 GMT";
    for method in [Method::GET, Method::HEAD] {
        for field in [("if-none-match", "W/\"a\""), ("if-none-match", "*"), ("if-modified-since", since)] {
            let answer = ask(&layer, method.clone(), "/tagged", &[field]).await;
            assert_eq!((answer.status.as_u16(), answer.text()), (304, ""), "{method} {field:?}");
            assert_eq!((answer.header("etag"), answer.header("cache-control")), (Some("\"a\""), Some("max-age=5")));
            assert_eq!(answer.header("content-type"), None);
        }
    }
    let answer = ask(&layer, Method::GET, "/tagged", &[("if-none-match", "\"b\"")]).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "content"));
    assert_eq!(ask(&layer, Method::GET, "/tagged", &[("if-match", "\"b\"")]).await.status, 412);
    assert_eq!(ask(&layer, Method::GET, "/tagged", &[("if-match", "\"a\"")]).await.status, 200);
    // Not where the answer is none of these anyway.
    assert_eq!(ask(&layer, Method::GET, "/missing", &[("if-none-match", "\"a\"")]).await.status, 404);
    assert_eq!(ask(&layer, Method::GET, "/missing", &[("if-match", "\"b\"")]).await.status, 404);
    assert_eq!(ask(&layer, Method::GET, "/plain", &[("if-none-match", "\"a\"")]).await.status, 200);
}

// D2
#[tokio::test]
async fn weakened_tags_are_an_opt_in_that_handlers_see() {
    let layer = PreconditionLayer::new();
    assert_eq!(ask(&layer, Method::PUT, "/tagged", &[("if-match", "W/\"a\"")]).await.status, 412);
    let layer = layer.accept_weakened_tags();
    assert_eq!(ask(&layer, Method::PUT, "/tagged", &[("if-match", "W/\"a\"")]).await.status, 204);
    assert_eq!(ask(&layer, Method::PUT, "/tagged", &[("if-match", "W/\"b\"")]).await.status, 412);
    assert_eq!(ask(&layer, Method::GET, "/tagged", &[("if-match", "W/\"a\"")]).await.status, 200);
}

// D2: without the layer the extractor reads the fields itself.
#[tokio::test]
async fn the_extractor_stands_alone() {
    let app = Router::new().route("/", axum::routing::put(write));
    assert_eq!(send(&app, request(Method::PUT, "/", &[("if-match", "a")])).await.said(), "400 malformed-precondition");
    assert_eq!(send(&app, request(Method::PUT, "/", &[("if-match", "\"a\"")])).await.status, 204);
}

// The layer is for any tower service.
#[tokio::test]
async fn it_knows_no_framework() {
    let inner = tower::service_fn(|_: Request<String>| async {
        Ok::<_, std::convert::Infallible>(
            axum::http::Response::builder()
                .header(ETAG, "\"a\"")
                .header("content-length", "1")
                .body("x".to_owned())
                .unwrap(),
        )
    });
    let service = PreconditionLayer::new().layer(inner);
    let get = Request::get("/").header("if-none-match", "\"a\"").body(String::new()).unwrap();
    let answer = send(&service, get).await;
    assert_eq!((answer.status.as_u16(), answer.header("content-length")), (304, None));
}
