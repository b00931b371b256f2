//! `Retry-After` (RFC 9110 section 10.2.3), in both forms.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{DATE, HeaderName, RETRY_AFTER};

/// How long the answer asks to wait; `None` where it does not say, or not so that it can be read.
///
/// A date is read against the answer's own `Date`, so that a clock that is wrong here does no harm; `now` stands in where
/// the answer has none. A date that has passed is no wait.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // Beyond u64 is for ever.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let from = date(headers, &DATE).unwrap_or(now);
    Some(until.duration_since(from).unwrap_or(Duration::ZERO))
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(retry_after: &str, date: Option<&str>) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry_after.parse().unwrap());
        if let Some(date) = date {
            headers.insert(DATE, date.parse().unwrap());
        }
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:00 GMT").unwrap();
        super::retry_after(&headers, now)
    }

    // C2
    #[test]
    fn seconds_and_dates() {
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!(read("0", None), seconds(0));
        assert_eq!(read("120", None), seconds(120));
        assert_eq!(read("99999999999999999999999", None), seconds(u64::MAX));
        let at = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(read(at, None), seconds(37));
        // Against its own Date, however wrong that or our clock is.
        assert_eq!(read(at, Some("Sun, 06 Nov 1994 08:49:30 GMT")), seconds(7));
        assert_eq!(read(at, Some("Sun, 06 Nov 1994 09:00:00 GMT")), seconds(0));
        // The obsolete forms of dates are dates.
        assert_eq!(read("Sunday, 06-Nov-94 08:49:37 GMT", None), seconds(37));
        assert_eq!(read("Sun Nov  6 08:49:37 1994", None), seconds(37));
        for text in ["", "-1", "1.5", "soon", "1, 2"] {
            assert_eq!(read(text, None), None, "{text}");
        }
        assert_eq!(super::retry_after(&HeaderMap::new(), SystemTime::UNIX_EPOCH), None);
    }
}
