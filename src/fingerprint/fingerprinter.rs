//! How requests are fingerprinted: the options and the order of the parts.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;

use super::content::Content;
use super::json::Canonical;
use super::multipart::{self, Part};
use super::pointers::Pointers;
use super::secret::Secret;
use super::transcript::Transcript;
use super::{Fingerprint, PointerError, Profile, RequestView};

/// Says what of a request counts, and computes fingerprints.
///
/// Method, original path and raw query always count. By default the body counts too, with its media type and content
/// coding: JSON by value, `multipart/form-data` by its parts, everything else byte for byte.
///
/// ```
/// use http::{HeaderMap, HeaderValue, Method, header::CONTENT_TYPE};
/// use idempotency::fingerprint::{Fingerprinter, Match, RequestView};
///
/// let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
/// let view = |body: &'static str| RequestView {
///     method: &Method::POST,
///     path: "/payments",
///     query: None,
///     headers: &headers,
///     body: body.as_bytes(),
/// };
/// let fingerprinter = Fingerprinter::new();
/// let first = fingerprinter.fingerprint(&view(r#"{"amount": 10.0, "to": "a"}"#));
/// let retry = fingerprinter.fingerprint(&view(r#"{"to":"a","amount":10}"#));
/// assert_eq!(retry.compare(&first), Match::Same);
/// ```
#[derive(Clone)]
pub struct Fingerprinter {
    body: Body,
    /// Sorted, each once: the order of the setters must not matter.
    headers: Vec<HeaderName>,
    /// What does not count of JSON by value.
    left_out: Pointers,
    secret: Option<Secret>,
    profile: Profile,
}

/// How the body counts.
#[derive(Clone)]
enum Body {
    Canonical,
    Raw,
    Ignored,
    Custom { version: u64, bytes: Arc<Custom> },
}

type Custom = dyn Fn(&RequestView<'_>) -> Vec<u8> + Send + Sync;

/// Tags of the transcript; written to stores by way of the digest, so they never change within an algorithm version.
mod tag {
    pub(super) const NO_QUERY: u8 = 0;
    pub(super) const QUERY: u8 = 1;
    pub(super) const BODY_RAW: u8 = 0;
    pub(super) const BODY_CANONICAL_JSON: u8 = 1;
    pub(super) const BODY_IGNORED: u8 = 2;
    pub(super) const BODY_CUSTOM: u8 = 3;
    pub(super) const BODY_PARTS: u8 = 4;
    // In the options of a profile, after the names of headers, which hold neither.
    pub(super) const KEYED: u8 = 0;
    pub(super) const LEFT_OUT: u8 = 1;
}

impl Fingerprinter {
    /// The default: JSON by value, `multipart/form-data` by its parts, everything else byte for byte.
    #[must_use]
    pub fn new() -> Self {
        Self::with_body(Body::Canonical)
    }

    /// Hashes the bytes that `f` gives instead of the body and its headers. Method, path, query and headers added with
    /// [`header`](Fingerprinter::header) still count.
    ///
    /// `version` stands for the function in the profile: give another number whenever `f` changes, or requests in
    /// flight and stored ones are compared by two different functions.
    pub fn custom(version: u64, f: impl Fn(&RequestView<'_>) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::with_body(Body::Custom { version, bytes: Arc::new(f) })
    }

    fn with_body(body: Body) -> Self {
        let mut new = Fingerprinter {
            body,
            headers: Vec::new(),
            left_out: Pointers::default(),
            secret: None,
            profile: Profile::of_options(&[]),
        };
        new.profile = new.current_profile();
        new
    }

    /// Lets JSON and `multipart/form-data` count byte for byte too, as evidence of what exactly was sent requires.
    #[must_use]
    pub fn raw_body(mut self) -> Self {
        self.body = Body::Raw;
        self.profile = self.current_profile();
        self
    }

    /// Leaves out the body, its media type and its coding, for clients that cannot send the same bytes twice. A key
    /// that is reused with another body is then not noticed.
    #[must_use]
    pub fn key_only(mut self) -> Self {
        self.body = Body::Ignored;
        self.profile = self.current_profile();
        self
    }

    /// Lets all values of one more header count, in their order. May be called for several headers.
    #[must_use]
    pub fn header(mut self, name: HeaderName) -> Self {
        if let Err(at) = self.headers.binary_search_by(|present| present.as_str().cmp(name.as_str())) {
            self.headers.insert(at, name);
        }
        self.profile = self.current_profile();
        self
    }

    /// Leaves parts of JSON bodies out: the members and elements that these JSON pointers (RFC 6901) name, such as
    /// `/sent_at` or `/items/0/trace`. Whether such a member is there at all does not count either. May be called several
    /// times.
    ///
    /// It works where JSON counts by value. A body that counts byte for byte (compressed, malformed, a name twice in one
    /// object) counts whole, and so does every body under [`raw_body`](Fingerprinter::raw_body).
    ///
    /// # Errors
    ///
    /// [`PointerError`] for a text that is no pointer, and for the empty pointer.
    ///
    /// ```
    /// use idempotency::fingerprint::Fingerprinter;
    ///
    /// let fingerprinter = Fingerprinter::new().without_pointers(["/sent_at", "/client/attempt"])?;
    /// # Ok::<_, idempotency::fingerprint::PointerError>(())
    /// ```
    pub fn without_pointers<P: AsRef<str>>(
        mut self,
        pointers: impl IntoIterator<Item = P>,
    ) -> Result<Self, PointerError> {
        for pointer in pointers {
            self.left_out.insert(pointer.as_ref())?;
        }
        self.profile = self.current_profile();
        Ok(self)
    }

    /// Makes the digests with HMAC-SHA-256 (RFC 2104) under this secret. A plain digest of a body with little in it, such
    /// as a card number or a PIN, can be found by trying all bodies; whoever reads the store and not the secret cannot.
    ///
    /// Use at least 32 random bytes, the same ones in all processes: a short or guessable secret protects nothing, and
    /// this is not checked. Another secret is another [`Profile`]. While an old one is being replaced, tell the layer by
    /// [`previous_fingerprint`](crate::IdempotencyLayer::previous_fingerprint).
    #[must_use]
    pub fn keyed(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(Secret::new(secret.as_ref()));
        self.profile = self.current_profile();
        self
    }

    /// The profile that the fingerprints carry.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.profile
    }

    fn current_profile(&self) -> Profile {
        let mut options = match &self.body {
            Body::Canonical => vec![tag::BODY_CANONICAL_JSON],
            Body::Raw => vec![tag::BODY_RAW],
            Body::Ignored => vec![tag::BODY_IGNORED],
            Body::Custom { version, .. } => [&[tag::BODY_CUSTOM], version.to_be_bytes().as_slice()].concat(),
        };
        for name in &self.headers {
            options.extend_from_slice(name.as_str().as_bytes());
            // A header name holds no line feed.
            options.push(b'\n');
        }
        // Nothing is added where neither is set.
        if let Some(secret) = &self.secret {
            options.push(tag::KEYED);
            options.extend_from_slice(&secret.id());
        }
        if matches!(self.body, Body::Canonical) && !self.left_out.is_empty() {
            options.push(tag::LEFT_OUT);
            for text in self.left_out.texts() {
                options.extend_from_slice(&(text.len() as u64).to_be_bytes());
                options.extend_from_slice(text.as_bytes());
            }
        }
        Profile::of_options(&options)
    }

    /// Computes the fingerprint of a request.
    #[must_use]
    pub fn fingerprint(&self, request: &RequestView<'_>) -> Fingerprint {
        let mut transcript = Transcript::new(self.profile, self.secret.as_ref());
        transcript.bytes(request.method.as_str().as_bytes());
        transcript.bytes(request.path.as_bytes());
        match request.query {
            None => transcript.tag(tag::NO_QUERY),
            Some(query) => {
                transcript.tag(tag::QUERY);
                transcript.bytes(query.as_bytes());
            }
        }
        for name in &self.headers {
            let values = request.headers.get_all(name);
            transcript.count(values.iter().count());
            values.iter().for_each(|value| transcript.bytes(value.as_bytes()));
        }
        self.write_body(&mut transcript, request);
        Fingerprint::new(self.profile, transcript.finish())
    }

    fn write_body(&self, transcript: &mut Transcript, request: &RequestView<'_>) {
        let by_value = match &self.body {
            Body::Canonical => true,
            Body::Raw => false,
            Body::Ignored => return transcript.tag(tag::BODY_IGNORED),
            Body::Custom { bytes, .. } => {
                transcript.tag(tag::BODY_CUSTOM);
                return transcript.bytes(&bytes(request));
            }
        };
        let content = Content::of(request.headers);
        for parts in [content.essences(), content.codings()] {
            transcript.count(parts.len());
            parts.iter().for_each(|part| transcript.bytes(part));
        }
        if by_value && content.is_plain_json() {
            if let Some(canonical) = Canonical::scan(request.body, &self.left_out) {
                transcript.tag(tag::BODY_CANONICAL_JSON);
                return canonical.emit(&mut |bytes| transcript.self_delimiting(bytes));
            }
        } else if by_value
            && let Some(boundary) = content.plain_form_boundary()
            && let Some(parts) = multipart::scan(request.body, boundary)
        {
            transcript.tag(tag::BODY_PARTS);
            return write_parts(transcript, &parts);
        }
        transcript.tag(tag::BODY_RAW);
        transcript.bytes(request.body);
    }
}

/// Names without case, everything else as it was sent.
fn write_parts(transcript: &mut Transcript, parts: &[Part<'_>]) {
    transcript.count(parts.len());
    let mut lower = Vec::new();
    for part in parts {
        transcript.count(part.field_count());
        for (name, value) in part.fields() {
            lower.clear();
            lower.extend(name.iter().map(u8::to_ascii_lowercase));
            transcript.bytes(&lower);
            transcript.bytes(value);
        }
        transcript.bytes(part.content());
    }
}

impl Default for Fingerprinter {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Fingerprinter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fingerprinter")
            .field("body", &self.body)
            .field("headers", &self.headers)
            .field("left_out", &self.left_out.texts())
            .field("keyed", &self.secret.is_some())
            .field("profile", &self.profile)
            .finish()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Body::Canonical => f.write_str("Canonical"),
            Body::Raw => f.write_str("Raw"),
            Body::Ignored => f.write_str("Ignored"),
            Body::Custom { version, .. } => write!(f, "Custom(version {version})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT_LANGUAGE, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, COOKIE, IF_MATCH, USER_AGENT};
    use http::{HeaderMap, HeaderValue, Method};

    use super::*;

    /// A JSON request that tests change one part of.
    struct Request {
        method: Method,
        path: &'static str,
        query: Option<&'static str>,
        headers: HeaderMap,
        body: &'static str,
    }

    fn json(body: &'static str) -> Request {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        Request { method: Method::POST, path: "/orders", query: None, headers, body }
    }

    impl Request {
        fn with(mut self, name: HeaderName, value: &'static str) -> Self {
            self.headers.append(name, HeaderValue::from_static(value));
            self
        }

        fn by(&self, fingerprinter: &Fingerprinter) -> Fingerprint {
            fingerprinter.fingerprint(&RequestView {
                method: &self.method,
                path: self.path,
                query: self.query,
                headers: &self.headers,
                body: self.body.as_bytes(),
            })
        }
    }

    fn same(a: &Request, b: &Request) -> bool {
        a.by(&Fingerprinter::new()) == b.by(&Fingerprinter::new())
    }

    #[test]
    fn member_order_counts_in_the_raw_form_only() {
        // H15, H17, cases F01 and F02
        let (a, b) = (json(r#"{"a":1,"b":2}"#), json(r#"{"b":2, "a":1.0}"#));
        assert!(same(&a, &b));
        let raw = Fingerprinter::new().raw_body();
        assert_ne!(a.by(&raw), b.by(&raw));
        assert_eq!(a.by(&raw), json(r#"{"a":1,"b":2}"#).by(&raw));
    }

    #[test]
    fn method_path_and_query_count_in_every_form() {
        // H14, cases F04, F05, F06 and F07
        for fingerprinter in [
            Fingerprinter::new(),
            Fingerprinter::new().raw_body(),
            Fingerprinter::new().key_only(),
            Fingerprinter::custom(1, |_| Vec::new()),
        ] {
            let base = json("{}").by(&fingerprinter);
            for other in [
                Request { method: Method::PATCH, ..json("{}") },
                Request { path: "/orders/", ..json("{}") },
                Request { query: Some("to=a"), ..json("{}") },
                Request { query: Some("to=b"), ..json("{}") },
                Request { query: Some(""), ..json("{}") },
            ] {
                assert_eq!(
                    other.by(&fingerprinter).compare(&base),
                    super::super::Match::Different,
                    "{fingerprinter:?}"
                );
            }
        }
        assert!(!same(&Request { query: Some("to=a"), ..json("{}") }, &Request { query: Some("to=b"), ..json("{}") }));
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        // H14
        let a = Request { path: "/a", query: Some("b"), ..json("{}") };
        let b = Request { path: "/ab", query: Some(""), ..json("{}") };
        assert!(!same(&a, &b));
        let two = Fingerprinter::new().header(HeaderName::from_static("x-a")).header(HeaderName::from_static("x-b"));
        let a = json("{}").with(HeaderName::from_static("x-a"), "1").by(&two);
        let b = json("{}").with(HeaderName::from_static("x-b"), "1").by(&two);
        assert_ne!(a, b);
    }

    #[test]
    fn key_only_leaves_out_the_body_and_what_describes_it() {
        // H17, case F04
        let key_only = Fingerprinter::new().key_only();
        let other = json("[]").with(CONTENT_ENCODING, "gzip");
        assert_eq!(json("{}").by(&key_only), other.by(&key_only));
    }

    #[test]
    fn two_bodies_give_two_fingerprints() {
        // H14, case F08
        assert!(!same(&json(r#"{"amount":1}"#), &json(r#"{"amount":2}"#)));
        assert!(!same(&json(r#"{"amount":1}"#), &json("")));
    }

    #[test]
    fn media_type_and_coding_count() {
        // H14
        let text = Request { headers: HeaderMap::new(), ..json("{}") }.with(CONTENT_TYPE, "text/plain");
        assert!(!same(&json("{}"), &text));
        assert!(!same(&json("{}"), &json("{}").with(CONTENT_ENCODING, "gzip")));
        assert!(same(&json("{}"), &json("{}").with(CONTENT_ENCODING, "identity")));
    }

    #[test]
    fn credentials_preconditions_and_the_like_do_not_count() {
        // H14
        let other = json("{}")
            .with(AUTHORIZATION, "Bearer new")
            .with(COOKIE, "a=b")
            .with(USER_AGENT, "curl")
            .with(IF_MATCH, "\"2\"")
            .with(HeaderName::from_static("traceparent"), "00-1-2-00");
        assert!(same(&json("{}"), &other));
    }

    #[test]
    fn chosen_headers_count_with_all_their_values_in_order() {
        // H14
        let fingerprinter = Fingerprinter::new().header(ACCEPT_LANGUAGE);
        let base = json("{}").with(ACCEPT_LANGUAGE, "de").with(ACCEPT_LANGUAGE, "en").by(&fingerprinter);
        for other in [
            json("{}"),
            json("{}").with(ACCEPT_LANGUAGE, "de"),
            json("{}").with(ACCEPT_LANGUAGE, "en").with(ACCEPT_LANGUAGE, "de"),
            json("{}").with(ACCEPT_LANGUAGE, "deen"),
        ] {
            assert_ne!(other.by(&fingerprinter), base);
        }
    }

    #[test]
    fn a_body_that_is_not_canonical_counts_byte_for_byte() {
        // H15
        for (a, b) in
            [(r#"{"a":1,"a":1}"#, r#"{"a":1, "a":1}"#), ("{\"a\":1", "{\"a\": 1"), (r#"["\ud800"]"#, r#"["\uD800"]"#)]
        {
            assert!(same(&json(a), &json(a)), "{a}");
            assert!(!same(&json(a), &json(b)), "{a}");
        }
        let gzip = |body| json(body).with(CONTENT_ENCODING, "gzip");
        assert!(!same(&gzip("[1]"), &gzip("[1.0]")));
    }

    #[test]
    fn a_raw_body_never_equals_a_canonical_one() {
        // H15: a body that holds the canonical bytes of another one.
        let canonical = Canonical::scan(b"1", &Pointers::default()).unwrap().to_vec();
        let mut by_value = Transcript::new(Fingerprinter::new().profile(), None);
        by_value.tag(tag::BODY_CANONICAL_JSON);
        by_value.self_delimiting(&canonical);
        let mut raw = Transcript::new(Fingerprinter::new().profile(), None);
        raw.tag(tag::BODY_RAW);
        raw.bytes(&canonical);
        assert_ne!(by_value.finish(), raw.finish());
    }

    #[test]
    fn the_profile_follows_the_options_and_not_their_order() {
        // H18
        let (a, b) = (HeaderName::from_static("x-a"), HeaderName::from_static("x-b"));
        let new = Fingerprinter::new;
        assert_eq!(
            new().header(a.clone()).raw_body().header(b.clone()).header(a.clone()).profile(),
            new().header(b.clone()).header(a.clone()).raw_body().profile()
        );
        let profiles = [
            new().profile(),
            new().raw_body().profile(),
            new().key_only().profile(),
            new().header(a.clone()).profile(),
            new().header(a).header(b).profile(),
            new().header(HeaderName::from_static("x-ax-b")).profile(),
            Fingerprinter::custom(1, |_| Vec::new()).profile(),
            Fingerprinter::custom(2, |_| Vec::new()).profile(),
            new().keyed("a").profile(),
            new().keyed("b").profile(),
            new().raw_body().keyed("a").profile(),
            new().without_pointers(["/a"]).unwrap().profile(),
            new().without_pointers(["/a", "/b"]).unwrap().profile(),
            new().without_pointers(["/a/b"]).unwrap().profile(),
            new().without_pointers(["/a"]).unwrap().keyed("a").profile(),
        ];
        let distinct: std::collections::HashSet<_> = profiles.iter().collect();
        assert_eq!(distinct.len(), profiles.len());
        assert!(profiles.iter().all(|profile| profile.to_bytes()[0] == 1));
    }

    #[test]
    fn the_profile_names_the_set_of_pointers_and_only_where_they_work() {
        // H17, H18
        let new = Fingerprinter::new;
        let both = new().without_pointers(["/a", "/b"]).unwrap().profile();
        let twice = new().without_pointers(["/b"]).unwrap().without_pointers(["/a/c", "/a", "/b"]).unwrap().profile();
        assert_eq!(both, twice);
        assert_eq!(new().without_pointers([""; 0]).unwrap().profile(), new().profile());
        assert_eq!(new().without_pointers(["/a"]).unwrap().raw_body().profile(), new().raw_body().profile());
        assert_eq!(new().raw_body().without_pointers(["/a"]).unwrap().profile(), new().raw_body().profile());
    }

    #[test]
    fn pointers_leave_parts_of_json_out_and_nothing_else() {
        // H17
        let fingerprinter = Fingerprinter::new().without_pointers(["/sent_at"]).unwrap();
        let base = json(r#"{"sent_at":1,"to":"a"}"#).by(&fingerprinter);
        for body in [r#"{"to":"a", "sent_at":[2]}"#, r#"{"to":"a"}"#] {
            assert_eq!(json(body).by(&fingerprinter), base, "{body}");
        }
        for body in [r#"{"sent_at":1,"to":"b"}"#, r#"{"sent_at":1,"to":"a","x":{"sent_at":1}}"#, r#"[{"to":"a"}]"#] {
            assert_ne!(json(body).by(&fingerprinter), base, "{body}");
        }
        // No canonical form: every byte counts.
        for (a, b) in
            [(r#"{"sent_at":1,"#, r#"{"sent_at":2,"#), (r#"{"sent_at":1,"sent_at":1}"#, r#"{"sent_at":1,"sent_at":2}"#)]
        {
            assert_ne!(json(a).by(&fingerprinter), json(b).by(&fingerprinter));
        }
        let raw = fingerprinter.raw_body();
        assert_ne!(json(r#"{"sent_at":1}"#).by(&raw), json(r#"{"sent_at":2}"#).by(&raw));
    }

    #[test]
    fn a_text_that_is_no_pointer_is_refused() {
        // H17
        assert_eq!(Fingerprinter::new().without_pointers([""]).unwrap_err(), PointerError::WholeDocument);
        let error = Fingerprinter::new().without_pointers(["/a", "b"]).unwrap_err();
        assert_eq!(error, PointerError::NoSlash("b".to_owned()));
        assert!(error.to_string().contains("\"b\""));
    }

    #[test]
    fn digests_under_two_secrets_differ_and_none_is_the_plain_one() {
        // H17, case F17
        let digests = [Fingerprinter::new(), Fingerprinter::new().keyed("a"), Fingerprinter::new().keyed("b")]
            .map(|fingerprinter| *json("{}").by(&fingerprinter).digest());
        assert!(digests[0] != digests[1] && digests[0] != digests[2] && digests[1] != digests[2]);
        let again = json("{ }").by(&Fingerprinter::new().keyed("a"));
        assert_eq!(*again.digest(), digests[1]);
        // Not by way of the profile only.
        let plain = Transcript::new(again.profile(), None).finish();
        assert_ne!(Transcript::new(again.profile(), Some(&Secret::new(b"a"))).finish(), plain);
        let shown = format!("{:?}", Fingerprinter::new().keyed("s3cret"));
        assert!(shown.contains("keyed: true") && !shown.contains("s3cret"), "{shown}");
    }

    fn upload(boundary: &str, file: &str) -> Fingerprint {
        let content_type = format!("multipart/form-data; boundary={boundary}");
        let body = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"to\"\r\n\r\na\r\n\
             --{boundary}\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n{file}\r\n--{boundary}--\r\n"
        );
        form(&content_type, &body)
    }

    fn form(content_type: &str, body: &str) -> Fingerprint {
        form_by(&Fingerprinter::new(), content_type, body)
    }

    fn form_by(fingerprinter: &Fingerprinter, content_type: &str, body: &str) -> Fingerprint {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap())]);
        let (method, body) = (&Method::POST, body.as_bytes());
        fingerprinter.fingerprint(&RequestView { method, path: "/files", query: None, headers: &headers, body })
    }

    #[test]
    fn uploads_that_differ_in_the_boundary_only_are_equal() {
        // H16, case F14
        let first = upload("----WebKitFormBoundary7MA4YWxkTrZu0gW", "bytes");
        assert_eq!(upload("----WebKitFormBoundaryQ0rVb2mZ1cX8yTeP", "bytes"), first);
        let quoted = form("multipart/form-data; boundary=\"a b\"", "--a b\r\n\r\nx\r\n--a b--");
        assert_eq!(form("Multipart/Form-Data; boundary=c; charset=utf-8", "--c\r\n\r\nx\r\n--c--\r\n"), quoted);
        assert_ne!(upload("----WebKitFormBoundaryQ0rVb2mZ1cX8yTeP", "other"), first);
        assert_ne!(upload("a", "--b\r\n\r\n"), upload("b", "--a\r\n\r\n"));
    }

    #[test]
    fn whatever_is_in_a_part_counts() {
        // H16, case F14
        let one = |part: &str| form("multipart/form-data; boundary=b", &format!("--b\r\n{part}\r\n--b--"));
        let base = one("a: 1\r\nc: 2\r\n\r\nx");
        assert_eq!(one("A: 1\r\nC: 2\r\n\r\nx"), base);
        let others = [
            "a: 1\r\nc: 2\r\n\r\ny",
            "a: 1\r\nc: 2\r\n\r\nx ",
            "a: 1\r\nc: 2\r\n\r\n",
            "a: 1\r\nc: 3\r\n\r\nx",
            "a: 1\r\nc:2\r\n\r\nx",
            "c: 2\r\na: 1\r\n\r\nx",
            "a: 1\r\n\r\nx",
            "a: 1\r\nd: 2\r\n\r\nx",
            "\r\na: 1\r\nc: 2\r\n\r\nx",
            "a: 1\r\nc: 2\r\n\r\nx\r\n--b\r\n\r\n",
            "a: 1\r\n\r\n\r\n--b\r\nc: 2\r\n\r\nx",
        ];
        let distinct: std::collections::HashSet<_> = others.iter().map(|part| one(part)).chain([base]).collect();
        assert_eq!(distinct.len(), others.len() + 1);
    }

    #[test]
    fn a_form_that_is_not_well_formed_counts_byte_for_byte() {
        // H16
        let cut = |boundary: &str| {
            form(
                &format!("multipart/form-data; boundary={boundary}"),
                &format!("--{boundary}\r\n\r\nx\r\n--{boundary}"),
            )
        };
        assert_eq!(cut("a"), cut("a"));
        assert_ne!(cut("a"), cut("b"));
        let whole = |boundary: &str| format!("--{boundary}\r\n\r\nx\r\n--{boundary}--");
        let (a, b) = (whole("a"), whole("b"));
        for content_type in ["multipart/form-data", "multipart/form-data; boundary=x", "multipart/mixed; boundary=a"] {
            assert_ne!(form(content_type, &a), form(content_type, &b), "{content_type}");
        }
        let raw = Fingerprinter::new().raw_body();
        let by = |boundary, body| form_by(&raw, &format!("multipart/form-data; boundary={boundary}"), body);
        assert_ne!(by("a", &a), by("b", &b));
        let gzip = |body: &'static str, content_type| {
            let headers = HeaderMap::new();
            let request =
                Request { headers, ..json(body) }.with(CONTENT_TYPE, content_type).with(CONTENT_ENCODING, "gzip");
            request.by(&Fingerprinter::new())
        };
        assert_ne!(
            gzip("--a\r\n\r\nx\r\n--a--", "multipart/form-data; boundary=a"),
            gzip("--b\r\n\r\nx\r\n--b--", "multipart/form-data; boundary=b")
        );
    }

    #[test]
    fn a_raw_form_never_equals_one_with_parts() {
        // H16: the same media type, and the body that has no parts holds what is hashed of the one that has.
        let parts = form("multipart/form-data; boundary=a", "--a\r\n\r\nx\r\n--a--");
        let hashed = [&1u64.to_be_bytes()[..], &0u64.to_be_bytes(), &1u64.to_be_bytes(), b"x"].concat();
        assert_ne!(form("multipart/form-data", std::str::from_utf8(&hashed).unwrap()), parts);
    }

    #[test]
    fn an_own_function_decides_what_counts() {
        // H17, case F18
        let amount_only = Fingerprinter::custom(1, |request| request.body.iter().copied().take(3).collect());
        assert_eq!(json("100 a").by(&amount_only), json("100 b").by(&amount_only));
        assert_ne!(json("100 a").by(&amount_only), json("101 a").by(&amount_only));
    }

    #[test]
    fn a_stored_fingerprint_stays_valid_across_releases() {
        // H18: computed by another program from the description. If this fails, the encoding changed and the
        // algorithm version must change with it.
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let request = Request { query: Some("dry=1"), ..json(r#"{"b":[1.50,-2e400,0,true,false,null],"a":"\u00e9"}"#) };
        assert_eq!(
            hex(&request.by(&Fingerprinter::new()).to_bytes()),
            "014bf5122f3445542e7afb95558608a556d756de4374a1a19db7de0bd495adb2c9fbaba77958d701"
        );
        let body = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\n\
                    one\r\ntwo\r\n--b\r\n\r\nplain\r\n--b--\r\n";
        assert_eq!(
            hex(&form("multipart/form-data; boundary=b", body).to_bytes()),
            "014bf5122f3445548ea1b245a34efc8ea17e974d165188f74405aa53e32b376273301f11366d2a13"
        );
        let keyed = Fingerprinter::new().keyed("0123456789abcdef0123456789abcdef");
        let keyed = keyed.without_pointers(["/c", "/b/0"]).unwrap();
        assert_eq!(
            hex(&json(r#"{"a":"x","b":[1,true],"c":1}"#).by(&keyed).to_bytes()),
            "01278205bd303eb214458cb1f1da4378794ec03c86c8a1a5697745d45ebbd63f72fa1da45b1f8f61"
        );
    }

    #[test]
    fn debug_shows_neither_header_values_nor_the_body() {
        // H9
        let request = json("s3cret").with(AUTHORIZATION, "s3cret");
        let view = RequestView {
            method: &request.method,
            path: request.path,
            query: Some("s3cret"),
            headers: &request.headers,
            body: request.body.as_bytes(),
        };
        assert!(!format!("{view:?}").contains("s3cret"));
    }
}
