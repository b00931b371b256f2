//! Who sent it: Standard Webhooks signatures, checked before anything else is looked at.

use axum::http::{HeaderMap, StatusCode};
use standardwebhooks::Webhook;

use crate::problem::Problem;

/// Verifies deliveries with the secret that sender and receiver share, if there is one.
pub struct Verifier(Option<Webhook>);

impl Verifier {
    /// `secret`: `whsec_` and base64.
    pub fn new(secret: Option<&str>) -> Result<Self, standardwebhooks::WebhookError> {
        Ok(Self(secret.map(Webhook::new).transpose()?))
    }

    pub fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), Problem> {
        let Some(webhook) = &self.0 else { return Ok(()) };
        // The crate computes with the number before it looks at its size.
        let stamp = headers.get(standardwebhooks::HEADER_WEBHOOK_TIMESTAMP);
        let seconds = stamp.and_then(|stamp| stamp.to_str().ok()?.parse::<u32>().ok());
        if seconds.is_none() || webhook.verify(body, headers).is_err() {
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "The signature does not hold for this delivery."));
        }
        Ok(())
    }
}
