//! The parts of a `multipart/form-data` body (RFC 7578, RFC 2046 section 5.1), without the boundary that was between
//! them.
//!
//! Strict on purpose. Where two readers of a body could see different parts, nobody can say which of them the handler
//! is, so the body has no parts here and counts byte for byte.

use memchr::memchr;
use memchr::memmem::{self, Finder};

/// The longest boundary (RFC 2046 section 5.1.1).
const MAX_BOUNDARY: usize = 70;

/// One part: its header fields and its content.
#[derive(Debug, PartialEq)]
pub(super) struct Part<'a> {
    /// Well-formed lines, each with its line break.
    head: &'a [u8],
    /// How many lines these are.
    lines: usize,
    content: &'a [u8],
}

impl<'a> Part<'a> {
    /// Reads what stands between two delimiters, their line breaks left out.
    fn read(part: &'a [u8]) -> Option<Self> {
        if let Some(content) = part.strip_prefix(b"\r\n") {
            return Some(Part { head: &[], lines: 0, content });
        }
        let blank = memmem::find(part, b"\r\n\r\n")? + 2;
        let (head, content) = (&part[..blank], &part[blank + 2..]);
        let lines = lines(head).try_fold(0, |read, line| field(line).map(|_| read + 1))?;
        Some(Part { head, lines, content })
    }

    /// How many fields there are.
    pub(super) fn field_count(&self) -> usize {
        self.lines
    }

    /// Names and values in their order, as they were sent.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        lines(self.head).filter_map(field)
    }

    pub(super) fn content(&self) -> &'a [u8] {
        self.content
    }
}

/// The parts of a body. Preamble, epilogue and blanks after a delimiter are no part of any (RFC 2046 section 5.1.1). A
/// form without fields, as browsers send it, has none.
///
/// `None`: no closing delimiter, a line that starts with the boundary and goes on otherwise, or a part with a malformed
/// head (folded lines included).
pub(super) fn scan<'a>(body: &'a [u8], boundary: &[u8]) -> Option<Vec<Part<'a>>> {
    let delimiter = [b"\r\n--", boundary].concat();
    let finder = Finder::new(&delimiter);
    // The first one may stand at the very start, with no line to end before it.
    let mut at = match body.strip_prefix(&delimiter[2..]) {
        Some(rest) => body.len() - rest.len(),
        None => finder.find(body)? + delimiter.len(),
    };
    let mut parts = Vec::new();
    loop {
        if let Some(rest) = body[at..].strip_prefix(b"--") {
            let rest = &rest[blanks(rest)..];
            return (rest.is_empty() || rest.starts_with(b"\r\n")).then_some(parts);
        }
        let line_end = at + blanks(&body[at..]);
        if !body[line_end..].starts_with(b"\r\n") {
            return None;
        }
        // From the line break on: the next delimiter may use the same one, and then there is no part between.
        let next = line_end + finder.find(&body[line_end..])?;
        parts.push(Part::read(body.get(line_end + 2..next)?)?);
        at = next + delimiter.len();
    }
}

/// The lines of a head, each with the CR of its line break; whatever follows the last one is none.
fn lines(mut head: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let end = memchr(b'\n', head)?;
        let line = &head[..end];
        head = &head[end + 1..];
        Some(line)
    })
}

fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = token_length(line);
    let value = line[colon..].strip_prefix(b":")?.strip_suffix(b"\r")?;
    let well_formed = colon > 0 && !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    well_formed.then_some((&line[..colon], value))
}

/// The parameter `boundary` of a content type (RFC 9110 section 8.3.1), bare or quoted.
///
/// `None`: missing, twice, not a boundary (RFC 2046 section 5.1.1), or malformed parameters.
pub(super) fn boundary(content_type: &[u8]) -> Option<Vec<u8>> {
    let semicolon = content_type.iter().position(|&byte| byte == b';')?;
    let mut rest = &content_type[semicolon..];
    let mut found = None;
    while let Some(after) = rest.strip_prefix(b";") {
        rest = &after[blanks(after)..];
        if matches!(rest.first(), None | Some(b';')) {
            continue;
        }
        let (name, after) = rest.split_at(token_length(rest));
        let after = after.strip_prefix(b"=")?;
        let value;
        (value, rest) = match after.strip_prefix(b"\"") {
            Some(quoted) => unquote(quoted)?,
            // Wider than the grammar: clients send `:`, `/` and `=` in bare boundaries.
            None => bare(after),
        };
        if name.eq_ignore_ascii_case(b"boundary") && found.replace(value).is_some() {
            return None;
        }
        rest = &rest[blanks(rest)..];
    }
    found.filter(|found| rest.is_empty() && is_boundary(found))
}

fn bare(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let end = text.iter().position(|byte| matches!(byte, b';' | b' ' | b'\t')).unwrap_or(text.len());
    (text[..end].to_vec(), &text[end..])
}

/// Reads what follows an opening quote: the value, and what follows the closing one.
fn unquote(quoted: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    let mut at = 0;
    loop {
        match quoted.get(at)? {
            b'"' => return Some((value, &quoted[at + 1..])),
            b'\\' => {
                value.push(*quoted.get(at + 1)?);
                at += 2;
            }
            byte => {
                value.push(*byte);
                at += 1;
            }
        }
    }
}

fn is_boundary(text: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(byte);
    (1..=MAX_BOUNDARY).contains(&text.len()) && text.iter().all(allowed) && !text.ends_with(b" ")
}

fn blanks(text: &[u8]) -> usize {
    text.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(text.len())
}

/// RFC 9110 section 5.6.2.
fn token_length(text: &[u8]) -> usize {
    let in_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    text.iter().position(|byte| !in_token(byte)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_boundary_is_read_bare_and_quoted() {
        // H16, case F14
        for (content_type, expected) in [
            ("multipart/form-data; boundary=abc", Some("abc")),
            ("multipart/form-data;boundary=aBc", Some("aBc")),
            ("multipart/form-data; charset=utf-8; BOUNDARY=\"abc\"", Some("abc")),
            ("multipart/form-data; boundary=abc ; charset=utf-8", Some("abc")),
            ("multipart/form-data; boundary=abc; x=\";boundary=def\"", Some("abc")),
            ("multipart/form-data;; boundary=abc;", Some("abc")),
            (
                "multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW",
                Some("----WebKitFormBoundary7MA4YWxkTrZu0gW"),
            ),
            ("multipart/form-data; boundary=a:b/c=d", Some("a:b/c=d")),
            ("multipart/form-data; boundary=\"a b\"", Some("a b")),
            ("multipart/form-data; boundary=\"a\\bc\"", Some("abc")),
            ("multipart/form-data; x=1", None),
            ("multipart/form-data", None),
            ("multipart/form-data; boundary=", None),
            ("multipart/form-data; boundary=\"\"", None),
            ("multipart/form-data; boundary=\"a \"", None),
            ("multipart/form-data; boundary=\"abc", None),
            ("multipart/form-data; boundary=\"abc\\", None),
            ("multipart/form-data; boundary=\"abc\"d", None),
            ("multipart/form-data; boundary=a; boundary=b", None),
            ("multipart/form-data; boundary=a; boundary=a", None),
            ("multipart/form-data; boundary=a, multipart/form-data; boundary=b", None),
            ("multipart/form-data; boundary = abc", None),
            ("multipart/form-data; boundary=abc; x", None),
            ("multipart/form-data; boundary*=utf-8''abc", None),
            ("multipart/form-data; boundary=a\"b", None),
            ("multipart/form-data; boundary=\"a;b\"", None),
        ] {
            assert_eq!(boundary(content_type.as_bytes()).as_deref(), expected.map(str::as_bytes), "{content_type}");
        }
        let of_length = |length| format!("multipart/form-data; boundary={}", "x".repeat(length));
        assert!(boundary(of_length(70).as_bytes()).is_some());
        assert!(boundary(of_length(71).as_bytes()).is_none());
    }

    type Fields = Vec<(String, String)>;

    fn read(body: &[u8], boundary: &str) -> Option<Vec<(Fields, Vec<u8>)>> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let parts = scan(body, boundary.as_bytes())?;
        let whole = |part: &Part<'_>| {
            (part.fields().map(|(name, value)| (text(name), text(value))).collect(), part.content().to_vec())
        };
        Some(parts.iter().map(whole).collect())
    }

    fn part(fields: &[(&str, &str)], content: &str) -> (Fields, Vec<u8>) {
        (fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(), content.into())
    }

    #[test]
    fn the_parts_are_fields_and_content() {
        // H16
        let file = part(
            &[("Content-Disposition", " form-data; name=\"f\"; filename=\"a.txt\""), ("Content-Type", " text/plain")],
            "one\r\ntwo\n",
        );
        let body = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\n\
                    one\r\ntwo\n\r\n--b\r\n\r\nplain\r\n--b--\r\n";
        assert_eq!(read(body.as_bytes(), "b"), Some(vec![file, part(&[], "plain")]));
    }

    #[test]
    fn preamble_epilogue_and_blanks_are_no_part() {
        // H16
        let expected = Some(vec![part(&[("a", "1")], "x")]);
        for body in [
            "--b\r\na:1\r\n\r\nx\r\n--b--",
            "\r\n--b\r\na:1\r\n\r\nx\r\n--b--\r\n",
            "preamble\r\n--b \t\r\na:1\r\n\r\nx\r\n--b-- \r\nepilogue\r\n--b\r\n",
            "no --b delimiter\r\n --b\r\n--b\r\na:1\r\n\r\nx\r\n--b--",
        ] {
            assert_eq!(read(body.as_bytes(), "b"), expected, "{body:?}");
        }
        assert_eq!(read(b"--b--\r\n", "b"), Some(vec![]));
    }

    #[test]
    fn another_boundarys_text_is_content() {
        // H16, case F14
        let content = "\r\n--a\r\nx:1\r\n\r\ny\r\n--a--\r\n--B--";
        let body = format!("--b\r\n\r\n{content}\r\n--b--\r\n");
        assert_eq!(read(body.as_bytes(), "b"), Some(vec![part(&[], content)]));
        assert_eq!(read(body.as_bytes(), "a"), Some(vec![part(&[("x", "1")], "y")]));
    }

    #[test]
    fn what_is_not_well_formed_has_no_parts() {
        // H16
        for body in [
            "",
            "x",
            "--b",
            "--b-",
            "--b\r\n",
            "--b\r\n\r\n",
            "--b\r\n\r\nx",
            "--b\r\n\r\nx\r\n--b",
            "--b\r\n\r\nx\r\n--b-",
            "--b\r\n\r\nx\r\n--b--y",
            "--b\r\n\r\nx\r\n--by\r\n--b--",
            "--bb\r\n\r\nx\r\n--bb--",
            "--b\n\nx\n--b--\n",
            "--b\r\n--b--",
            "--b\r\n\r\n--b--",
            "--b\r\na:1\r\n--b--",
            "--b\r\na:1\r\n\r\n--b--",
            "--b\r\na\r\n\r\nx\r\n--b--",
            "--b\r\n:1\r\n\r\nx\r\n--b--",
            "--b\r\na :1\r\n\r\nx\r\n--b--",
            "--b\r\na:1\r\n folded\r\n\r\nx\r\n--b--",
            "--b\r\na:1\nb:2\r\n\r\nx\r\n--b--",
            "--b\r\na:1\rb\r\n\r\nx\r\n--b--",
            "--b\r\na:\0\r\n\r\nx\r\n--b--",
            "--B\r\n\r\nx\r\n--B--",
        ] {
            assert_eq!(read(body.as_bytes(), "b"), None, "{body:?}");
        }
    }

    /// What a client sends: few bytes, so that something like a delimiter is likely.
    fn form() -> impl Strategy<Value = Vec<(Fields, Vec<u8>)>> {
        let piece =
            prop_oneof![Just("\r\n"), Just("--"), Just("-"), Just("A"), Just("B"), Just("\r"), Just("\n"), Just("\0é")];
        let content = prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat().into_bytes());
        let fields = prop::collection::vec(("[A-Za-z-]{1,4}", "[ AB:;=\"-]{0,5}"), 0..3);
        prop::collection::vec((fields, content), 0..4)
    }

    fn written(form: &[(Fields, Vec<u8>)], boundary: &str) -> Vec<u8> {
        let mut body = Vec::new();
        for (fields, content) in form {
            body.extend(format!("--{boundary}\r\n").bytes());
            fields.iter().for_each(|(name, value)| body.extend(format!("{name}:{value}\r\n").bytes()));
            body.extend(b"\r\n");
            body.extend(content);
            body.extend(b"\r\n");
        }
        body.extend(format!("--{boundary}--\r\n").bytes());
        body
    }

    /// Whether a client may choose this boundary: no line of the content or the head starts with it.
    fn may_be(boundary: &str, form: &[(Fields, Vec<u8>)]) -> bool {
        let delimiter = format!("\r\n--{boundary}");
        form.iter().all(|(fields, content)| {
            let lines = fields.iter().map(|(name, value)| format!("\r\n{name}:{value}").into_bytes());
            lines
                .chain([[b"\r\n", content.as_slice()].concat()])
                .all(|text| memmem::find(&text, delimiter.as_bytes()).is_none())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]

        #[test]
        fn what_a_client_writes_is_read_back_whatever_the_boundary(form in form(), boundary in "[AB-]{1,3}") {
            // H16, case F14
            prop_assume!(may_be(&boundary, &form));
            prop_assert_eq!(read(&written(&form, &boundary), &boundary), Some(form));
        }

        #[test]
        fn no_bytes_make_the_scanner_panic(body in prop::collection::vec(any::<u8>(), 0..200), boundary in "[a-c]{1,2}") {
            // H16
            let _ = scan(&body, boundary.as_bytes());
            let _ = super::boundary(&body);
        }

        #[test]
        fn no_arrangement_of_delimiters_makes_the_scanner_panic(
            pieces in prop::collection::vec(prop_oneof![Just("\r\n"), Just("--"), Just("b"), Just("a:"), Just(" "), Just("\"")], 0..30),
        ) {
            // H16
            let text = pieces.concat();
            let _ = scan(text.as_bytes(), b"b");
            let _ = super::boundary(format!("m; boundary={text}").as_bytes());
        }
    }
}
