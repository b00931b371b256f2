//! What an OpenAPI 3.1 document says of guarded operations, as values of JSON that any generator can take in.
//!
//! With `utoipa`:
//!
//! ```
//! use utoipa::openapi::path::Parameter;
//! use utoipa::openapi::{RefOr, Response};
//!
//! # fn main() -> Result<(), serde_json::Error> {
//! let key: RefOr<Parameter> = serde_json::from_value(idempotency::openapi::header_parameter())?;
//! let mut operation = utoipa::openapi::path::Operation::new();
//! operation.parameters.get_or_insert_default().push(key);
//! for (status, response) in idempotency::openapi::refusals() {
//!     let response: Response = serde_json::from_value(response)?;
//!     operation.responses.responses.entry(status).or_insert(RefOr::T(response));
//! }
//! # assert_eq!(operation.parameters.as_ref().map(Vec::len), Some(1));
//! # assert!(operation.responses.responses.contains_key("422"));
//! # let document = serde_json::to_value(&operation)?;
//! # assert_eq!(document["parameters"][0]["in"], "header");
//! # assert!(document["responses"]["409"]["headers"]["Retry-After"].is_object());
//! # Ok(())
//! # }
//! ```
//!
//! With `aide`:
//!
//! ```
//! use aide::openapi::{Operation, ReferenceOr, StatusCode};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut operation = Operation::default();
//! operation.parameters.push(ReferenceOr::Item(serde_json::from_value(idempotency::openapi::header_parameter())?));
//! let responses = operation.responses.get_or_insert_default();
//! for (status, response) in idempotency::openapi::refusals() {
//!     let status = StatusCode::Code(status.parse()?);
//!     responses.responses.entry(status).or_insert(ReferenceOr::Item(serde_json::from_value(response)?));
//! }
//! # let document = serde_json::to_value(&operation)?;
//! # assert_eq!(document["parameters"][0]["name"], "Idempotency-Key");
//! # assert_eq!(document["responses"].as_object().map(serde_json::Map::len), Some(7));
//! # Ok(())
//! # }
//! ```

use serde_json::{Map, Value, json};

use crate::problem::{ProblemKind, TYPE_PREFIX};

/// The header field `Idempotency-Key` as a Parameter Object (OpenAPI 3.1, section 4.8.12).
///
/// It says `"required": true`. Change that member where the layer does not
/// [`require_key`](crate::IdempotencyLayer::require_key), and `name` where another field carries the key.
#[must_use]
pub fn header_parameter() -> Value {
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "required": true,
        "description": "A key of the client's own for one operation, the same for every attempt at it. Bare, or in quotes \
            (RFC 9651). A repeated request gets the answer of the first one, with `Idempotent-Replayed: true`.",
        "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
        "example": "8e03978e-40d5-43dd-bc93-6894a57f9324",
    })
}

/// The layer's refusals as Response Objects (section 4.8.17), by status: problem documents (RFC 9457), with `Retry-After`
/// where waiting helps. For the default profile; [`Profile::stripe`](crate::layer::Profile::stripe) says 400 where this
/// says 422.
///
/// Where the operation has an answer of its own of the same status, keep that one and mention these.
#[must_use]
pub fn refusals() -> Map<String, Value> {
    let mut statuses: Vec<u16> = ProblemKind::ALL.iter().map(|kind| kind.status().as_u16()).collect();
    statuses.sort_unstable();
    statuses.dedup();
    statuses.into_iter().map(|status| (status.to_string(), refusal(status))).collect()
}

fn refusal(status: u16) -> Value {
    let kinds: Vec<ProblemKind> =
        ProblemKind::ALL.iter().copied().filter(|kind| kind.status().as_u16() == status).collect();
    let titles: Vec<&str> = kinds.iter().map(|kind| kind.title()).collect();
    let types: Vec<String> = kinds.iter().map(|kind| kind.type_uri()).collect();
    let examples: Map<String, Value> = kinds
        .iter()
        .map(|kind| {
            let value = json!({
                "type": kind.type_uri(), "title": kind.title(), "status": status, "detail": kind.detail(),
            });
            (kind.slug().to_owned(), json!({ "value": value }))
        })
        .collect();
    let mut response = json!({
        "description": format!("{}.", titles.join("; ")),
        "content": { "application/problem+json": { "schema": {
            "type": "object",
            "required": ["type", "title", "status", "detail"],
            "properties": {
                "type": { "type": "string", "format": "uri", "enum": types,
                    "description": format!("What is wrong; it begins with `{TYPE_PREFIX}` and never changes.") },
                "title": { "type": "string" },
                "status": { "type": "integer", "enum": [status] },
                "detail": { "type": "string", "description": "What the client can do." },
            },
        }, "examples": examples } },
    });
    if kinds.iter().any(|kind| kind.waiting_helps()) {
        response["headers"] = json!({ "Retry-After": {
            "description": "Whole seconds after which the same request may succeed. Absent where waiting does not help.",
            "schema": { "type": "integer", "minimum": 1 },
        } });
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    // H42
    #[test]
    fn every_problem_is_there_under_its_status_and_waiting_is_told() {
        let refusals = refusals();
        for kind in ProblemKind::ALL {
            let response = &refusals[&kind.status().as_u16().to_string()];
            let media = &response["content"]["application/problem+json"];
            let types = media["schema"]["properties"]["type"]["enum"].as_array().unwrap();
            assert!(types.contains(&kind.type_uri().into()), "{kind:?}");
            assert_eq!(media["examples"][kind.slug()]["value"]["detail"], kind.detail());
            if kind.waiting_helps() {
                assert!(response["headers"]["Retry-After"].is_object(), "{kind:?}");
            }
        }
        assert!(refusals["422"].get("headers").is_none());
        assert_eq!(
            refusals.keys().map(String::as_str).collect::<Vec<_>>(),
            ["400", "409", "410", "413", "422", "500", "503"]
        );
    }
}
