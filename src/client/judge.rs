//! What an answer says about another attempt (C2): pure.

use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use super::policy::RetryPolicy;
use crate::retry_after::retry_after;

/// Whether another attempt may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// This is the answer.
    Final,
    /// Try again.
    Again,
    /// The server asks to wait, and says how long if that can be read.
    Wait(Option<Duration>),
}

/// A word of the service on its own answer; the first that is there counts.
const OVERRIDES: [&str; 2] = ["x-should-retry", "stripe-should-retry"];

pub(super) fn judge(policy: &RetryPolicy, status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Sign {
    let is_final = status.as_u16() < 400
        || matches!(status, StatusCode::BAD_REQUEST | StatusCode::GONE | StatusCode::UNPROCESSABLE_ENTITY)
        || !overridden(headers).unwrap_or_else(|| by_status(policy, status, headers));
    if is_final {
        Sign::Final
    } else if headers.contains_key(RETRY_AFTER) {
        Sign::Wait(retry_after(headers, now))
    } else {
        Sign::Again
    }
}

fn overridden(headers: &HeaderMap) -> Option<bool> {
    OVERRIDES.iter().find_map(|name| match headers.get(*name)?.as_bytes().trim_ascii() {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    })
}

fn by_status(policy: &RetryPolicy, status: StatusCode, headers: &HeaderMap) -> bool {
    match status.as_u16() {
        408 | 425 | 429 | 502 | 503 | 504 => true,
        409 => policy.retries_bare_409 || headers.contains_key(RETRY_AFTER),
        500 => policy.retries_500,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(policy: &RetryPolicy, status: u16, fields: &[(&'static str, &'static str)]) -> Sign {
        let headers = fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        judge(policy, StatusCode::from_u16(status).unwrap(), &headers, SystemTime::UNIX_EPOCH)
    }

    // C2, H42
    #[test]
    fn every_status_has_its_sign() {
        let policy = RetryPolicy::new();
        for status in 100..600 {
            let again = [408, 425, 429, 502, 503, 504].contains(&status);
            assert_eq!(sign(&policy, status, &[]), if again { Sign::Again } else { Sign::Final }, "{status}");
            let waits = again || status == 409;
            let expected = if waits { Sign::Wait(Some(Duration::from_secs(2))) } else { Sign::Final };
            assert_eq!(sign(&policy, status, &[("retry-after", "2")]), expected, "{status}");
        }
        assert_eq!(sign(&policy, 409, &[("retry-after", "soon")]), Sign::Wait(None));
        assert_eq!(sign(&policy.clone().retry_500(), 500, &[]), Sign::Again);
        assert_eq!(sign(&RetryPolicy::stripe(), 409, &[]), Sign::Again);
        assert_eq!(sign(&RetryPolicy::stripe(), 500, &[]), Sign::Final);
    }

    // C2
    #[test]
    fn the_service_overrides_both_ways_but_never_what_cannot_change() {
        let policy = RetryPolicy::new();
        for name in OVERRIDES {
            assert_eq!(sign(&policy, 503, &[(name, "false"), ("retry-after", "1")]), Sign::Final);
            for status in [404, 409, 500, 501] {
                assert_eq!(sign(&policy, status, &[(name, "true")]), Sign::Again, "{status}");
            }
            for status in [200, 201, 304, 400, 410, 422] {
                assert_eq!(sign(&policy, status, &[(name, "true"), ("retry-after", "1")]), Sign::Final, "{status}");
            }
            assert_eq!(sign(&policy, 503, &[(name, "perhaps")]), Sign::Again);
        }
        assert_eq!(sign(&policy, 500, &[("x-should-retry", "false"), ("stripe-should-retry", "true")]), Sign::Final);
    }
}
