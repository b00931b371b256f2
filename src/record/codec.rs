//! The stored form of an answer.
//!
//! Version 1, lengths and counts as LEB128 numbers:
//!
//! ```text
//! "IA"  version: u8  flags: u8  status: u16, big endian
//! fields                        the headers
//! fields                        the trailers, if flag 2 is set
//! length, bytes                 the body, if flag 1 is set
//!
//! fields = count, then for each: length, name, sensitive: u8 (0 or 1), length, value
//! ```
//!
//! The body comes last, so that it can be a slice of what was read.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{Answer, AnswerBody, RecordError};

const MAGIC: &[u8; 2] = b"IA";
const VERSION: u8 = 1;
const BODY_KEPT: u8 = 1;
const TRAILERS: u8 = 2;

impl Answer {
    /// The stored form: status, headers in the order in which the map gives them, trailers, body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let body = match &self.body {
            AnswerBody::Kept(bytes) => Some(bytes),
            AnswerBody::NotKept => None,
        };
        let flags = if body.is_some() { BODY_KEPT } else { 0 } | if self.trailers.is_some() { TRAILERS } else { 0 };
        let mut out = Vec::with_capacity(body.map_or(0, Bytes::len) + 64 + self.headers.len() * 48);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[VERSION, flags]);
        out.extend_from_slice(&self.status.as_u16().to_be_bytes());
        put_fields(&mut out, &self.headers);
        if let Some(trailers) = &self.trailers {
            put_fields(&mut out, trailers);
        }
        if let Some(body) = body {
            put_bytes(&mut out, body);
        }
        out
    }

    /// Reads the stored form. Body and header values are slices of `bytes`, not copies.
    ///
    /// # Errors
    /// Every variant of [`RecordError`]; no input makes it panic, and what it allocates follows what was read, not a
    /// length or count in it.
    pub fn decode(bytes: Bytes) -> Result<Answer, RecordError> {
        let mut input = Input(bytes);
        // What is foreign is told apart from what is cut as far as there are bytes to tell by.
        if !MAGIC.starts_with(&input.0[..input.0.len().min(MAGIC.len())]) {
            return Err(RecordError::Foreign);
        }
        input.take(MAGIC.len())?;
        match input.byte()? {
            VERSION => {}
            version => return Err(RecordError::Version(version)),
        }
        let flags = input.byte()?;
        if flags & !(BODY_KEPT | TRAILERS) != 0 {
            return Err(RecordError::Damaged);
        }
        let status = u16::from_be_bytes([input.byte()?, input.byte()?]);
        let status = StatusCode::from_u16(status).map_err(|_| RecordError::Damaged)?;
        let headers = input.fields()?;
        let trailers = if flags & TRAILERS == 0 { None } else { Some(input.fields()?) };
        let body = if flags & BODY_KEPT == 0 { AnswerBody::NotKept } else { AnswerBody::Kept(input.bytes()?) };
        if !input.0.is_empty() {
            return Err(RecordError::TrailingBytes);
        }
        Ok(Answer { status, headers, body, trailers })
    }
}

fn put_fields(out: &mut Vec<u8>, fields: &HeaderMap) {
    put_length(out, fields.len());
    for (name, value) in fields {
        put_bytes(out, name.as_str().as_bytes());
        out.push(u8::from(value.is_sensitive()));
        put_bytes(out, value.as_bytes());
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_length(out: &mut Vec<u8>, mut length: usize) {
    while length > 0x7f {
        out.push(length.to_le_bytes()[0] | 0x80);
        length >>= 7;
    }
    out.push(length.to_le_bytes()[0]);
}

/// What is left to read.
struct Input(Bytes);

impl Input {
    fn take(&mut self, length: usize) -> Result<Bytes, RecordError> {
        if length > self.0.len() {
            return Err(RecordError::Truncated);
        }
        Ok(self.0.split_to(length))
    }

    fn byte(&mut self) -> Result<u8, RecordError> {
        self.take(1).map(|byte| byte[0])
    }

    fn length(&mut self) -> Result<usize, RecordError> {
        let mut length = 0;
        for shift in (0..usize::BITS).step_by(7) {
            let byte = self.byte()?;
            let part = usize::from(byte & 0x7f);
            if part << shift >> shift != part {
                return Err(RecordError::Damaged);
            }
            length |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(length);
            }
        }
        Err(RecordError::Damaged)
    }

    fn bytes(&mut self) -> Result<Bytes, RecordError> {
        let length = self.length()?;
        self.take(length)
    }

    fn fields(&mut self) -> Result<HeaderMap, RecordError> {
        // Not allocated by the count, which may be anything in a damaged record.
        let mut fields = HeaderMap::new();
        for _ in 0..self.length()? {
            let name = HeaderName::from_lowercase(&self.bytes()?).map_err(|_| RecordError::Damaged)?;
            let sensitive = match self.byte()? {
                0 => false,
                1 => true,
                _ => return Err(RecordError::Damaged),
            };
            let mut value = HeaderValue::from_maybe_shared(self.bytes()?).map_err(|_| RecordError::Damaged)?;
            value.set_sensitive(sensitive);
            fields.try_append(name, value).map_err(|_| RecordError::TooManyFields)?;
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(list: &[(&'static str, &'static [u8])]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for (name, value) in list {
            fields.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        fields
    }

    fn sample() -> Answer {
        let headers = fields(&[
            ("link", b"</a>; rel=next"),
            ("location", b"/orders/1"),
            ("link", b"</b>; rel=prev"),
            ("x-obs", b"caf\xe9 \xff\t"),
            ("x-empty", b""),
        ]);
        let body = AnswerBody::Kept(Bytes::from((0..=255).collect::<Vec<u8>>()));
        Answer { status: StatusCode::CREATED, headers, body, trailers: Some(fields(&[("grpc-status", b"0")])) }
    }

    /// Names and values as the map gives them, which `==` on maps does not compare.
    fn listed(fields: &HeaderMap) -> Vec<(String, Vec<u8>, bool)> {
        fields.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec(), value.is_sensitive())).collect()
    }

    fn decoded(bytes: &[u8]) -> Result<Answer, RecordError> {
        Answer::decode(Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn the_same_bytes_come_out_in_the_same_order() {
        // H37, cases R03, R11 and R12
        let answer = sample();
        let again = decoded(&answer.encode()).unwrap();
        assert_eq!(again, answer);
        assert_eq!(listed(&again.headers), listed(&answer.headers));
        assert_eq!(again.headers.get_all("link").iter().count(), 2);
    }

    #[test]
    fn what_is_absent_stays_absent() {
        // H37
        let answer = Answer { body: AnswerBody::NotKept, trailers: None, ..sample() };
        assert_eq!(decoded(&answer.encode()), Ok(answer));
        let empty = Answer { body: AnswerBody::Kept(Bytes::new()), trailers: Some(HeaderMap::new()), ..sample() };
        assert_eq!(decoded(&empty.encode()), Ok(empty));
    }

    #[test]
    fn a_sensitive_value_stays_sensitive() {
        // H37: HPACK must not index it on replay either.
        let mut value = HeaderValue::from_static("v");
        value.set_sensitive(true);
        let answer = Answer { headers: HeaderMap::from_iter([(HeaderName::from_static("x"), value)]), ..sample() };
        assert!(decoded(&answer.encode()).unwrap().headers["x"].is_sensitive());
    }

    #[test]
    fn a_large_body_is_a_slice_of_what_was_read() {
        // H37
        let body = AnswerBody::Kept(Bytes::from(vec![7; 100_000]));
        let encoded = Bytes::from(Answer { body, ..sample() }.encode());
        let AnswerBody::Kept(body) = Answer::decode(encoded.clone()).unwrap().body else { panic!("kept") };
        assert_eq!(body.as_ptr(), encoded[encoded.len() - 100_000..].as_ptr());
    }

    #[test]
    fn every_cut_is_an_error() {
        // H37, case R03
        let encoded = sample().encode();
        for length in 0..encoded.len() {
            assert_eq!(decoded(&encoded[..length]), Err(RecordError::Truncated), "{length}");
        }
    }

    #[test]
    fn bytes_after_the_end_are_an_error() {
        // H37
        let encoded = [sample().encode(), vec![0]].concat();
        assert_eq!(decoded(&encoded), Err(RecordError::TrailingBytes));
    }

    #[test]
    fn a_foreign_record_is_an_error() {
        // H37
        assert_eq!(decoded(b"{\"status\":200}"), Err(RecordError::Foreign));
        assert_eq!(decoded(b"{"), Err(RecordError::Foreign));
        let mut encoded = sample().encode();
        encoded[2] = 9;
        assert_eq!(decoded(&encoded), Err(RecordError::Version(9)));
    }

    #[test]
    fn values_that_are_never_written_are_errors() {
        // H37
        let start = |flags, status: u16| [&b"IA\x01"[..], &[flags], &status.to_be_bytes()].concat();
        let with = |rest: &[u8]| [start(0, 200), rest.to_vec()].concat();
        for bytes in [
            start(4, 200),
            start(0, 99),
            start(0, 1000),
            with(b"\x01\x01A\x00\x01v"),
            with(b"\x01\x01 \x00\x01v"),
            with(b"\x01\x00\x00\x01v"),
            with(b"\x01\x01a\x02\x01v"),
            with(b"\x01\x01a\x00\x01\n"),
            with(&[0xff; 12]),
            with(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
        ] {
            assert_eq!(decoded(&bytes), Err(RecordError::Damaged), "{bytes:?}");
        }
        assert!(decoded(&with(b"\x01\x01a\x00\x01v")).is_ok());
    }

    #[test]
    fn a_length_past_the_end_is_an_error_without_an_allocation() {
        // H37
        let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        for lead in [&b"IA\x01\x00\x00\xc8"[..], b"IA\x01\x00\x00\xc8\x01", b"IA\x01\x01\x00\xc8\x00"] {
            assert_eq!(decoded(&[lead, &huge].concat()), Err(RecordError::Truncated));
        }
    }

    #[test]
    fn more_fields_than_a_map_holds_are_an_error() {
        // H37
        let count = 40_000u32;
        let mut bytes = b"IA\x01\x00\x00\xc8".to_vec();
        put_length(&mut bytes, 40_000);
        for at in 0..count {
            put_bytes(&mut bytes, format!("x{at}").as_bytes());
            bytes.extend_from_slice(&[0, 0]);
        }
        assert_eq!(decoded(&bytes), Err(RecordError::TooManyFields));
    }

    fn any_fields() -> impl Strategy<Value = HeaderMap> {
        let name = prop_oneof!["x-[a-c]", "link|location|etag", "[a-z0-9!#$%&'*+.^_`|~-]{1,70}"];
        let value = prop::collection::vec(prop_oneof![0x20..=0x7eu8, 0x80..=0xffu8, Just(b'\t')], 0..40);
        prop::collection::vec((name, value, any::<bool>()), 0..12).prop_map(|list| {
            let mut fields = HeaderMap::new();
            for (name, value, sensitive) in list {
                let mut value = HeaderValue::from_bytes(&value).unwrap();
                value.set_sensitive(sensitive);
                fields.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
            }
            fields
        })
    }

    fn any_answer() -> impl Strategy<Value = Answer> {
        let body = prop::option::of(prop::collection::vec(any::<u8>(), 0..300));
        (100..=999u16, any_fields(), body, prop::option::of(any_fields())).prop_map(
            |(status, headers, body, trailers)| Answer {
                status: StatusCode::from_u16(status).unwrap(),
                headers,
                body: body.map_or(AnswerBody::NotKept, |body| AnswerBody::Kept(body.into())),
                trailers,
            },
        )
    }

    proptest! {
        #[test]
        fn every_answer_comes_back_as_it_was(answer in any_answer()) {
            // H37
            let encoded = answer.encode();
            let again = decoded(&encoded).unwrap();
            prop_assert_eq!(listed(&again.headers), listed(&answer.headers));
            prop_assert_eq!(again.trailers.as_ref().map(listed), answer.trailers.as_ref().map(listed));
            prop_assert_eq!(again.encode(), encoded);
            prop_assert_eq!(again, answer);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            // H37
            let _ = decoded(&bytes);
            let _ = decoded(&[b"IA\x01".as_slice(), &bytes].concat());
            let _ = decoded(&[b"IA\x01\x03\x00\xc8".as_slice(), &bytes].concat());
        }

        #[test]
        fn no_damage_makes_the_decoder_panic(answer in any_answer(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            // H37
            let mut encoded = answer.encode();
            let at = at.index(encoded.len());
            encoded[at] = byte;
            let _ = decoded(&encoded);
            prop_assert!(decoded(&encoded[..at]).is_err());
        }
    }
}
