//! What a service may be expected to do, where the conventions differ.

use std::str::FromStr;

use http::HeaderValue;

/// The conventions that a service follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// draft-ietf-httpapi-idempotency-key-header: keys in quotes, 400 for a missing one, 422 for one that is reused, 409
    /// while the first request runs, problem documents.
    #[default]
    Ietf,
    /// As the Stripe API, version 1: a key may be missing, one that is reused is 400, replays are marked.
    Stripe,
    /// As the Agentic Commerce Protocol: as `Ietf` with keys without quotes, replays are marked, errors are JSON objects
    /// with `type`, `code` and `message`.
    Acp,
}

impl Profile {
    /// The key as this convention writes it.
    pub(super) fn value(self, key: &str) -> Vec<HeaderValue> {
        let text = match self {
            Self::Ietf => format!("\"{key}\""),
            Self::Stripe | Self::Acp => key.to_owned(),
        };
        HeaderValue::from_str(&text).into_iter().collect()
    }

    /// What a key that was used for another request is answered with.
    pub(super) fn reused(self) -> u16 {
        match self {
            Self::Ietf | Self::Acp => 422,
            Self::Stripe => 400,
        }
    }

    pub(super) fn needs_key(self) -> bool {
        self != Self::Stripe
    }

    pub(super) fn marks_replays(self) -> bool {
        self != Self::Ietf
    }
}

impl FromStr for Profile {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "ietf" => Ok(Self::Ietf),
            "stripe" => Ok(Self::Stripe),
            "acp" => Ok(Self::Acp),
            _ => Err("a profile is ietf, stripe or acp"),
        }
    }
}
