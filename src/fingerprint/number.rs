//! JSON numbers (RFC 8259 section 6) as exact decimals: `1`, `1.0` and `10e-1` are one number, and nothing is rounded.

use super::string::END;

/// Zero, whatever its sign and spelling.
const ZERO: u8 = b'0';
/// Starts a number above zero.
const POSITIVE: u8 = b'+';
/// Starts a number below zero.
const NEGATIVE: u8 = b'-';
/// Stands in for an exponent that is no `i8`; 16 bytes of an `i128` follow. No small exponent has this byte.
const WIDE: u8 = i8::MIN.to_le_bytes()[0];

/// Reads the number at the start. Writes a tag, the exponent, the digits without leading and trailing zeros and [`END`],
/// and gives the number of bytes read. The number is digits × 10^exponent.
///
/// `None`: not a number, or an exponent that does not fit into an `i128`.
pub(super) fn scan(rest: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let negative = rest.first() == Some(&b'-');
    let mut at = usize::from(negative);
    let whole = digits(&rest[at..]);
    if matches!(whole, [] | [b'0', _, ..]) {
        return None;
    }
    at += whole.len();
    let mut fraction: &[u8] = &[];
    if rest.get(at) == Some(&b'.') {
        fraction = digits(&rest[at + 1..]);
        if fraction.is_empty() {
            return None;
        }
        at += 1 + fraction.len();
    }
    let mut exponent = 0;
    if matches!(rest.get(at), Some(b'e' | b'E')) {
        let read = exponent_length(&rest[at + 1..])?;
        exponent = std::str::from_utf8(&rest[at + 1..at + 1 + read]).ok()?.parse().ok()?;
        at += 1 + read;
    }
    write(negative, whole, fraction, exponent, out)?;
    Some(at)
}

fn write(negative: bool, whole: &[u8], fraction: &[u8], exponent: i128, out: &mut Vec<u8>) -> Option<()> {
    let fraction = without_trailing_zeros(fraction);
    if whole == b"0" && fraction.is_empty() {
        out.push(ZERO);
        return Some(());
    }
    let (first, second, exponent) = if fraction.is_empty() {
        let first = without_trailing_zeros(whole);
        (first, fraction, exponent.checked_add(length(whole.len() - first.len())?)?)
    } else {
        let exponent = exponent.checked_sub(length(fraction.len())?)?;
        // The grammar allows a leading zero only where it is the whole part.
        if whole == b"0" {
            (without_leading_zeros(fraction), &fraction[..0], exponent)
        } else {
            (whole, fraction, exponent)
        }
    };
    out.push(if negative { NEGATIVE } else { POSITIVE });
    match i8::try_from(exponent) {
        Ok(small) if small != i8::MIN => out.extend_from_slice(&small.to_le_bytes()),
        _ => {
            out.push(WIDE);
            out.extend_from_slice(&exponent.to_le_bytes());
        }
    }
    out.extend_from_slice(first);
    out.extend_from_slice(second);
    out.push(END);
    Some(())
}

fn length(length: usize) -> Option<i128> {
    i128::try_from(length).ok()
}

fn digits(rest: &[u8]) -> &[u8] {
    let length = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    &rest[..length]
}

/// Bytes of what follows the `e`: a sign or none, and at least one digit.
fn exponent_length(rest: &[u8]) -> Option<usize> {
    let sign = usize::from(matches!(rest.first(), Some(b'+' | b'-')));
    match digits(&rest[sign..]).len() {
        0 => None,
        length => Some(sign + length),
    }
}

fn without_trailing_zeros(mut digits: &[u8]) -> &[u8] {
    while let [rest @ .., b'0'] = digits {
        digits = rest;
    }
    digits
}

fn without_leading_zeros(mut digits: &[u8]) -> &[u8] {
    while let [b'0', rest @ ..] = digits {
        digits = rest;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let read = scan(text.as_bytes(), &mut out)?;
        (read == text.len()).then_some(out)
    }

    #[test]
    fn spellings_of_one_number_are_equal() {
        // H15
        let wide = "1".to_owned() + &"0".repeat(400);
        for group in [
            &["1", "1.0", "10e-1", "0.1e1", "0.001E+3", "1e0", "1e-0", "1000e-003"][..],
            &["0", "-0", "0.0", "-0.000", "0e999", "0E-999", "-0.0e+5"],
            &["-1.5", "-15e-1", "-1.50", "-0.15e1"],
            &[&wide, "1e400", "10e399"],
            &["100", "1e2", "1.00e2"],
            &["120.0340", "120034e-3", "0.0120034e4"],
            &["1e-128", "0.1e-127", "10e-129"],
        ] {
            for text in group {
                assert_eq!(canonical(text), canonical(group[0]), "{text}");
                assert!(canonical(text).is_some(), "{text}");
            }
        }
    }

    #[test]
    fn different_numbers_are_never_equal() {
        // H15
        let texts = [
            "0",
            "1",
            "-1",
            "10",
            "0.1",
            "11",
            "1e400",
            "1e401",
            "-1e400",
            "1e-400",
            "1e127",
            "1e128",
            "1e-127",
            "1e-128",
            "1e-129",
            "9007199254740992",
            "9007199254740993",
            "0.30000000000000004",
            "0.3",
            "1.7976931348623157e309",
            "1e170141183460469231731687303715884105727",
            "1e-170141183460469231731687303715884105728",
        ];
        for (at, a) in texts.iter().enumerate() {
            for b in &texts[..at] {
                assert_ne!(canonical(a), canonical(b), "{a} {b}");
            }
        }
    }

    #[test]
    fn the_mark_of_a_wide_exponent_is_no_exponent() {
        // H15: the digits of one number are the exponent's bytes of the other one.
        let wide = i128::from_le_bytes(*b"1111111111111111");
        let narrow = canonical("1111111111111111234e-128").unwrap();
        assert_ne!(canonical(&format!("234e{wide}")).unwrap(), narrow);
    }

    #[test]
    fn an_exponent_beyond_i128_is_none() {
        // H15
        for text in [
            "1e170141183460469231731687303715884105728",
            "10e170141183460469231731687303715884105727",
            "1e-170141183460469231731687303715884105729",
            "0.1e-170141183460469231731687303715884105728",
            "0e170141183460469231731687303715884105728",
        ] {
            assert_eq!(canonical(text), None, "{text}");
        }
        assert_eq!(canonical("0e170141183460469231731687303715884105727"), canonical("0"));
        assert_eq!(canonical("-0.0e-170141183460469231731687303715884105728"), canonical("0"));
        assert!(canonical("1e00000000000000000000000000000000000000000000000001").is_some());
    }

    #[test]
    fn what_the_grammar_does_not_allow_is_none() {
        // H15
        for text in
            ["", "-", "+1", "01", "-01", "00", "1.", ".5", "1.e5", "1e", "1e+", "1e-", "0x1", "1_0", "NaN", "--1"]
        {
            assert_eq!(canonical(text), None, "{text}");
        }
    }
}
