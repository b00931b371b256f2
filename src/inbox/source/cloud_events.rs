//! CloudEvents 1.0: `source` and `id` together name an event (specification, section "Required attributes").

use std::borrow::Cow;

use super::pointer::Pointer;
use super::{IdError, Incoming};

/// Media types that begin so are CloudEvents in structured mode, or a batch of them.
const STRUCTURED: &[u8] = b"application/cloudevents";
const JSON: &[u8] = b"+json";

/// The event's source and id. Structured mode is known by the content type; everything else is binary mode.
pub(super) fn read(message: &(impl Incoming + ?Sized)) -> Result<(String, String), IdError> {
    if is_structured(message.content_type()?.as_deref())? {
        let member = |pointer: &str| Pointer::new(pointer).string_in(message.payload());
        return Ok((member("/source")?, member("/id")?));
    }
    let attribute = |name: &str| {
        let what = format!("attribute {name} of a CloudEvent");
        let value = message.cloud_event_attribute(name)?.ok_or_else(|| IdError::absent(&what))?;
        String::from_utf8(value.into_owned()).map_err(|_| IdError::NotText(what))
    };
    Ok((attribute("source")?, attribute("id")?))
}

fn is_structured(content_type: Option<&[u8]>) -> Result<bool, IdError> {
    let media_type = content_type.unwrap_or_default().split(|byte| *byte == b';').next().unwrap_or_default();
    let media_type = media_type.trim_ascii().to_ascii_lowercase();
    match media_type.strip_prefix(STRUCTURED) {
        Some(JSON) => Ok(true),
        // `application/cloudevents`, its batches, and formats such as `+avro`.
        Some([] | [b'+' | b'-', ..]) => Err(IdError::Unsupported),
        Some(_) | None => Ok(false),
    }
}

/// A field's value as the HTTP binding reads it: a quoted string without its quotes, then percent-decoded once. What is
/// no escape stays as it is.
pub(super) fn percent_decoded(value: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    let is_quoted = value.len() >= 2 && value.starts_with(b"\"") && value.ends_with(b"\"");
    if !is_quoted && !value.contains(&b'%') {
        return value;
    }
    let raw = if is_quoted { unquoted(&value[1..value.len() - 1]) } else { value.into_owned() };
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw.as_slice();
    while let [first, tail @ ..] = rest {
        match tail {
            [high, low, after @ ..] if *first == b'%' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                decoded.push(digit(*high) << 4 | digit(*low));
                rest = after;
            }
            _ => {
                decoded.push(*first);
                rest = tail;
            }
        }
    }
    decoded.into()
}

fn unquoted(inner: &[u8]) -> Vec<u8> {
    let mut bytes = inner.iter();
    let mut out = Vec::with_capacity(inner.len());
    while let Some(byte) = bytes.next() {
        out.push(if *byte == b'\\' { bytes.next().copied().unwrap_or(b'\\') } else { *byte });
    }
    out
}

/// The value of a hexadecimal digit.
fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        _ => byte - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn request(fields: &[(&'static str, &'static str)], body: &'static str) -> http::Request<Bytes> {
        let mut request = http::Request::builder();
        for (name, value) in fields {
            request = request.header(*name, http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        request.body(Bytes::from_static(body.as_bytes())).unwrap()
    }

    fn pair(source: &str, id: &str) -> Result<(String, String), IdError> {
        Ok((source.to_owned(), id.to_owned()))
    }

    // M9
    #[test]
    fn one_event_has_one_identity_in_both_modes() {
        let binary = request(&[("ce-id", "A-1"), ("ce-source", "/psp/caf%C3%A9"), ("content-type", "text/plain")], "x");
        let structured = request(
            &[("content-type", "Application/CloudEvents+JSON; charset=UTF-8"), ("ce-id", "of somebody else")],
            r#"{"specversion":"1.0","id":"A-1","source":"/psp/caf\u00e9","data":{"id":"not this"}}"#,
        );
        assert_eq!(read(&binary), pair("/psp/café", "A-1"));
        assert_eq!(read(&structured), pair("/psp/café", "A-1"));
    }

    // M2
    #[test]
    fn what_is_missing_or_there_twice_is_said() {
        assert!(matches!(read(&request(&[("ce-id", "1")], "")), Err(IdError::Absent(what)) if what.contains("source")));
        assert!(matches!(read(&request(&[("ce-source", "s")], "")), Err(IdError::Absent(what)) if what.contains("id")));
        let twice = request(&[("ce-id", "1"), ("ce-source", "s"), ("ce-id", "1")], "");
        assert!(matches!(read(&twice), Err(IdError::Repeated(_))));
        let json = |body| read(&request(&[("content-type", "application/cloudevents+json")], body));
        assert!(matches!(json(r#"{"source":"s"}"#), Err(IdError::Absent(_))));
        assert!(matches!(json(r#"{"source":"s","id":"1","id":"2"}"#), Err(IdError::Repeated(_))));
        assert!(matches!(json(r#"{"source":"s","id":1}"#), Err(IdError::NotText(_))));
        assert_eq!(json("not JSON"), Err(IdError::NotJson));
    }

    #[test]
    fn batches_and_other_formats_are_refused() {
        for media_type in
            ["application/cloudevents-batch+json", "application/cloudevents+avro", "application/cloudevents"]
        {
            assert_eq!(
                read(&request(&[("content-type", media_type)], "[]")),
                Err(IdError::Unsupported),
                "{media_type}"
            );
        }
        assert_eq!(is_structured(Some(b"application/json")), Ok(false));
        assert_eq!(is_structured(Some(b"application/cloudeventsish")), Ok(false));
    }

    // CloudEvents HTTP binding, section 3.1.3.2
    #[test]
    fn fields_are_unquoted_and_decoded_once() {
        let decoded =
            |text: &'static str| String::from_utf8(percent_decoded(text.as_bytes().into()).into_owned()).unwrap();
        assert_eq!(decoded("Euro%20%E2%82%AC%20%F0%9F%98%80"), "Euro € 😀");
        assert_eq!(decoded("%2525"), "%25");
        assert_eq!(decoded(r#""a \"b\" %20c""#), r#"a "b"  c"#);
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%zz%4"), "%zz%4");
        assert_eq!(decoded("\""), "\"");
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        let request = request(&[("ce-id", "%FF"), ("ce-source", "s")], "");
        assert!(matches!(read(&request), Err(IdError::NotText(_))));
    }
}
