//! Bodies: JSON objects, kept as they were sent.

use std::fmt;

use axum::http::StatusCode;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::problem::Problem;

/// The members of an object in their order, with the very text of their values.
pub struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Object<'a> {
    /// Not JSON is 400; JSON, but no object, is 422.
    pub fn parse(body: &'a [u8]) -> Result<Self, Problem> {
        // Read whole first: what comes after the first bytes of an array is looked at as well.
        if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(body) {
            return Err(Problem::new(StatusCode::BAD_REQUEST, error.to_string()));
        }
        serde_json::from_slice(body).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => {
                Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "The body must be a JSON object.")
            }
            _ => Problem::new(StatusCode::BAD_REQUEST, error.to_string()),
        })
    }

    /// `current` with the members of `patch` set. What a patch does not name keeps its text, numbers of any size
    /// included.
    pub fn patched(current: &[u8], patch: &[u8]) -> Result<Vec<u8>, Problem> {
        let patch = Object::parse(patch)?;
        let mut members = Object::parse(current)?.0;
        for (name, value) in patch.0 {
            match members.iter().position(|(member, _)| *member == name) {
                Some(first) => {
                    members[first].1 = value;
                    // A name that was there twice is there once.
                    let mut at = 0..;
                    members.retain(|(member, _)| at.next() <= Some(first) || *member != name);
                }
                None => members.push((name, value)),
            }
        }
        let mut text = String::from("{");
        for (at, (name, value)) in members.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            text += &format!("{comma}{}: {}", serde_json::Value::from(name.as_str()), value.get());
        }
        text.push('}');
        Ok(text.into())
    }
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<String, &RawValue>()? {
                    members.push(member);
                }
                Ok(Object(members))
            }
        }

        from.deserialize_map(Members)
    }
}
