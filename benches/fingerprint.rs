//! Speed of canonical fingerprints against reading the body with `serde_json` and hashing its raw bytes.
//!
//! Prints ratios: 1.0 is as fast as both together, 0.5 takes twice as long.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use idempotency::fingerprint::{Fingerprinter, RequestView};
use sha2::{Digest, Sha256};

const BIG: usize = 2 << 20;

fn main() {
    for (name, body) in [
        ("object of 735 B", small_object()),
        ("flat object of 2 MiB", flat_object(BIG)),
        ("numbers, 2 MiB", numbers()),
        ("120 unsorted levels, 2 MiB", nested()),
        ("small unsorted objects", small_objects()),
    ] {
        let (ours, theirs) = compare(body.as_bytes());
        println!(
            "{name:28} {:8} B  ours {ours:>10.1?}  serde_json + SHA-256 {theirs:>10.1?}  ratio {:.2}",
            body.len(),
            theirs.as_secs_f64() / ours.as_secs_f64()
        );
    }
}

/// The best times of several rounds: ours, then theirs.
fn compare(body: &[u8]) -> (Duration, Duration) {
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let request = RequestView { method: &Method::POST, path: "/v1/payments", query: None, headers: &headers, body };
    let fingerprinter = Fingerprinter::new();
    let repeats = u32::try_from(BIG / body.len()).unwrap_or(1).clamp(1, 2000);
    let mut best = (Duration::MAX, Duration::MAX);
    for _ in 0..25 {
        let start = Instant::now();
        for _ in 0..repeats {
            black_box(fingerprinter.fingerprint(black_box(&request)));
        }
        best.0 = best.0.min(start.elapsed() / repeats);
        let start = Instant::now();
        for _ in 0..repeats {
            // Dropping the value counts: whoever reads a body this way drops it.
            let _ = black_box(serde_json::from_slice::<serde_json::Value>(black_box(body)));
            black_box(Sha256::digest(black_box(body)));
        }
        best.1 = best.1.min(start.elapsed() / repeats);
    }
    best
}

/// A payment as an API would receive it.
fn small_object() -> String {
    let object = r#"{"amount":12995,"currency":"eur","customer":"cus_9s6XKzkNRiz8i3","description":"Order 6735: two chairs, \"oak\"","metadata":{"order_id":"6735","channel":"web","campaign":null,"gift":false},"payment_method":{"type":"card","card":{"exp_month":8,"exp_year":2030,"last4":"4242","brand":"visa"}},"shipping":{"name":"Jenny Rosen","phone":"+49 30 901820","address":{"line1":"Unter den Linden 17","line2":null,"city":"Berlin","postal_code":"10117","country":"DE"}},"items":[{"sku":"chair-oak","quantity":2,"price":5999.5},{"sku":"felt-pads","quantity":8,"price":1.25}],"capture_method":"automatic","statement_descriptor":"FURNITURE SHOP","receipt_email":"jenny@example.com","confirm":true,"note":""#;
    let padding = 735 - object.len() - 2;
    format!("{object}{}\"}}", "x".repeat(padding))
}

/// Names in no order.
fn flat_object(size: usize) -> String {
    let mut text = String::from("{");
    let mut state: u32 = 1;
    while text.len() < size {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let _ = write!(text, "\"name_{state:08x}\":\"value {}\",", state / 7);
    }
    text.pop();
    text + "}"
}

fn numbers() -> String {
    let mut text = String::from("[");
    let mut state: u32 = 1;
    while text.len() < BIG {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let _ = match state >> 30 {
            0 => write!(text, "{},", state >> 12),
            1 => write!(text, "-{}.{:02},", state >> 20, state % 100),
            2 => write!(text, "{},", state >> 24),
            _ => write!(text, "{}.{:03}e-{},", state >> 28, state % 1000, state % 19),
        };
    }
    text.pop();
    text + "]"
}

/// Every level has its members in falling order; the innermost holds most of the bytes.
fn nested() -> String {
    let inner = flat_object(BIG - 120 * 20);
    format!("{}{inner}{}", "{\"z\":1,\"m\":".repeat(119), ",\"a\":2}".repeat(119))
}

/// The most index entries that a body can ask for.
fn small_objects() -> String {
    let object = r#"{"b":1,"a":2},"#;
    format!("[{}0]", object.repeat(BIG / object.len()))
}
