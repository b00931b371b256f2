//! What a delivery says.

use std::time::Duration;

use axum::http::StatusCode;
use serde::Deserialize;

use crate::problem::Problem;

/// The longest wait that `payment.slow` may ask for.
const LONGEST: u64 = 60_000;

/// An event of the payment service provider.
pub enum Event {
    /// Money has arrived, after this wait.
    Settled { payment: String, amount: i64, wait: Duration },
    /// One that this service cannot process.
    Fail,
    /// One that is of no interest here. It is accepted, or the sender would send it for ever.
    Other,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    r#type: String,
    #[serde(borrow)]
    data: Option<&'a serde_json::value::RawValue>,
}

#[derive(Deserialize)]
struct Payment {
    payment: String,
    amount: i64,
    #[serde(default = "second")]
    ms: u64,
}

fn second() -> u64 {
    1000
}

impl Event {
    /// How long it takes before it can be applied.
    pub fn wait(&self) -> Duration {
        match self {
            Self::Settled { wait, .. } => *wait,
            Self::Fail | Self::Other => Duration::ZERO,
        }
    }

    pub fn parse(body: &[u8]) -> Result<Self, Problem> {
        let envelope: Envelope<'_> = serde_json::from_slice(body)
            .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "The body is not an event as JSON."))?;
        let slow = match envelope.r#type.as_str() {
            "payment.settled" => false,
            "payment.slow" => true,
            "payment.fail" => return Ok(Self::Fail),
            _ => return Ok(Self::Other),
        };
        let wrong = "data needs `payment`, 1 to 128 bytes of text without NUL, and `amount`, a whole number; `ms` is at most 60000.";
        let wrong = || Problem::new(StatusCode::UNPROCESSABLE_ENTITY, wrong);
        let data = envelope.data.ok_or_else(wrong)?;
        let Payment { payment, amount, ms } = serde_json::from_str(data.get()).map_err(|_| wrong())?;
        // A balance of 64 bits has room for as many of these as will ever come.
        if !(1..=128).contains(&payment.len())
            || payment.contains('\0')
            || amount.unsigned_abs() > 1 << 40
            || ms > LONGEST
        {
            return Err(wrong());
        }
        let wait = if slow { Duration::from_millis(ms) } else { Duration::ZERO };
        Ok(Self::Settled { payment, amount, wait })
    }
}
