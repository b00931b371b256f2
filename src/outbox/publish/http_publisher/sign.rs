//! Signatures of requests.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::Sha256;

use crate::error::{Error, ErrorKind};
use crate::outbox::PendingEvent;

/// Adds header fields to a request that vouch for it. Functions from [`ToSign`] to a [`HeaderMap`] are such.
pub trait Sign: Send + Sync {
    /// The fields to add; they replace fields of the same names. Called once an attempt.
    fn sign(&self, request: &ToSign<'_>) -> HeaderMap;
}

impl<F: Fn(&ToSign<'_>) -> HeaderMap + Send + Sync> Sign for F {
    fn sign(&self, request: &ToSign<'_>) -> HeaderMap {
        self(request)
    }
}

/// What is to be signed.
#[derive(Clone, Copy, Debug)]
pub struct ToSign<'a> {
    /// The event.
    pub event: &'a PendingEvent,
    /// The header fields so far.
    pub headers: &'a HeaderMap,
    /// The body, byte for byte.
    pub body: &'a Bytes,
    /// When the attempt began, by this process's clock.
    pub now: SystemTime,
}

/// Signatures of Standard Webhooks 1.0: `webhook-id` is the event's id, the same on every attempt and redrive;
/// `webhook-timestamp` is the attempt's time in seconds; `webhook-signature` is `v1,` and an HMAC-SHA-256 in Base64.
#[derive(Clone)]
pub struct StandardWebhooks {
    keys: Vec<Hmac<Sha256>>,
}

impl StandardWebhooks {
    /// Signs with this secret: Base64 of 24 to 64 bytes, with or without `whsec_` before it.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`]: not such a secret.
    pub fn new(secret: &str) -> Result<Self, Error> {
        Self { keys: Vec::new() }.and_by(secret)
    }

    /// Signs with one more secret. While secrets are exchanged an endpoint may have the old or the new one.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`]: not such a secret.
    pub fn and_by(mut self, secret: &str) -> Result<Self, Error> {
        let wrong = || Error::with_source(ErrorKind::Setup, "not a secret of Standard Webhooks");
        let secret = STANDARD.decode(secret.strip_prefix("whsec_").unwrap_or(secret)).map_err(|_| wrong())?;
        if !(24..=64).contains(&secret.len()) {
            return Err(wrong());
        }
        self.keys.push(Hmac::new_from_slice(&secret).map_err(|_| wrong())?);
        Ok(self)
    }

    /// The three fields, in their order.
    fn fields(&self, id: &str, now: SystemTime, body: &[u8]) -> [(&'static str, String); 3] {
        let timestamp = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().to_string();
        let signatures: Vec<String> = self
            .keys
            .iter()
            .map(|key| {
                let mac = key.clone().chain_update(id).chain_update(".").chain_update(&timestamp).chain_update(".");
                format!("v1,{}", STANDARD.encode(mac.chain_update(body).finalize().into_bytes()))
            })
            .collect();
        [("webhook-id", id.to_owned()), ("webhook-timestamp", timestamp), ("webhook-signature", signatures.join(" "))]
    }
}

impl Sign for StandardWebhooks {
    fn sign(&self, request: &ToSign<'_>) -> HeaderMap {
        let fields = self.fields(&request.event.id().to_string(), request.now, request.body);
        let field = |(name, value): (&'static str, String)| {
            Some((HeaderName::from_static(name), HeaderValue::from_str(&value).ok()?))
        };
        fields.into_iter().filter_map(field).collect()
    }
}

impl fmt::Debug for StandardWebhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandardWebhooks").field("secrets", &self.keys.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    // The vector of the specification's own libraries.
    #[test]
    fn a_known_signature() {
        let now = UNIX_EPOCH + Duration::from_secs(1_614_265_330);
        let signed = StandardWebhooks::new(SECRET).unwrap();
        let [id, timestamp, signature] = signed.fields("msg_p5jXN8AQM9LWM0D4loKWxJek", now, br#"{"test": 2432232314}"#);
        assert_eq!(id, ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek".to_owned()));
        assert_eq!(timestamp, ("webhook-timestamp", "1614265330".to_owned()));
        assert_eq!(signature, ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=".to_owned()));
        let both = signed.and_by(&SECRET[6..]).unwrap();
        let [.., (_, two)] = both.fields("msg_p5jXN8AQM9LWM0D4loKWxJek", now, br#"{"test": 2432232314}"#);
        assert_eq!(two, format!("{0} {0}", signature.1));
    }

    #[test]
    fn short_secrets_and_what_is_none_are_refused() {
        for secret in ["", "whsec_", "whsec_c2hvcnQ=", "not base64!", &format!("whsec_{}", STANDARD.encode([1; 65]))] {
            assert!(StandardWebhooks::new(secret).is_err(), "{secret}");
        }
        assert!(!format!("{:?}", StandardWebhooks::new(SECRET).unwrap()).contains("MfKQ"));
    }
}
