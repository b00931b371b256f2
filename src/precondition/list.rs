//! `If-Match` and `If-None-Match`: `*`, or a list of entity tags over any number of field lines (D2).

use http::HeaderValue;

use super::etag::{EntityTag, is_etagc};

/// What an `If-Match` or `If-None-Match` holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagList {
    /// `*`: any representation at all.
    Any,
    /// At least one tag, in their order.
    Tags(Vec<EntityTag>),
}

/// A field that is present and does not parse. It is 400 and never "no match": a client that meant to guard a write must
/// not write unguarded, nor be told of a conflict that there is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a list of entity tags (RFC 9110 section 13.1)")]
pub struct Malformed;

/// Optional white space (RFC 9110 section 5.6.3): blanks and tabs only.
pub(super) fn trim_ows(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

impl TagList {
    /// Reads all lines of one field; `None` where there is none.
    ///
    /// Empty members are skipped (RFC 9110 section 5.6.1.2), obs-text is allowed, commas within the quotes belong to the
    /// tag. `*` stands alone.
    ///
    /// # Errors
    /// [`Malformed`] where it is neither `*` nor a list of at least one tag.
    pub fn parse<'a>(lines: impl IntoIterator<Item = &'a HeaderValue>) -> Result<Option<Self>, Malformed> {
        Self::parse_bytes(lines.into_iter().map(HeaderValue::as_bytes))
    }

    pub(super) fn parse_bytes<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Result<Option<Self>, Malformed> {
        let mut lines = lines.into_iter().peekable();
        let Some(first) = lines.next() else { return Ok(None) };
        if trim_ows(first) == b"*" && lines.peek().is_none() {
            return Ok(Some(Self::Any));
        }
        let mut tags = Vec::new();
        members(first, &mut tags)?;
        lines.try_for_each(|line| members(line, &mut tags))?;
        if tags.is_empty() { Err(Malformed) } else { Ok(Some(Self::Tags(tags))) }
    }
}

/// The members of one line.
fn members(line: &[u8], tags: &mut Vec<EntityTag>) -> Result<(), Malformed> {
    let mut rest = line;
    loop {
        // Empty members, with their blanks.
        while let [b' ' | b'\t' | b',', tail @ ..] = rest {
            rest = tail;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let (is_weak, quoted) = rest.strip_prefix(b"W/").map_or((false, rest), |tail| (true, tail));
        let inside = quoted.strip_prefix(b"\"").ok_or(Malformed)?;
        let end = inside.iter().position(|byte| !is_etagc(*byte)).ok_or(Malformed)?;
        let (opaque, tail) = inside.split_at(end);
        let tail = trim_ows(tail.strip_prefix(b"\"").ok_or(Malformed)?);
        tags.push(EntityTag::from_parts(is_weak, opaque));
        match tail {
            [] => return Ok(()),
            [b',', tail @ ..] => rest = tail,
            _ => return Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(lines: &[&[u8]]) -> Result<Option<TagList>, Malformed> {
        TagList::parse_bytes(lines.iter().copied())
    }

    fn tags(texts: &[&[u8]]) -> TagList {
        TagList::Tags(texts.iter().map(|text| EntityTag::parse(text).unwrap()).collect())
    }

    // D2, RFC 9110 section 13.1.1
    #[test]
    fn lists_that_parse() {
        assert_eq!(parse(&[]), Ok(None));
        assert_eq!(parse(&[b"*"]), Ok(Some(TagList::Any)));
        assert_eq!(parse(&[b" \t* "]), Ok(Some(TagList::Any)));
        for (lines, expected) in [
            (vec![&b"\"a\""[..]], tags(&[b"\"a\""])),
            (vec![b"\"a\", W/\"b\",\"c\""], tags(&[b"\"a\"", b"W/\"b\"", b"\"c\""])),
            (vec![b"\"a\"", b"\"b\""], tags(&[b"\"a\"", b"\"b\""])),
            (vec![b"\"a\"", b""], tags(&[b"\"a\""])),
            (vec![b" , ,\"a\"\t, ,"], tags(&[b"\"a\""])),
            (vec![b"\"a,b\""], tags(&[b"\"a,b\""])),
            (vec![b"\"*\""], tags(&[b"\"*\""])),
            (vec![b"\"\xe9\""], tags(&[b"\"\xe9\""])),
            (vec![b"\"\""], tags(&[b"\"\""])),
        ] {
            assert_eq!(parse(&lines), Ok(Some(expected)), "{lines:?}");
        }
    }

    // D2: what other parsers let pass, or panic on.
    #[test]
    fn lists_that_do_not() {
        for lines in [
            vec![&b""[..]],
            vec![b" "],
            vec![b","],
            vec![b"garbage"],
            vec![b"\"a b\""],
            vec![b"\"a\" \"b\""],
            vec![b"\"a\"b"],
            vec![b"\"a"],
            vec![b"a\""],
            vec![b"w/\"a\""],
            vec![b"W/ \"a\""],
            vec![b"*, \"a\""],
            vec![b"\"a\", *"],
            vec![b"*,*"],
            vec![b"**"],
            vec![b"*", b"*"],
            vec![b"*", b""],
            vec![b"*,"],
            vec![b",*"],
            vec![b"*", b"\"a\""],
            vec![b"\"a\"", b"*"],
            vec![b"\"a\"", b"garbage"],
            vec![b"\"\x7f\""],
        ] {
            assert_eq!(parse(&lines), Err(Malformed), "{lines:?}");
        }
    }

    /// The grammar as RFC 9110 writes it, slow and plain: split at commas outside of quotes, then each member.
    fn reference(lines: &[Vec<u8>]) -> Result<Option<TagList>, Malformed> {
        if lines.is_empty() {
            return Ok(None);
        }
        // Several lines are one, joined by commas (section 5.3).
        let joined = lines.join(&b","[..]);
        if trim_ows(&joined) == b"*" {
            return Ok(Some(TagList::Any));
        }
        let (mut members, mut is_quoted) = (vec![Vec::new()], false);
        for byte in joined {
            is_quoted ^= byte == b'"';
            if byte == b',' && !is_quoted {
                members.push(Vec::new());
            } else {
                members.last_mut().unwrap().push(byte);
            }
        }
        let members: Vec<&[u8]> = members.iter().map(|m| trim_ows(m)).filter(|m| !m.is_empty()).collect();
        let tags: Result<Vec<_>, _> =
            members.iter().map(|member| EntityTag::parse(member).map_err(|_| Malformed)).collect();
        match tags? {
            tags if tags.is_empty() => Err(Malformed),
            tags => Ok(Some(TagList::Tags(tags))),
        }
    }

    fn etagc() -> impl Strategy<Value = u8> {
        prop_oneof![Just(0x21), 0x23..=0x7eu8, 0x80..=0xffu8]
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4)) {
            let _ = TagList::parse_bytes(lines.iter().map(Vec::as_slice));
        }

        // Out of what lists are made of, so that many of them parse.
        #[test]
        fn it_agrees_with_the_grammar(line in "[\"W/*, \tab]{0,12}") {
            let lines = [line.into_bytes()];
            prop_assert_eq!(TagList::parse_bytes(lines.iter().map(Vec::as_slice)), reference(&lines));
        }

        #[test]
        fn lines_that_parse_agree_with_their_join(lines in prop::collection::vec("(W/)?\"[ab,]{0,3}\"|\\*|,| ", 0..4)) {
            let lines: Vec<Vec<u8>> = lines.into_iter().map(String::into_bytes).collect();
            prop_assert_eq!(TagList::parse_bytes(lines.iter().map(Vec::as_slice)), reference(&lines));
        }

        #[test]
        fn what_is_written_reads_back(
            parts in prop::collection::vec((any::<bool>(), prop::collection::vec(etagc(), 0..12)), 1..6),
        ) {
            let tags: Vec<EntityTag> = parts.iter().map(|(is_weak, opaque)| EntityTag::from_parts(*is_weak, opaque)).collect();
            let line = tags.iter().map(|tag| tag.to_header_value().as_bytes().to_vec()).collect::<Vec<_>>().join(&b", "[..]);
            prop_assert_eq!(TagList::parse_bytes([line.as_slice()]), Ok(Some(TagList::Tags(tags.clone()))));
            prop_assert_eq!(EntityTag::parse(tags[0].to_header_value().as_bytes()), Ok(tags[0].clone()));
        }
    }
}
