//! What the status of an answer means where nobody says otherwise: one table a profile (H32, H43).

use http::StatusCode;

use super::Decision;

/// The default. 402, 409 and 410 are decisions about the operation; after every other error nothing was done, and the
/// next attempt may fare better.
pub(super) fn ietf(status: StatusCode) -> Decision {
    match status {
        StatusCode::PAYMENT_REQUIRED | StatusCode::CONFLICT | StatusCode::GONE => Decision::Refuse,
        s if s.is_client_error() || s.is_server_error() => Decision::Abandon,
        // 1xx never reaches a layer as a final answer, save 101, whose handler has accepted the upgrade.
        _ => Decision::Commit,
    }
}

/// As Stripe's API does it: what an endpoint answers once it has begun is its answer for ever, failures included. What
/// is said before that is not: a bad parameter (400, 422), a missing or wrong credential (401, 403), a limit (429).
/// Those look alike whoever says them, so they are judged as said before. 424 is a failure of somebody whom the endpoint
/// has called.
pub(super) fn stripe(status: StatusCode) -> Decision {
    match status {
        StatusCode::FAILED_DEPENDENCY => Decision::Refuse,
        s if s.is_server_error() => Decision::Refuse,
        s => ietf(s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // H32, H43, cases R14, L07 and R15: every status, by numbers written out apart from the code.
    #[test]
    fn every_status_has_its_decision_in_every_profile() {
        for code in 200..600 {
            let status = StatusCode::from_u16(code).unwrap();
            let of_ietf = match code {
                200..400 => Decision::Commit,
                402 | 409 | 410 => Decision::Refuse,
                _ => Decision::Abandon,
            };
            let of_stripe = match code {
                424 | 500..600 => Decision::Refuse,
                _ => of_ietf,
            };
            assert_eq!(ietf(status), of_ietf, "{code}");
            assert_eq!(stripe(status), of_stripe, "{code}");
        }
    }

    // H43: the layer cannot know whether a handler ran.
    #[test]
    fn what_a_router_says_by_itself_frees_the_key_in_every_profile() {
        for status in [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED] {
            assert_eq!((ietf(status), stripe(status)), (Decision::Abandon, Decision::Abandon));
        }
    }
}
