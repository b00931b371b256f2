//! What an endpoint's status means for an event.

use std::time::SystemTime;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use crate::outbox::publish::{Answer, Reason};
use crate::retry_after::retry_after;

pub(super) fn judge(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Answer {
    let reason = Reason::Status(status.as_u16());
    match status.as_u16() {
        200..=299 => Answer::ACKED,
        408 | 425 | 429 | 500..=599 => Answer::Unavailable { retry_after: retry_after(headers, now) },
        409 if headers.contains_key(RETRY_AFTER) => Answer::Unavailable { retry_after: retry_after(headers, now) },
        // Keys, rights and routes, which somebody may set right.
        401 | 403 | 404 | 405 | 407 | 421 => Answer::refused(reason),
        413 => Answer::never(Reason::TooLarge),
        300..=499 => Answer::never(reason),
        // No status of HTTP (RFC 9110 section 15): nobody knows what became of it.
        _ => Answer::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn judged(status: u16, retry_after: Option<&str>) -> Answer {
        let headers = retry_after.map(|value| (RETRY_AFTER, value.parse().unwrap())).into_iter().collect();
        judge(StatusCode::from_u16(status).unwrap(), &headers, SystemTime::UNIX_EPOCH)
    }

    // M34: every status there is.
    #[test]
    fn every_status_has_its_meaning() {
        for status in 100..=999 {
            let status_is = Reason::Status(status);
            let expected = match status {
                200..=299 => Answer::ACKED,
                408 | 425 | 429 | 500..=599 => Answer::UNAVAILABLE,
                401 | 403 | 404 | 405 | 407 | 421 => Answer::refused(status_is),
                413 => Answer::never(Reason::TooLarge),
                300..=499 => Answer::never(status_is),
                _ => Answer::Unknown,
            };
            assert_eq!(judged(status, None), expected, "{status}");
        }
    }

    #[test]
    fn retry_after_is_passed_on() {
        let waits = |seconds| Answer::Unavailable { retry_after: Some(Duration::from_secs(seconds)) };
        for status in [408, 409, 425, 429, 500, 503] {
            assert_eq!(judged(status, Some("7")), waits(7), "{status}");
        }
        assert_eq!(judged(503, Some("Thu, 01 Jan 1970 00:00:09 GMT")), waits(9));
        assert_eq!(judged(409, Some("soon")), Answer::UNAVAILABLE);
        assert_eq!(judged(404, Some("7")), Answer::refused(Reason::Status(404)));
    }
}
