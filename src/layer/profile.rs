//! Settings that belong together (H43).

use std::time::Duration;

use http::{Method, StatusCode};

use super::config::{Config, EndpointKey};
use crate::policy::Policy;
use crate::problem::ProblemKind;

/// How long both profiles keep a record.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How an API with idempotency keys behaves as a whole. See [`IdempotencyLayer::profile`](super::IdempotencyLayer::profile)
/// and the tables of the protocol guide.
///
/// | | [`ietf`](Self::ietf) | [`stripe`](Self::stripe) |
/// |---|---|---|
/// | guarded | POST, PATCH | POST |
/// | the same key on another endpoint | another operation | a mismatch |
/// | a mismatch | 422 `key-reused` | 400 `key-reused` |
/// | 424 and 5xx without `Retry-After` | nothing is kept, the key is free | the writes are undone, the answer is kept |
/// | retention | 24 h | 24 h |
///
/// All else is equal: keys of 1 to 255 bytes, 409 with `Retry-After` while the first request runs, and
/// `Idempotent-Replayed: true` on replays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile(Kind);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Ietf,
    Stripe,
}

impl Profile {
    /// The default: after draft-ietf-httpapi-idempotency-key-header.
    #[must_use]
    pub const fn ietf() -> Self {
        Self(Kind::Ietf)
    }

    /// After the documented behaviour of the Stripe API, version 1: a key belongs to one endpoint, and an operation that
    /// has failed on the server stays failed for its key.
    ///
    /// What is answered before an operation begins frees the key there, such as a bad parameter or a limit. This layer
    /// cannot see who answers, so it goes by the status: 400, 401, 403, 422, 429 and all other 4xx but 402, 409, 410
    /// and 424 are not kept. A handler that has begun and answers with one of them says `Outcome::refuse()`.
    ///
    /// A panic is no answer: it is not kept. To keep the 500 that becomes of it, put what catches panics below this
    /// layer.
    ///
    /// Refusals are problem documents here too, not Stripe's error objects: their form is
    /// [`refusals`](super::IdempotencyLayer::refusals).
    #[must_use]
    pub const fn stripe() -> Self {
        Self(Kind::Stripe)
    }

    pub(super) fn apply(self, config: &mut Config) {
        config.guard = None;
        config.retention = A_DAY;
        match self.0 {
            Kind::Ietf => {
                config.methods = vec![Method::POST, Method::PATCH];
                config.endpoint = EndpointKey::Path;
                config.policy = Policy::default();
                config.renderer.statuses(&[]);
            }
            Kind::Stripe => {
                config.methods = vec![Method::POST];
                config.endpoint = EndpointKey::Ignored;
                config.policy = Policy::stripe();
                config.renderer.statuses(&[(ProblemKind::KeyReused, StatusCode::BAD_REQUEST)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::Scope;

    // H43: a layer without a profile has the default one, and a later profile takes all of an earlier one back.
    #[test]
    fn the_default_profile_changes_nothing() {
        let of = |config: &Config| {
            let statuses = config.renderer.response(crate::problem::Problem::new(ProblemKind::KeyReused)).status();
            (config.methods.clone(), config.endpoint, config.retention, statuses, config.guard.is_some())
        };
        let (plain, mut config) = (Config::new(Scope::shared()), Config::new(Scope::shared()));
        Profile::default().apply(&mut config);
        assert_eq!((of(&config), Profile::default()), (of(&plain), Profile::ietf()));
        Profile::stripe().apply(&mut config);
        assert_ne!(of(&config), of(&plain));
        Profile::ietf().apply(&mut config);
        assert_eq!(of(&config), of(&plain));
    }
}
