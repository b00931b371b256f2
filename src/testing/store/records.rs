//! What a stored answer looks like when it comes back.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::Harness;
use super::support::{answer, completed, replayed, request};
use crate::record::{Answer, AnswerBody};

/// Status, header fields with repeats and bytes of any kind, body, trailers (H37; cases R03, R11, R12).
pub async fn an_answer_comes_back_byte_for_byte<H: Harness>(harness: &H) {
    let store = harness.store().await;
    let mut headers = HeaderMap::new();
    headers.append("link", HeaderValue::from_static("</a>; rel=next"));
    headers.append("x-between", HeaderValue::from_static(""));
    headers.append("link", HeaderValue::from_static("</b>; rel=prev"));
    let obs_text = HeaderValue::from_bytes(b"caf\xe9 \x80\xff").unwrap_or_else(|_| HeaderValue::from_static(""));
    headers.append("x-obs-text", obs_text);
    let mut trailers = HeaderMap::new();
    trailers.append("grpc-status", HeaderValue::from_static("0"));
    let body: Vec<u8> = (0..=255).collect();
    let stored = Answer {
        status: StatusCode::IM_USED,
        headers,
        body: AnswerBody::Kept(Bytes::from(body)),
        trailers: Some(trailers),
    };
    completed(&store, &request("bytes", 1), stored.clone()).await;
    assert_eq!(replayed(&store, &request("bytes", 1)).await.answer, stored);
}

/// An answer that was not kept is known to be done (H40, case R09).
pub async fn an_answer_that_was_not_kept_stays_so<H: Harness>(harness: &H) {
    let store = harness.store().await;
    let stored = Answer { body: AnswerBody::NotKept, ..answer("") };
    completed(&store, &request("not kept", 1), stored.clone()).await;
    assert_eq!(replayed(&store, &request("not kept", 1)).await.answer, stored);
}

/// A mebibyte of no pattern.
pub async fn a_large_answer_comes_back_whole<H: Harness>(harness: &H) {
    let store = harness.store().await;
    let mut state = 1_u32;
    let body: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    })
    .take(1 << 20)
    .collect();
    let stored = Answer { body: AnswerBody::Kept(Bytes::from(body)), ..answer("") };
    completed(&store, &request("large", 1), stored.clone()).await;
    assert!(replayed(&store, &request("large", 1)).await.answer == stored, "a large answer has changed");
}

/// Completion keeps the claim's fingerprint (S2, case F12).
pub async fn completion_keeps_the_claims_fingerprint<H: Harness>(harness: &H) {
    let store = harness.store().await;
    let request = request("fingerprint", 1);
    completed(&store, &request, answer("done")).await;
    assert_eq!(replayed(&store, &request).await.fingerprint, *request.fingerprint());
}
