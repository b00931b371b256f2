//! The routes, and who may call them.

use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::header::{AUTHORIZATION, ETAG, IF_NONE_MATCH, LINK, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use idempotency::store::Store;
use idempotency::{Attempt, IdempotencyLayer, Tx};
use sqlx::Pool;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tower_http::catch_panic::CatchPanicLayer;

use crate::database::{Database, Kind};
use crate::leased;
use crate::leases::Leases;
use crate::money::{Card, Order, Payment, Wrong};
use crate::problem::{self, Problem};

/// Who calls, as the bearer token says. The scope of the caller's keys.
#[derive(Clone)]
pub struct Principal(pub String);

/// The whole service. `place` is where the keys are, if they are leases; without it handlers are lent the claim's own
/// transaction.
pub fn router<DB: Leases, S: Store>(
    pool: Pool<DB>,
    layer: IdempotencyLayer<S>,
    place: Option<leased::Place>,
) -> Router {
    let collection = |kind| {
        let list = get(move |p, s: State<Pool<DB>>| list(p, s, kind));
        match place {
            None => list.post(move |p, tx: Tx<DB>, body| create(p, tx, body, kind)),
            Some(place) => list.post(move |p, attempt: Attempt, State(pool): State<Pool<DB>>, body| {
                leased::create(p, attempt, pool, body, (kind, place))
            }),
        }
    };
    let guarded = Router::new()
        .route("/payments", collection(Kind::Payment))
        .route("/transfers", collection(Kind::Transfer))
        .route("/payments/{id}", get(|p, s: State<Pool<DB>>, id, h| find(p, s, id, h, Kind::Payment)))
        .route("/transfers/{id}", get(|p, s: State<Pool<DB>>, id, h| find(p, s, id, h, Kind::Transfer)))
        // The authentication stands outside: a replay is authorised like a first request.
        .layer(layer)
        .layer(from_fn(authenticate))
        .with_state(pool);
    Router::new()
        .merge(guarded)
        .route("/healthz", get(|| async { "ok" }))
        .fallback(|| async { Problem::not_found() })
        .layer(CatchPanicLayer::custom(|_| {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "The service failed. Send the request again.")
                .into_response()
        }))
}

async fn authenticate(mut request: Request, next: Next) -> Response {
    let name = request
        .headers()
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, name)| name.trim().to_owned())
        .filter(|name| !name.is_empty());
    match name {
        Some(name) => {
            request.extensions_mut().insert(Principal(name));
            next.run(request).await
        }
        None => Problem::new(StatusCode::UNAUTHORIZED, "Say who you are: Authorization: Bearer NAME.").into_response(),
    }
}

async fn create<DB: Database>(
    Extension(Principal(owner)): Extension<Principal>,
    mut tx: Tx<DB>,
    body: Bytes,
    kind: Kind,
) -> Response {
    let (order, card) = match Order::parse(&body) {
        Ok(order) => order,
        Err(what) => return wrong(what).into_response(),
    };
    let Order { amount, currency, card: card_text, reference } = order;
    let payment = Payment {
        id: uuid::Uuid::new_v4().to_string(),
        amount,
        currency,
        card: card_text,
        reference,
        created_at: now(),
    };
    if let Err(error) = DB::insert(&mut tx, &owner, kind, &payment).await {
        return problem::failed::<DB>(&error);
    }
    match ask(card).await {
        Ok(()) => answer(card, kind, &payment),
        Err(refusal) => refusal.into_response(),
    }
}

pub fn wrong(what: Wrong) -> Problem {
    match what {
        Wrong::Json(detail) => Problem::new(StatusCode::BAD_REQUEST, detail),
        Wrong::Value(detail) => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail),
    }
}

/// What becomes of the card. `Err`: the payment is refused.
pub async fn ask(card: Card) -> Result<(), Problem> {
    let (status, detail) = match card {
        Card::Ok | Card::Large(_) | Card::Cookie => return Ok(()),
        Card::Slow(wait) => {
            tokio::time::sleep(wait).await;
            return Ok(());
        }
        Card::Declined => (StatusCode::PAYMENT_REQUIRED, "The card was declined."),
        Card::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "The card network cannot be reached."),
        Card::Limited => (StatusCode::TOO_MANY_REQUESTS, "Too many payments at once."),
        Card::Panic => panic!("the card that panics"),
    };
    Err(Problem::new(status, detail))
}

/// The answer to a payment that was made.
pub fn answer(card: Card, kind: Kind, payment: &Payment) -> Response {
    let filler = if let Card::Large(size) = card { size } else { 0 };
    let mut response = made(kind, payment, filler);
    if card == Card::Cookie {
        with_awkward_headers(response.headers_mut());
    }
    response
}

/// RFC 3339 with six decimals, so that the texts sort as the times do.
pub fn now() -> String {
    let now = OffsetDateTime::now_utc();
    let seconds = now.truncate_to_second().format(&Rfc3339).unwrap_or_default();
    format!("{}.{:06}Z", seconds.trim_end_matches('Z'), now.microsecond())
}

/// 201 with the new resource; `filler` bytes of a filler member make it as large as a test wants it.
fn made(kind: Kind, payment: &Payment, filler: usize) -> Response {
    #[derive(serde::Serialize)]
    struct Made<'a> {
        #[serde(flatten)]
        payment: &'a Payment,
        #[serde(skip_serializing_if = "String::is_empty")]
        filler: String,
    }
    let location = format!("/{}/{}", kind.path(), payment.id);
    let body = Made { payment, filler: "x".repeat(filler) };
    (StatusCode::CREATED, [(LOCATION, location)], Json(body)).into_response()
}

/// What a careless store would lose or must not keep.
fn with_awkward_headers(headers: &mut HeaderMap) {
    headers.append(SET_COOKIE, HeaderValue::from_static("session=secret; HttpOnly"));
    headers.append(LINK, HeaderValue::from_static("</payments>; rel=\"collection\""));
    headers.append(LINK, HeaderValue::from_static("</help>; rel=\"help\""));
    if let Ok(latin) = HeaderValue::from_bytes(b"caf\xe9") {
        headers.append(HeaderName::from_static("x-latin"), latin);
    }
}

async fn list<DB: Database>(
    Extension(Principal(owner)): Extension<Principal>,
    State(pool): State<Pool<DB>>,
    kind: Kind,
) -> Response {
    match DB::list(&pool, &owner, kind).await {
        Ok(payments) => Json(payments).into_response(),
        Err(error) => problem::failed::<DB>(&error),
    }
}

/// Whether a list of entity tags names this one, by the weak comparison of If-None-Match (RFC 9110 section 13.1.2).
fn names(list: &[u8], etag: &str) -> bool {
    list.trim_ascii() == b"*"
        || list.split(|byte| *byte == b',').any(|tag| {
            let tag = tag.trim_ascii();
            tag.strip_prefix(b"W/").unwrap_or(tag) == etag.as_bytes()
        })
}

async fn find<DB: Database>(
    Extension(Principal(owner)): Extension<Principal>,
    State(pool): State<Pool<DB>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    kind: Kind,
) -> Response {
    match DB::find(&pool, &owner, kind, &id).await {
        // A payment never changes: its id is its version.
        Ok(Some(payment)) => {
            let etag = format!("\"{}\"", payment.id);
            let known = headers.get_all(IF_NONE_MATCH).iter().any(|value| names(value.as_bytes(), &etag));
            let body = if known { StatusCode::NOT_MODIFIED.into_response() } else { Json(payment).into_response() };
            ([(ETAG, etag)], body).into_response()
        }
        Ok(None) => Problem::not_found().into_response(),
        Err(error) => problem::failed::<DB>(&error),
    }
}
