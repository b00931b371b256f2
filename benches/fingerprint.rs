//! Speed of canonical fingerprints against reading the body with `serde_json` and hashing its raw bytes.
//!
//! Prints ratios: 1.0 is as fast as both together, 0.5 takes twice as long. Forms are compared with the hash alone, which
//! no fingerprint can be faster than.
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
        // Dropping the value counts: whoever reads a body this way drops it.
        let times = compare("application/json", body.as_bytes(), &Fingerprinter::new(), |body| {
            let _ = black_box(serde_json::from_slice::<serde_json::Value>(body));
            black_box(Sha256::digest(body));
        });
        print(name, body.len(), "serde_json + SHA-256", times);
    }
    let body = flat_object(BIG);
    if let Ok(fingerprinter) = Fingerprinter::new().without_pointers(["/name_3c88596c", "/none/at/all"]) {
        let times = compare("application/json", body.as_bytes(), &fingerprinter, |body| {
            let _ = black_box(serde_json::from_slice::<serde_json::Value>(body));
            black_box(Sha256::digest(body));
        });
        print("the flat one, two pointers", body.len(), "serde_json + SHA-256", times);
    }
    for (name, body) in [
        ("form, a file of 2 MiB", form(1, BIG)),
        ("form, 20 fields of 100 B", form(20, 100)),
        ("form, fields of 8 B, 2 MiB", form(BIG / 64, 8)),
        ("form, a head of 2 MiB", form_head()),
        ("form, near delimiters, 2 MiB", near_delimiters()),
    ] {
        let times = compare("multipart/form-data; boundary=----boundary", &body, &Fingerprinter::new(), |body| {
            black_box(Sha256::digest(body));
        });
        print(name, body.len(), "SHA-256", times);
    }
}

fn print(name: &str, size: usize, what: &str, (ours, theirs): (Duration, Duration)) {
    println!(
        "{name:28} {size:8} B  ours {ours:>10.1?}  {what:20} {theirs:>10.1?}  ratio {:.2}",
        theirs.as_secs_f64() / ours.as_secs_f64()
    );
}

/// The best times of several rounds: ours, then theirs.
fn compare(
    content_type: &'static str,
    body: &[u8],
    fingerprinter: &Fingerprinter,
    theirs: impl Fn(&[u8]),
) -> (Duration, Duration) {
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))]);
    let request = RequestView { method: &Method::POST, path: "/v1/payments", query: None, headers: &headers, body };
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
            theirs(black_box(body));
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

fn form(parts: usize, size: usize) -> Vec<u8> {
    let mut body = Vec::new();
    for part in 0..parts {
        let head = format!("------boundary\r\nContent-Disposition: form-data; name=\"f{part}\"\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend((0..size).map(|at| u8::try_from(at * 31 % 251).unwrap_or_default()));
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"------boundary--\r\n");
    body
}

/// The most header fields that a body can have.
fn form_head() -> Vec<u8> {
    format!("------boundary\r\n{}\r\nx\r\n------boundary--\r\n", "a:\r\n".repeat(BIG / 4)).into_bytes()
}

/// Content that is nearly a delimiter, over and over.
fn near_delimiters() -> Vec<u8> {
    let near = "\r\n------boundarx";
    format!("------boundary\r\n\r\n{}\r\n------boundary--\r\n", near.repeat(BIG / near.len())).into_bytes()
}
