//! The policy for tower's retry layer.

use std::time::SystemTime;

use http::{Request, Response};
use tokio::time::{Sleep, sleep};
use tower::retry::Policy;

use super::body::RepeatBody;
use super::course::Course;
use super::judge::{Sign, judge};
use super::origin::Home;
use super::policy::RetryPolicy;
use crate::key::IDEMPOTENCY_KEY;

/// A [`tower::retry::Policy`] for requests with an `Idempotency-Key`; others get one attempt, as do requests whose body
/// cannot be sent again (see [`RepeatBody`]; the event `unrepeatable_body` says so once).
///
/// What comes back is judged by status and header fields, see [`RetryPolicy`]. Every error of the inner service counts as
/// one of the connection: after it nobody knows whether the server has done its work, and the key makes another attempt
/// safe. The time of one attempt (a timeout) stands inside. Requests are never sent twice at once.
#[derive(Clone, Debug)]
pub struct IdempotentRetry {
    policy: RetryPolicy,
    course: Course,
}

impl IdempotentRetry {
    /// For tower's `RetryLayer`, inside of a [`KeyLayer`](super::KeyLayer).
    #[must_use]
    pub fn new(policy: RetryPolicy) -> Self {
        Self { policy, course: Course::begin() }
    }
}

impl<B: RepeatBody, R, E> Policy<Request<B>, Response<R>, E> for IdempotentRetry {
    type Future = Sleep;

    fn retry(&mut self, request: &mut Request<B>, result: &mut Result<Response<R>, E>) -> Option<Sleep> {
        let sign = match result {
            // It went on to another origin, without its key.
            _ if Home::was_left(request) => Sign::Final,
            Ok(response) => judge(&self.policy, response.status(), response.headers(), SystemTime::now()),
            Err(_) => Sign::Again,
        };
        self.course.next(&self.policy, sign).map(sleep)
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        if !request.headers().contains_key(IDEMPOTENCY_KEY) {
            return None;
        }
        // tower asks the service's own policy first and then clones it for the operation, so this is where one begins.
        if self.course.is_new() {
            self.course = Course::begin();
        }
        let Some(body) = request.body().repeat() else {
            self.policy.say_unrepeatable();
            return None;
        };
        let mut again = Request::new(body);
        again.method_mut().clone_from(request.method());
        again.uri_mut().clone_from(request.uri());
        *again.version_mut() = request.version();
        again.headers_mut().clone_from(request.headers());
        again.extensions_mut().clone_from(request.extensions());
        Some(again)
    }
}
