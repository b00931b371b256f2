//! One payment: the request, its handler, and how it is sent.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, COOKIE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use tower::{Service, ServiceExt};

/// 735 bytes, as in the bench `overhead`.
const BODY: &str = r#"{"amount":12995,"currency":"eur","customer":"cus_9s6XKzkNRiz8i3","description":"Order 6735: two chairs, \"oak\"","metadata":{"order_id":"6735","channel":"web","campaign":null,"gift":false},"payment_method":{"type":"card","card":{"exp_month":8,"exp_year":2030,"last4":"4242","brand":"visa"}},"shipping":{"name":"Jenny Rosen","phone":"+49 30 901820","address":{"line1":"Unter den Linden 17","line2":null,"city":"Berlin","postal_code":"10117","country":"DE"}},"items":[{"sku":"chair-oak","quantity":2,"price":5999.5},{"sku":"felt-pads","quantity":8,"price":1.25}],"capture_method":"automatic","statement_descriptor":"FURNITURE SHOP","receipt_email":"jenny@example.com","confirm":true,"note":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}"#;
const ANSWER: &str = r#"{"id":"pay_1J2k3L4m5N6o7P","status":"succeeded","amount":12995,"currency":"eur"}"#;

/// How often handlers have run.
#[derive(Clone, Default)]
pub(crate) struct Runs(Arc<AtomicU64>);

impl Runs {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Reads its body and answers, as every handler does.
pub(crate) async fn handle<B: http_body::Body>(runs: Runs, request: Request<B>) -> Result<Response<Body>, Infallible> {
    runs.0.fetch_add(1, Ordering::Relaxed);
    std::hint::black_box(request.into_body().collect().await.map(http_body_util::Collected::to_bytes).ok());
    let mut response = Response::new(Body::from(ANSWER));
    *response.status_mut() = StatusCode::CREATED;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert("location", HeaderValue::from_static("/payments/pay_1J2k3L4m5N6o7P"));
    Ok(response)
}

/// With this key. `session`: the peer that keeps answers in sessions wants one, here of this key alone.
pub(crate) fn request(key: &str, session: bool) -> Request<Body> {
    let mut request = Request::new(Body::from(Bytes::from_static(BODY.as_bytes())));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static("/v1/payments");
    let headers = request.headers_mut();
    headers.insert("host", HeaderValue::from_static("api.example.com"));
    headers.insert("user-agent", HeaderValue::from_static("example-client/1.0"));
    headers.insert("accept", HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("idempotency-key", HeaderValue::try_from(key).expect("a key"));
    if session {
        let cookie = format!("session={}", ruts::Id::default());
        headers.insert(COOKIE, HeaderValue::try_from(cookie).expect("a cookie"));
    }
    request
}

/// The same once more.
pub(crate) fn again(request: &Request<Body>) -> Request<Body> {
    let mut again = Request::new(Body::from(Bytes::from_static(BODY.as_bytes())));
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.headers_mut() = request.headers().clone();
    again
}

/// Sends it, and reads the answer, which is the handler's or a copy of it.
pub(crate) async fn send<S>(service: &S, request: Request<Body>)
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone,
{
    let Ok(response) = service.clone().oneshot(request).await;
    assert_eq!(response.status(), StatusCode::CREATED);
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(body, ANSWER);
}
