//! Parameters of a structured field (RFC 9651 section 4.2.3.2): whether they are well-formed. What they say is ignored.
//!
//! Every function takes the rest of the input and gives what is left after the thing it is named for; `None` where the
//! thing is malformed.

/// Skips all parameters; what is left does not start with `;`.
pub(super) fn skip(mut rest: &[u8]) -> Option<&[u8]> {
    while let [b';', after @ ..] = rest {
        rest = name(skip_while(after, |byte| byte == b' '))?;
        if let [b'=', after @ ..] = rest {
            rest = bare_item(after)?;
        }
    }
    Some(rest)
}

/// Section 4.2.3.3.
fn name(rest: &[u8]) -> Option<&[u8]> {
    rest.first().filter(|byte| byte.is_ascii_lowercase() || **byte == b'*')?;
    Some(skip_while(rest, |byte| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'.' | b'*')
    }))
}

/// Section 4.2.3.1.
fn bare_item(rest: &[u8]) -> Option<&[u8]> {
    match rest {
        [b'-' | b'0'..=b'9', ..] => number(rest).map(|(_, rest)| rest),
        [b'"', rest @ ..] => string(rest),
        [b'*' | b'a'..=b'z' | b'A'..=b'Z', ..] => Some(skip_while(rest, is_token_byte)),
        [b':', rest @ ..] => byte_sequence(rest),
        [b'?', b'0' | b'1', rest @ ..] => Some(rest),
        [b'@', rest @ ..] => number(rest).and_then(|(kind, rest)| (kind == Number::Integer).then_some(rest)),
        [b'%', b'"', rest @ ..] => display_string(rest),
        _ => None,
    }
}

#[derive(PartialEq)]
enum Number {
    Integer,
    Decimal,
}

/// Section 4.2.4: at most 15 digits, or 12 before and 3 after the point.
fn number(rest: &[u8]) -> Option<(Number, &[u8])> {
    let digits = rest.strip_prefix(b"-").unwrap_or(rest);
    let after = skip_while(digits, |byte| byte.is_ascii_digit());
    let whole = digits.len() - after.len();
    let [b'.', fraction @ ..] = after else {
        return (1..=15).contains(&whole).then_some((Number::Integer, after));
    };
    let after = skip_while(fraction, |byte| byte.is_ascii_digit());
    let places = fraction.len() - after.len();
    ((1..=12).contains(&whole) && (1..=3).contains(&places)).then_some((Number::Decimal, after))
}

/// Section 4.2.5, after the opening quote.
fn string(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        rest = match rest {
            [b'"', after @ ..] => return Some(after),
            [b'\\', b'"' | b'\\', after @ ..] => after,
            [b'\\', ..] => return None,
            [0x20..=0x7e, after @ ..] => after,
            _ => return None,
        };
    }
}

/// Section 4.2.7, after the opening colon. Padding may be left out, and the last digit's spare bits may be set.
fn byte_sequence(rest: &[u8]) -> Option<&[u8]> {
    let padding = skip_while(rest, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
    let digits = rest.len() - padding.len();
    let after = skip_while(padding, |byte| byte == b'=');
    let padded = padding.len() - after.len();
    let allowed = match digits % 4 {
        0 => 0,
        1 => return None,
        spare => 4 - spare,
    };
    after.strip_prefix(b":").filter(|_| padded <= allowed)
}

/// Section 4.2.10, after the opening quote.
fn display_string(mut rest: &[u8]) -> Option<&[u8]> {
    let mut text = Vec::new();
    loop {
        rest = match rest {
            [b'"', after @ ..] => return std::str::from_utf8(&text).is_ok().then_some(after),
            [b'%', high, low, after @ ..] => {
                text.push((lower_hex(*high)? << 4) | lower_hex(*low)?);
                after
            }
            [b'%', ..] => return None,
            [byte @ 0x20..=0x7e, after @ ..] => {
                text.push(*byte);
                after
            }
            _ => return None,
        };
    }
}

fn lower_hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// `tchar` of RFC 9110 section 5.6.2, `:` and `/`.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
}

fn skip_while(rest: &[u8], belongs: impl Fn(u8) -> bool) -> &[u8] {
    let length = rest.iter().position(|&byte| !belongs(byte)).unwrap_or(rest.len());
    &rest[length..]
}

#[cfg(test)]
mod tests {
    use super::skip;

    #[test]
    fn well_formed_parameters_are_skipped_whole() {
        // H5
        for parameters in [
            "",
            ";a",
            ";  a;b",
            ";*a-b_c.d*0",
            ";a=-1",
            ";a=123456789012345",
            ";a=123456789012.123",
            ";a=\"x\\\"\\\\\"",
            ";a=*tok/en:x",
            ";a=::",
            ";a=:YQ==:",
            ";a=:YQ:",
            ";a=?1",
            ";a=@-1659578233",
            ";a=%\"f%c3%bc\"",
        ] {
            assert_eq!(skip(parameters.as_bytes()), Some(b"".as_slice()), "{parameters}");
        }
    }

    #[test]
    fn malformed_parameters_are_refused() {
        // H5
        for parameters in [
            ";",
            ";1a",
            ";A",
            ";\ta",
            ";a=",
            ";a=-",
            ";a=1234567890123456",
            ";a=1234567890123.1",
            ";a=1.",
            ";a=1.1234",
            ";a=\"x",
            ";a=\"\\x\"",
            ";a=:YQ",
            ";a=:Y:",
            ";a=:YQ===:",
            ";a=?2",
            ";a=@1.5",
            ";a=%\"%C3\"",
            ";a=%\"%c3\"",
            ";a=%x",
            ";a=(b)",
        ] {
            assert_eq!(skip(parameters.as_bytes()), None, "{parameters}");
        }
    }

    #[test]
    fn text_after_the_parameters_is_left() {
        // H6
        assert_eq!(skip(b";a=1 x"), Some(b" x".as_slice()));
        assert_eq!(skip(b",b"), Some(b",b".as_slice()));
    }
}
