//! What the headers say of the body: media type, boundary and coding.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::multipart;

/// Media type and content coding of a body, in lower case.
#[derive(Debug, PartialEq)]
pub(super) struct Content<'h> {
    /// `type/subtype` of each Content-Type line, parameters left out (RFC 9110 section 8.3.1). More than one line is an
    /// error of the client's, and is kept apart from one line.
    essences: Vec<Lower<'h>>,
    /// The codings in the order that they were applied in (RFC 9110 section 8.4), `identity` left out.
    codings: Vec<Lower<'h>>,
    /// What separates the parts of a `multipart/form-data` body.
    boundary: Option<Vec<u8>>,
}

impl<'h> Content<'h> {
    pub(super) fn of(headers: &'h HeaderMap) -> Self {
        let essences: Vec<_> = headers.get_all(CONTENT_TYPE).iter().map(|value| essence(value.as_bytes())).collect();
        let codings = headers
            .get_all(CONTENT_ENCODING)
            .iter()
            .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
            .map(|coding| lower(coding.trim_ascii()))
            .filter(|coding| !matches!(coding.as_ref(), b"" | b"identity"))
            .collect();
        let boundary = match (essences.as_slice(), headers.get(CONTENT_TYPE)) {
            ([essence], Some(value)) if essence.as_ref() == b"multipart/form-data" => {
                multipart::boundary(value.as_bytes())
            }
            _ => None,
        };
        Content { essences, codings, boundary }
    }

    pub(super) fn essences(&self) -> &[Lower<'h>] {
        &self.essences
    }

    pub(super) fn codings(&self) -> &[Lower<'h>] {
        &self.codings
    }

    /// Whether the body's bytes are said to be JSON text: `application/json` or a `+json` suffix (RFC 6839 section
    /// 3.1), not compressed.
    pub(super) fn is_plain_json(&self) -> bool {
        let [essence] = self.essences.as_slice() else {
            return false;
        };
        self.codings.is_empty()
            && (essence.as_ref() == b"application/json" || (essence.contains(&b'/') && essence.ends_with(b"+json")))
    }

    /// The boundary of a body that is said to be `multipart/form-data` (RFC 7578 section 4.1), not compressed.
    pub(super) fn plain_form_boundary(&self) -> Option<&[u8]> {
        self.boundary.as_deref().filter(|_| self.codings.is_empty())
    }
}

fn essence(value: &[u8]) -> Lower<'_> {
    let end = value.iter().position(|&byte| byte == b';').unwrap_or(value.len());
    lower(value[..end].trim_ascii())
}

/// In lower case: nearly always as it was sent.
type Lower<'h> = Cow<'h, [u8]>;

fn lower(text: &[u8]) -> Lower<'_> {
    if text.iter().any(u8::is_ascii_uppercase) { Cow::Owned(text.to_ascii_lowercase()) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn content(lines: &[(HeaderName, &str)]) -> Content<'static> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        let Content { essences, codings, boundary } = Content::of(&headers);
        let owned = |texts: Vec<Lower<'_>>| texts.into_iter().map(|text| Cow::Owned(text.into_owned())).collect();
        Content { essences: owned(essences), codings: owned(codings), boundary }
    }

    #[test]
    fn the_media_type_counts_without_case_and_parameters() {
        // H14
        let plain = content(&[(CONTENT_TYPE, "application/json")]);
        assert_eq!(content(&[(CONTENT_TYPE, " Application/JSON ; charset=UTF-8")]), plain);
        assert_ne!(content(&[]), plain);
        assert_ne!(content(&[(CONTENT_TYPE, "")]), content(&[]));
        assert_ne!(content(&[(CONTENT_TYPE, "text/plain")]), plain);
    }

    #[test]
    fn codings_count_in_order_without_case_and_identity() {
        // H14
        let gzip = content(&[(CONTENT_ENCODING, "gzip")]);
        assert_eq!(content(&[(CONTENT_ENCODING, "identity, GZIP")]), gzip);
        assert_eq!(content(&[(CONTENT_ENCODING, "identity")]), content(&[]));
        let two = content(&[(CONTENT_ENCODING, "gzip, br")]);
        assert_eq!(content(&[(CONTENT_ENCODING, "gzip"), (CONTENT_ENCODING, "br")]), two);
        assert_ne!(content(&[(CONTENT_ENCODING, "br, gzip")]), two);
    }

    #[test]
    fn json_is_application_json_and_the_json_suffix() {
        // H15
        for (media_type, is_json) in [
            ("application/json", true),
            ("application/json; charset=utf-8", true),
            ("application/merge-patch+json", true),
            ("application/vnd.api+JSON; ext=x", true),
            ("application/json-seq", false),
            ("application/x-ndjson", false),
            ("text/plain", false),
            ("+json", false),
        ] {
            assert_eq!(content(&[(CONTENT_TYPE, media_type)]).is_plain_json(), is_json, "{media_type}");
        }
        assert!(!content(&[]).is_plain_json());
    }

    #[test]
    fn a_form_has_a_boundary_unless_it_is_compressed_or_typed_twice() {
        // H16
        let form = (CONTENT_TYPE, "Multipart/Form-Data; boundary=b");
        assert_eq!(content(std::slice::from_ref(&form)).plain_form_boundary(), Some(&b"b"[..]));
        assert_eq!(content(&[form.clone(), (CONTENT_ENCODING, "identity")]).plain_form_boundary(), Some(&b"b"[..]));
        assert_eq!(content(&[form.clone(), (CONTENT_ENCODING, "gzip")]).plain_form_boundary(), None);
        assert_eq!(content(&[form.clone(), form]).plain_form_boundary(), None);
        assert_eq!(content(&[(CONTENT_TYPE, "multipart/mixed; boundary=b")]).plain_form_boundary(), None);
    }

    #[test]
    fn a_compressed_body_is_not_plain_json() {
        // H15
        let json = (CONTENT_TYPE, "application/json");
        assert!(!content(&[json.clone(), (CONTENT_ENCODING, "gzip")]).is_plain_json());
        assert!(content(&[json.clone(), (CONTENT_ENCODING, "identity")]).is_plain_json());
        assert!(!content(&[json.clone(), json]).is_plain_json());
    }
}
