//! What a client asks for, and what becomes of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bounds that keep a mistyped request from hurting the service.
const LONGEST_WAIT: u64 = 60_000;
const LARGEST_FILLER: usize = 64 * 1024 * 1024;
const LONGEST_REFERENCE: usize = 500;

/// The body of a request. Unknown members are ignored, whatever their value.
#[derive(Deserialize)]
pub struct Order {
    pub amount: i64,
    pub currency: String,
    pub card: String,
    #[serde(default)]
    pub reference: Option<String>,
}

/// A payment or a transfer as it is stored and shown.
#[derive(Clone, Serialize, sqlx::FromRow)]
pub struct Payment {
    pub id: String,
    pub amount: i64,
    pub currency: String,
    pub card: String,
    pub reference: Option<String>,
    pub created_at: String,
}

/// What the card says once the row is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Card {
    Ok,
    Declined,
    Unavailable,
    Limited,
    Panic,
    Slow(Duration),
    Large(usize),
    Cookie,
}

impl Order {
    /// Reads a body: `Err` is what is wrong, and whether it is the JSON (400) or a value (422).
    pub fn parse(body: &[u8]) -> Result<(Self, Card), Wrong> {
        // An array would do for serde as well.
        if body.trim_ascii_start().first() != Some(&b'{')
            && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
        {
            return Err(Wrong::Value("the body must be a JSON object".to_owned()));
        }
        let order: Self = serde_json::from_slice(body).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => Wrong::Value(error.to_string()),
            _ => Wrong::Json(error.to_string()),
        })?;
        let card = Card::parse(&order.card).ok_or_else(|| Wrong::Value("card: not a test card".to_owned()))?;
        if order.amount <= 0 {
            return Err(Wrong::Value("amount: must be at least 1, in minor units".to_owned()));
        }
        if order.currency.len() != 3 || !order.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(Wrong::Value("currency: must be three capital letters (ISO 4217)".to_owned()));
        }
        // Postgres has no text with a NUL in it.
        if order.reference.as_ref().is_some_and(|text| text.len() > LONGEST_REFERENCE || text.contains('\0')) {
            return Err(Wrong::Value(format!("reference: at most {LONGEST_REFERENCE} bytes, without NUL")));
        }
        Ok((order, card))
    }
}

/// What is wrong with a body.
pub enum Wrong {
    Json(String),
    Value(String),
}

impl Card {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "ok" => Self::Ok,
            "declined" => Self::Declined,
            "unavailable" => Self::Unavailable,
            "limited" => Self::Limited,
            "panic" => Self::Panic,
            "cookie" => Self::Cookie,
            _ => match text.split_once(':')? {
                ("slow", wait) => {
                    Self::Slow(Duration::from_millis(wait.parse().ok().filter(|wait| *wait <= LONGEST_WAIT)?))
                }
                ("large", size) => Self::Large(size.parse().ok().filter(|size| *size <= LARGEST_FILLER)?),
                _ => return None,
            },
        })
    }
}
