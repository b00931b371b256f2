//! One text inside of a JSON body, by its JSON pointer (RFC 6901).
//!
//! A name that stands twice in an object is refused where the pointer leads through it: parsers differ in which one they
//! take, so sender and reader might speak of two different ids.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::IdError;

/// A pointer taken apart.
#[derive(Clone, Debug)]
pub(super) struct Pointer {
    text: String,
    /// `None`: not a pointer, so it finds nothing.
    tokens: Option<Vec<String>>,
}

impl Pointer {
    pub(super) fn new(text: &str) -> Self {
        let tokens = match text.strip_prefix('/') {
            Some(rest) => Some(rest.split('/').map(|token| token.replace("~1", "/").replace("~0", "~")).collect()),
            None if text.is_empty() => Some(Vec::new()),
            None => None,
        };
        Self { text: text.to_owned(), tokens }
    }

    /// The string there.
    pub(super) fn string_in(&self, body: &[u8]) -> Result<String, IdError> {
        match self.find(body)? {
            Value::String(text) => Ok(text),
            _ => Err(IdError::NotText(self.what())),
        }
    }

    /// The string there, or the digits of a whole number.
    pub(super) fn text_in(&self, body: &[u8]) -> Result<String, IdError> {
        match self.find(body)? {
            Value::String(text) => Ok(text),
            Value::Number(number) if !number.is_f64() => Ok(number.to_string()),
            _ => Err(IdError::NotText(self.what())),
        }
    }

    fn find(&self, body: &[u8]) -> Result<Value, IdError> {
        let tokens = self.tokens.as_deref().ok_or_else(|| self.absent())?;
        let mut reader = serde_json::Deserializer::from_slice(body);
        let found = Step(tokens).deserialize(&mut reader).map_err(|_| IdError::NotJson)?;
        reader.end().map_err(|_| IdError::NotJson)?;
        match found {
            Found::Nothing => Err(self.absent()),
            Found::Twice => Err(IdError::Repeated(self.what())),
            Found::One(Value::Null) => Err(self.absent()),
            Found::One(value) => Ok(value),
        }
    }

    fn what(&self) -> String {
        format!("`{}` of the JSON body", self.text)
    }

    fn absent(&self) -> IdError {
        IdError::Absent(self.what())
    }
}

enum Found {
    Nothing,
    Twice,
    One(Value),
}

/// Reads a value as far as these tokens lead into it. All of it is read, so that a body which is cut off is seen.
struct Step<'a>(&'a [String]);

impl<'de> DeserializeSeed<'de> for Step<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        match self.0.split_first() {
            None => Value::deserialize(deserializer).map(Found::One),
            Some((token, rest)) => deserializer.deserialize_any(Into { token, rest }),
        }
    }
}

/// Looks for the token among the members or elements of a value; one of another kind has none.
struct Into<'a> {
    token: &'a str,
    rest: &'a [String],
}

impl<'de> Visitor<'de> for Into<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<String>()? {
            if name != self.token {
                map.next_value::<IgnoredAny>()?;
            } else if found.is_some() {
                map.next_value::<IgnoredAny>()?;
                found = Some(Found::Twice);
            } else {
                found = Some(map.next_value_seed(Step(self.rest))?);
            }
        }
        Ok(found.unwrap_or(Found::Nothing))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Found, A::Error> {
        // RFC 6901 section 4: no leading zeros, no sign.
        let is_index = self.token == "0" || !self.token.starts_with(['0', '+']);
        let wanted = self.token.parse::<usize>().ok().filter(|_| is_index);
        let (mut found, mut index) = (Found::Nothing, 0);
        loop {
            if wanted == Some(index) {
                match seq.next_element_seed(Step(self.rest))? {
                    Some(value) => found = value,
                    None => return Ok(found),
                }
            } else if seq.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            }
            index += 1;
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<Found, E> {
        Ok(Found::Nothing)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Found, E> {
        Ok(Found::Nothing)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Found, E> {
        Ok(Found::Nothing)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Found, E> {
        Ok(Found::Nothing)
    }

    fn visit_str<E>(self, _: &str) -> Result<Found, E> {
        Ok(Found::Nothing)
    }

    fn visit_unit<E>(self) -> Result<Found, E> {
        Ok(Found::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pointer: &str, body: &str) -> Result<String, IdError> {
        Pointer::new(pointer).text_in(body.as_bytes())
    }

    // M9
    #[test]
    fn a_string_or_a_whole_number_is_found_where_the_pointer_leads() {
        assert_eq!(text("/id", r#"{"id":"evt_1"}"#).unwrap(), "evt_1");
        assert_eq!(text("/a/1/~0~1", r#"{"x":[{}],"a":[0,{"~/":7}]}"#).unwrap(), "7");
        assert!(text("/id", r#"{"id":-18446744073709551615}"#).is_err(), "more than 64 bits are no whole number");
        assert_eq!(text("/id", r#"{"\u0069d":"by an escape"}"#).unwrap(), "by an escape");
        assert_eq!(text("/", r#"{"":"empty name"}"#).unwrap(), "empty name");
        assert_eq!(text("", r#""the whole""#).unwrap(), "the whole");
    }

    #[test]
    fn what_is_not_there_is_absent() {
        for (pointer, body) in [
            ("/id", "{}"),
            ("/id", r#"{"id":null}"#),
            ("/id", r#"{"ID":"x"}"#),
            ("/id", "[1]"),
            ("/id", "true"),
            ("/id/x", r#"{"id":"x"}"#),
            ("/01", "[0,1]"),
            ("/+1", "[0,1]"),
            ("/2", "[0,1]"),
            ("id", r#"{"id":"not a pointer"}"#),
        ] {
            assert!(matches!(text(pointer, body), Err(IdError::Absent(_))), "{pointer} {body}");
        }
    }

    #[test]
    fn a_name_that_stands_twice_on_the_way_is_refused() {
        for body in [r#"{"a":{"id":1,"id":1}}"#, r#"{"a":{"id":1},"a":{"id":1}}"#, r#"{"a":{},"a":{"id":1}}"#] {
            assert!(matches!(text("/a/id", body), Err(IdError::Repeated(_))), "{body}");
        }
        assert_eq!(text("/a/id", r#"{"b":1,"b":2,"a":{"id":"beside the way"}}"#).unwrap(), "beside the way");
    }

    #[test]
    fn other_values_and_other_bodies_are_no_text() {
        for body in [r#"{"id":{}}"#, r#"{"id":[]}"#, r#"{"id":1.5}"#, r#"{"id":true}"#] {
            assert!(matches!(text("/id", body), Err(IdError::NotText(_))), "{body}");
        }
        for body in ["", "{", r#"{"id":"x""#, r#"{"id":"x"} y"#, r#"{"id":"\ud800"}"#, "\u{feff}{}"] {
            assert_eq!(text("/id", body), Err(IdError::NotJson), "{body}");
        }
    }

    #[test]
    fn a_name_is_shown_and_its_value_is_not() {
        let error = text("/id", r#"{"id":["secret"]}"#).unwrap_err();
        assert!(error.to_string().contains("/id") && !error.to_string().contains("secret"), "{error}");
    }
}
