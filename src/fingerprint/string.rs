//! JSON strings (RFC 8259 section 7), unescaped.

/// Ends a string in the canonical encoding. It occurs in no UTF-8 text, so no length is needed in front.
pub(super) const END: u8 = 0xff;

/// How many bytes more than its own a string may take while it is written.
pub(super) const WORD: usize = 8;

/// Reads what follows an opening quote. Writes the unescaped text and [`END`], and gives the number of bytes read, the
/// closing quote included.
///
/// `text` must be UTF-8. `None`: no closing quote, a bare control character, a bad escape or a lone surrogate.
pub(super) fn scan(text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let mut rest = text;
    loop {
        rest = copy_plain(rest, out);
        let (&byte, after) = rest.split_first()?;
        match byte {
            b'"' => {
                out.push(END);
                return Some(text.len() - after.len());
            }
            b'\\' => rest = &after[unescape(after, out)?..],
            _ => return None,
        }
    }
}

/// Copies the bytes from the start that need no attention: neither quote, backslash nor control character. Gives the
/// rest.
///
/// Words of eight are copied whole and cut to what is plain in them: most strings are short, and a copy of a length that
/// is not known beforehand costs a call.
fn copy_plain<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    while let Some((word, after)) = rest.split_first_chunk::<WORD>() {
        out.extend_from_slice(word);
        let marks = marks(u64::from_le_bytes(*word));
        if marks != 0 {
            let plain = (marks.trailing_zeros() / 8) as usize;
            out.truncate(out.len() - (WORD - plain));
            return &rest[plain..];
        }
        rest = after;
    }
    let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f)).unwrap_or(rest.len());
    out.extend_from_slice(&rest[..plain]);
    &rest[plain..]
}

/// Sets the top bit of the first byte that needs attention. Bits above that one may be wrong, because the subtractions
/// borrow from higher bytes; zero is always right.
fn marks(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (equal(b'"') | equal(b'\\') | below(word, 0x20)) & (ONES * 0x80)
}

/// Reads what follows a backslash, writes the character and gives the number of bytes read. Apart, since most strings have
/// none.
#[cold]
#[inline(never)]
fn unescape(rest: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let byte = match rest.first()? {
        byte @ (b'"' | b'\\' | b'/') => *byte,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'u' => {
            let (character, read) = unicode(&rest[1..])?;
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(1 + read);
        }
        _ => return None,
    };
    out.push(byte);
    Some(1)
}

/// Reads what follows `\u`: four hex digits, or two such groups that form a surrogate pair.
fn unicode(rest: &[u8]) -> Option<(char, usize)> {
    let high = hex4(rest)?;
    if !(0xd800..0xdc00).contains(&high) {
        // A low surrogate alone is no character.
        return Some((char::from_u32(high)?, 4));
    }
    let low = hex4(rest[4..].strip_prefix(b"\\u")?)?;
    if !(0xdc00..0xe000).contains(&low) {
        return None;
    }
    Some((char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00))?, 10))
}

fn hex4(rest: &[u8]) -> Option<u32> {
    rest.first_chunk::<4>()?.iter().try_fold(0, |value, &digit| Some(value << 4 | char::from(digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unescaped(text: &str) -> Option<String> {
        let mut out = Vec::new();
        let read = scan(text.as_bytes(), &mut out)?;
        assert_eq!(read, text.len());
        assert_eq!(out.pop(), Some(END));
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn strings_are_unescaped() {
        // H15
        for (text, expected) in [
            (r#"""#, ""),
            (r#"abc""#, "abc"),
            (r#"\u0061\u00e9\u20AC\u20ac""#, "aé€€"),
            (r#"\ud83d\ude00 😀""#, "😀 😀"),
            (r#"\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"),
            (r#"\u0000""#, "\u{0}"),
            (r#"a long text, then an \n escape""#, "a long text, then an \n escape"),
        ] {
            assert_eq!(unescaped(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn malformed_strings_are_refused() {
        // H15
        for text in [
            "",
            "abc",
            "abcdefghijkl",
            r"\",
            r#"\x""#,
            r#"\u12"#,
            r#"\u12g4""#,
            r#"\u+123""#,
            "a\nb\"",
            "abcdefghijk\u{1f}\"",
            r#"\ud800""#,
            r#"\ud800a""#,
            r#"\ud800\n""#,
            r#"\ud800\u0061""#,
            r#"\ud800\ud800""#,
            r#"\ud800\ue000""#,
            r#"\udc00""#,
            r#"\udc00\ud800""#,
        ] {
            assert_eq!(unescaped(text), None, "{text}");
        }
    }

    #[test]
    fn every_byte_is_noticed_at_every_place() {
        // H15: the search by words of eight agrees with the search by bytes.
        for byte in 0..=255u8 {
            for place in 0..20 {
                let mut bytes = [0xc3; 20];
                bytes[place] = byte;
                let expected = if matches!(byte, b'"' | b'\\' | 0..=0x1f) { place } else { 20 };
                let mut out = vec![b'>'];
                let rest = copy_plain(&bytes, &mut out);
                assert_eq!((&out[1..], rest), bytes.split_at(expected), "{byte:#x} at {place}");
            }
        }
    }
}
