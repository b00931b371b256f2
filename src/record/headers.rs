//! Which headers of an answer are kept.

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};

/// Says which headers of an answer are stored and sent again.
///
/// By default everything but what belongs to one delivery rather than to the operation:
///
/// - connection and framing: `Connection` and the fields that it names, `Keep-Alive`, `Proxy-Connection`, `TE`,
///   `Transfer-Encoding`, `Upgrade` (RFC 9110 section 7.6.1), `Content-Length`, which the replay computes anew;
/// - credentials and challenges: `Set-Cookie`, `WWW-Authenticate`, `Proxy-Authenticate`, `Authentication-Info`,
///   `Proxy-Authentication-Info`;
/// - what is true once: `Date`, `Age`, `Via`, `Alt-Svc`, `Server-Timing`, `Retry-After`;
/// - request and trace ids, rate limits, `Access-Control-*`.
///
/// `Trailer` is kept: HTTP/1.1 servers send only the trailers that it announces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderFilter {
    kept: Vec<HeaderName>,
    dropped: Vec<HeaderName>,
}

/// Would break the message that they are replayed in, or say of a finished operation that it should be tried again.
const NEVER: [&str; 8] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "retry-after",
    "te",
    "transfer-encoding",
    "upgrade",
];

const DROPPED: [&str; 29] = [
    "age",
    "alt-svc",
    "authentication-info",
    "date",
    "proxy-authenticate",
    "proxy-authentication-info",
    "server-timing",
    "set-cookie",
    "via",
    "www-authenticate",
    // Request and trace ids.
    "b3",
    "baggage",
    "cf-ray",
    "correlation-id",
    "request-id",
    "sentry-trace",
    "trace-id",
    "traceparent",
    "traceresponse",
    "tracestate",
    "uber-trace-id",
    "x-amz-cf-id",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-request-id",
    "x-trace-id",
    // Rate limits.
    "ratelimit",
];

const DROPPED_PREFIXES: [&str; 6] =
    ["access-control-", "ratelimit-", "x-b3-", "x-datadog-", "x-rate-limit-", "x-ratelimit-"];

impl HeaderFilter {
    /// Keeps a header that is left out by default. Connection, framing and `Retry-After` are left out all the same.
    #[must_use]
    pub fn keep(mut self, name: HeaderName) -> Self {
        self.dropped.retain(|dropped| *dropped != name);
        self.kept.push(name);
        self
    }

    /// Leaves out a header. The last call for a name decides.
    #[must_use]
    pub fn drop(mut self, name: HeaderName) -> Self {
        self.kept.retain(|kept| *kept != name);
        self.dropped.push(name);
        self
    }

    /// The headers to keep, in their order and with their repeats.
    #[must_use]
    pub fn filter(&self, headers: &HeaderMap) -> HeaderMap {
        let of_connection = named_by_connection(headers);
        let mut kept = HeaderMap::new();
        for (name, value) in headers {
            if self.keeps(name) && !of_connection.contains(name) {
                kept.append(name, value.clone());
            }
        }
        kept
    }

    fn keeps(&self, name: &HeaderName) -> bool {
        let text = name.as_str();
        if NEVER.contains(&text) || self.dropped.contains(name) {
            return false;
        }
        self.kept.contains(name)
            || !(DROPPED.contains(&text) || DROPPED_PREFIXES.iter().any(|prefix| text.starts_with(prefix)))
    }
}

/// The fields that hold for one connection only (RFC 9110 section 7.6.1). What is no field name names none.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .map(HeaderValue::as_bytes)
        .flat_map(|value| value.split(|&byte| byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use http::header::{CONNECTION, LINK, LOCATION, RETRY_AFTER, SET_COOKIE};

    use super::*;

    fn headers(list: &[(&'static str, &'static [u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        headers.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn what_belongs_to_one_delivery_is_left_out() {
        // H38, cases R02, R06 and R19
        for name in [
            "connection",
            "keep-alive",
            "proxy-connection",
            "te",
            "transfer-encoding",
            "upgrade",
            "content-length",
            "date",
            "set-cookie",
            "www-authenticate",
            "proxy-authenticate",
            "authentication-info",
            "proxy-authentication-info",
            "retry-after",
            "x-request-id",
            "request-id",
            "x-correlation-id",
            "traceparent",
            "tracestate",
            "b3",
            "x-b3-traceid",
            "x-amzn-trace-id",
            "ratelimit",
            "ratelimit-policy",
            "ratelimit-remaining",
            "x-ratelimit-reset",
            "x-rate-limit-limit",
            "server-timing",
            "access-control-allow-origin",
            "access-control-expose-headers",
            "via",
            "age",
            "alt-svc",
        ] {
            assert!(HeaderFilter::default().filter(&headers(&[(name, b"x")])).is_empty(), "{name}");
        }
    }

    #[test]
    fn what_belongs_to_the_operation_is_kept() {
        // H38, case R01
        for name in [
            "location",
            "etag",
            "last-modified",
            "content-type",
            "content-encoding",
            "content-language",
            "link",
            "vary",
            "cache-control",
            "trailer",
            "x-order",
            "grpc-status",
            "x-b3",
            "accessory",
        ] {
            assert_eq!(names(&HeaderFilter::default().filter(&headers(&[(name, b"x")]))), [name]);
        }
    }

    #[test]
    fn order_repeats_and_bytes_are_kept() {
        // H38, cases R03 and D09
        let all = headers(&[("link", b"a"), ("date", b"d"), ("location", b"/\xff"), ("link", b"b"), ("etag", b"e")]);
        let kept = HeaderFilter::default().filter(&all);
        let mut expected = all;
        expected.remove("date");
        assert_eq!(kept, expected);
        assert_eq!(names(&kept), ["link", "link", "location", "etag"]);
        assert_eq!(kept.get_all(LINK).iter().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn fields_named_by_connection_are_left_out() {
        // H38
        let all = headers(&[
            ("connection", b"close, X-Hop"),
            ("connection", b" \xff , x-other,"),
            ("x-hop", b"1"),
            ("x-other", b"1"),
            ("x-kept", b"1"),
        ]);
        assert_eq!(names(&HeaderFilter::default().filter(&all)), ["x-kept"]);
        let filter = HeaderFilter::default().keep(HeaderName::from_static("x-hop"));
        assert_eq!(names(&filter.filter(&all)), ["x-kept"]);
    }

    #[test]
    fn the_lists_can_be_changed_both_ways() {
        // H38
        let all = headers(&[("set-cookie", b"a=b"), ("location", b"/"), ("x-ratelimit-reset", b"1")]);
        let filter =
            HeaderFilter::default().keep(SET_COOKIE).keep(HeaderName::from_static("x-ratelimit-reset")).drop(LOCATION);
        assert_eq!(names(&filter.filter(&all)), ["set-cookie", "x-ratelimit-reset"]);
        assert_eq!(names(&filter.drop(SET_COOKIE).keep(LOCATION).filter(&all)), ["location", "x-ratelimit-reset"]);
    }

    #[test]
    fn framing_and_retry_after_are_never_kept() {
        // H32, H38
        let filter = HeaderFilter::default().keep(RETRY_AFTER).keep(CONNECTION).keep(header::CONTENT_LENGTH);
        assert!(
            filter
                .filter(&headers(&[("retry-after", b"1"), ("connection", b"close"), ("content-length", b"0")]))
                .is_empty()
        );
    }
}
