//! From a header value to the text of the key: quoted (RFC 9651 section 4.2.5) or bare.

use std::borrow::Cow;

use super::{KeyError, params};

/// Gives the text of a key, unquoted. Length and blankness are left to the caller.
pub(super) fn unquote(field_value: &[u8]) -> Result<Cow<'_, str>, KeyError> {
    let value = trim_blanks(field_value);
    match value.split_first() {
        Some((b'"', rest)) => quoted(rest),
        _ => bare(value).map(Cow::Borrowed),
    }
}

/// Refuses everything but printable ASCII, the blank included.
pub(super) fn check_characters(text: &[u8]) -> Result<(), KeyError> {
    // Nearly every text has none of them, which is known quickest if all of it is looked at.
    if text.iter().fold(true, |all, byte| all & matches!(byte, 0x20..=0x7e)) {
        return Ok(());
    }
    text.iter().try_for_each(|&byte| check_character(byte))
}

fn check_character(byte: u8) -> Result<(), KeyError> {
    match byte {
        0x20..=0x7e => Ok(()),
        0x80..=0xff => Err(KeyError::NotAscii),
        _ => Err(KeyError::ControlCharacter),
    }
}

/// Without the blanks and tabs that RFC 9110 section 5.5 allows around a field value.
fn trim_blanks(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn bare(value: &[u8]) -> Result<&str, KeyError> {
    check_characters(value)?;
    if value.contains(&b'"') {
        return Err(KeyError::StrayQuote);
    }
    // HTTP lets a proxy join two header lines with a comma, so a comma may always mean two keys.
    if value.contains(&b',') {
        return Err(KeyError::SeveralValues);
    }
    std::str::from_utf8(value).map_err(|_| KeyError::NotAscii)
}

/// Reads what follows the opening quote.
fn quoted(value: &[u8]) -> Result<Cow<'_, str>, KeyError> {
    let plain = value.iter().position(|byte| matches!(byte, b'"' | b'\\')).unwrap_or(value.len());
    check_characters(&value[..plain])?;
    let text = std::str::from_utf8(&value[..plain]).map_err(|_| KeyError::NotAscii)?;
    let (text, rest) = match value[plain..].strip_prefix(b"\"") {
        Some(rest) => (Cow::Borrowed(text), rest),
        None => {
            let (text, rest) = escaped(text, &value[plain..])?;
            (Cow::Owned(text), rest)
        }
    };
    match params::skip(rest).ok_or(KeyError::BadParameter)? {
        [] => Ok(text),
        rest if trim_blanks(rest).starts_with(b",") => Err(KeyError::SeveralValues),
        _ => Err(KeyError::TextAfterQuote),
    }
}

/// Goes on after the text without escapes. Gives what follows the closing quote, too.
fn escaped<'v>(plain: &str, mut rest: &'v [u8]) -> Result<(String, &'v [u8]), KeyError> {
    let mut text = plain.to_owned();
    loop {
        let (&byte, after) = rest.split_first().ok_or(KeyError::UnclosedQuote)?;
        rest = after;
        match byte {
            b'"' => return Ok((text, rest)),
            b'\\' => {
                let (&escaped, after) = rest.split_first().ok_or(KeyError::UnclosedQuote)?;
                if !matches!(escaped, b'"' | b'\\') {
                    return Err(KeyError::BadEscape);
                }
                text.push(char::from(escaped));
                rest = after;
            }
            _ => {
                check_character(byte)?;
                text.push(char::from(byte));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Key, KeyError, MAX_KEY_BYTES};

    fn parsed(field_value: &str) -> Result<String, KeyError> {
        Key::parse(field_value.as_bytes()).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn quoted_and_bare_forms_are_one_key() {
        // H5, case K07
        for (field_value, text) in [
            ("abc", "abc"),
            ("\"abc\"", "abc"),
            (" \t abc \t ", "abc"),
            (" \t\"abc\"\t ", "abc"),
            ("\" abc \"", " abc "),
            ("a b", "a b"),
            ("a;b=\\", "a;b=\\"),
            ("a\\b", "a\\b"),
            ("\"a\\\\b\"", "a\\b"),
            ("\"a\\\"b\"", "a\"b"),
            ("\"a,b\"", "a,b"),
            ("'abc'", "'abc'"),
        ] {
            assert_eq!(parsed(field_value).as_deref(), Ok(text), "{field_value}");
        }
    }

    #[test]
    fn parameters_after_a_quoted_key_are_ignored() {
        // H5, case K07
        for field_value in ["\"abc\";v", "\"abc\";  v=1;w=\"x\\\"\";x=:YQ==:;*=?0", "\"abc\";v=1;v=2"] {
            assert_eq!(parsed(field_value).as_deref(), Ok("abc"), "{field_value}");
        }
    }

    #[test]
    fn a_malformed_value_is_refused_with_its_reason() {
        // H6, cases K06, K07, K08, K09
        for (field_value, error) in [
            ("", KeyError::Empty),
            (" \t ", KeyError::Empty),
            ("\"\"", KeyError::Empty),
            ("\"  \"", KeyError::OnlyBlanks),
            ("\"", KeyError::UnclosedQuote),
            ("\"abc", KeyError::UnclosedQuote),
            ("\"abc\\\"", KeyError::UnclosedQuote),
            ("\"abc\\", KeyError::UnclosedQuote),
            ("\"a\\b\"", KeyError::BadEscape),
            ("\"abc\"def", KeyError::TextAfterQuote),
            ("\"abc\" ;v", KeyError::TextAfterQuote),
            ("\"abc\";", KeyError::BadParameter),
            ("\"abc\";V", KeyError::BadParameter),
            ("\"abc\";v=", KeyError::BadParameter),
            ("\"abc\", \"def\"", KeyError::SeveralValues),
            ("\"abc\" ,\"def\"", KeyError::SeveralValues),
            ("abc,def", KeyError::SeveralValues),
            ("abc\"def", KeyError::StrayQuote),
            ("abc\"", KeyError::StrayQuote),
            ("a\tb", KeyError::ControlCharacter),
            ("a\u{0}b", KeyError::ControlCharacter),
            ("a\r\nb", KeyError::ControlCharacter),
            ("\"a\tb\"", KeyError::ControlCharacter),
            ("a…", KeyError::NotAscii),
            ("\"a…\"", KeyError::NotAscii),
        ] {
            assert_eq!(parsed(field_value), Err(error), "{field_value:?}");
        }
    }

    #[test]
    fn a_refusal_never_quotes_what_was_sent() {
        // H9
        let error = Key::parse(b"s3cret,s3cret").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cret"));
    }

    /// What RFC 9651 says about the value by the `sfv` crate, with our own rules on length and blanks put on top.
    fn by_sfv(field_value: &[u8]) -> Option<String> {
        let item: sfv::Item = sfv::Parser::new(super::trim_blanks(field_value)).parse().ok()?;
        let text = item.bare_item.as_string()?.as_str().to_owned();
        ((1..=MAX_KEY_BYTES).contains(&text.len()) && !text.trim_matches(' ').is_empty()).then_some(text)
    }

    /// Pieces that make well-formed and nearly well-formed values likely.
    fn quoted_value() -> impl Strategy<Value = Vec<u8>> {
        let inside = prop_oneof![
            5 => "[ -~]{0,12}".prop_map(|text| text.replace('\\', "\\\\").replace('"', "\\\"")),
            1 => "[ -~]{0,12}",
            1 => "[ a]{250,260}",
            1 => "\\PC{0,4}",
        ];
        let value = prop_oneof![
            "-?[0-9]{1,17}(\\.[0-9]{0,4})?",
            "@-?[0-9]{0,16}(\\.[0-9])?",
            "\\?[012]?",
            "[a-z*!:/'%-]{0,6}",
            ":[a-zA-Z0-9+/]{0,9}={0,3}:?",
            "%\"([ -~]|%[0-9a-fA-F]{2}|%c3%a4|%e2%82%ac|%ed%a0%80){0,4}\"?",
            "\"([ -~]|\\\\\"){0,4}\"?",
        ];
        let parameter = ("; {0,2}[a-z*A0-9][a-z0-9_.*A-]{0,3}", prop::option::of(value))
            .prop_map(|(name, value)| value.map_or(name.clone(), |value| format!("{name}={value}")));
        let end = prop_oneof![6 => Just(String::new()), 1 => "[ -~\\t]{0,3}"];
        (inside, prop::collection::vec(parameter, 0..3), end)
            .prop_map(|(inside, parameters, end)| format!("\"{inside}\"{}{end}", parameters.concat()).into_bytes())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn quoted_values_read_as_rfc_9651_says(field_value in quoted_value()) {
            // H5, case K07
            let ours = Key::parse(&field_value).ok().map(|key| key.as_str().to_owned());
            prop_assert_eq!(ours, by_sfv(&field_value));
        }

        #[test]
        fn any_bytes_after_a_quote_read_as_rfc_9651_says(rest in prop::collection::vec(any::<u8>(), 0..40)) {
            // H5
            let field_value = [b"\"".as_slice(), &rest].concat();
            let ours = Key::parse(&field_value).ok().map(|key| key.as_str().to_owned());
            prop_assert_eq!(ours, by_sfv(&field_value));
        }

        #[test]
        fn no_bytes_make_the_parser_panic(field_value in prop::collection::vec(any::<u8>(), 0..300)) {
            // H6, case K06
            let _ = Key::parse(&field_value);
        }

        #[test]
        fn every_key_survives_being_quoted(text in "[ -~]{1,255}") {
            // H5
            prop_assume!(!text.trim_matches(' ').is_empty());
            let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
            prop_assert_eq!(Key::parse(quoted.as_bytes()), Key::new(&text));
        }
    }
}
