//! The requests.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;

pub(crate) type Body = Full<Bytes>;

/// 735 bytes, as an API would receive it.
const BODY: &str = r#"{"amount":12995,"currency":"eur","customer":"cus_9s6XKzkNRiz8i3","description":"Order 6735: two chairs, \"oak\"","metadata":{"order_id":"6735","channel":"web","campaign":null,"gift":false},"payment_method":{"type":"card","card":{"exp_month":8,"exp_year":2030,"last4":"4242","brand":"visa"}},"shipping":{"name":"Jenny Rosen","phone":"+49 30 901820","address":{"line1":"Unter den Linden 17","line2":null,"city":"Berlin","postal_code":"10117","country":"DE"}},"items":[{"sku":"chair-oak","quantity":2,"price":5999.5},{"sku":"felt-pads","quantity":8,"price":1.25}],"capture_method":"automatic","statement_descriptor":"FURNITURE SHOP","receipt_email":"jenny@example.com","confirm":true,"note":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}"#;

/// How many keys are replayed.
pub(crate) const KEYS: u64 = 256;

/// A request, and what it must be answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// The handler in a transaction of its own, without the layer.
    Bare,
    /// A new key behind the layer.
    Guarded,
    /// The first request of a key, and its replays.
    Kept(u64),
    Replayed,
    /// One row by its primary key, asked for without and with a body.
    Read,
    LookedUp,
    /// The first request of a slow key, and its duplicates.
    Slow,
    Duplicate,
    /// A 409 without the layer.
    Nothing,
}

/// The number of the last request, and that of the slow key.
static LAST: AtomicU64 = AtomicU64::new(0);
static SLOW: AtomicU64 = AtomicU64::new(0);

impl Order {
    /// What it must be answered.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::Read | Self::LookedUp => 200,
            Self::Duplicate | Self::Nothing => 409,
            _ => 201,
        }
    }

    /// From now on slow requests and their duplicates have another key.
    pub(crate) fn next_slow() {
        SLOW.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_replay(self) -> bool {
        matches!(self, Self::Replayed)
    }

    pub(crate) fn request(self) -> Request<Body> {
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let (path, key) = match self {
            Self::Bare => ("/bare".to_owned(), None),
            Self::Guarded => ("/guarded".to_owned(), Some(format!("new-{number}"))),
            Self::Kept(key) => ("/guarded".to_owned(), Some(format!("kept-{key}"))),
            Self::Replayed => ("/guarded".to_owned(), Some(format!("kept-{}", number % KEYS))),
            Self::Read | Self::LookedUp => (format!("/rows/{}", number % KEYS), None),
            Self::Slow | Self::Duplicate => {
                ("/slow".to_owned(), Some(format!("slow-{}", SLOW.load(Ordering::Relaxed))))
            }
            Self::Nothing => ("/nothing".to_owned(), None),
        };
        let request = Request::builder().uri(path).header("host", "127.0.0.1").header("user-agent", "bench");
        if matches!(self, Self::Read) {
            return request.body(Body::default()).unwrap_or_default();
        }
        let request = request.method("POST").header("content-type", "application/json");
        let request = match key {
            Some(key) => request.header("idempotency-key", key),
            None => request,
        };
        request.body(Body::from(BODY)).unwrap_or_default()
    }
}
