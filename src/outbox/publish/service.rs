//! Publishers as tower services and back, so that tower's middleware fits around them.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tower_service::Service;

use super::{Answer, Publisher, Publishing};
use crate::outbox::PendingEvent;

/// A publisher as a tower service. Always ready; it has no errors, only answers.
#[derive(Debug)]
pub struct PublisherService<P>(Arc<P>);

impl<P> PublisherService<P> {
    /// The service of this publisher.
    #[must_use]
    pub fn new(publisher: P) -> Self {
        Self(Arc::new(publisher))
    }
}

impl<P> Clone for PublisherService<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P: Publisher + 'static> Service<Arc<PendingEvent>> for PublisherService<P> {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, event: Arc<PendingEvent>) -> Self::Future {
        let publisher = Arc::clone(&self.0);
        Box::pin(async move { Ok(publisher.publish(event).await) })
    }
}

/// A tower service as a publisher: most often a [`PublisherService`] with layers around it.
///
/// An error of the service is [`Answer::Unknown`]: a time limit of tower may end a call that has been sent. An error before
/// the call, of `poll_ready`, is [`Answer::Unavailable`]. Each event is published by a clone of the service, so state that
/// all share belongs behind tower's `Buffer`.
///
/// It keeps no ordered pipeline, whatever is inside.
pub struct ServicePublisher<S> {
    service: Mutex<S>,
    max_event_bytes: Option<usize>,
    on_error: fn(&(dyn std::error::Error + 'static)) -> Answer,
}

impl<S> ServicePublisher<S> {
    /// The publisher of this service.
    #[must_use]
    pub fn new(service: S) -> Self {
        Self { service: Mutex::new(service), max_event_bytes: None, on_error: |_| Answer::Unknown }
    }

    /// What [`Publisher::max_event_bytes`] says; nobody can see into a service.
    #[must_use]
    pub fn with_max_event_bytes(self, bytes: usize) -> Self {
        Self { max_event_bytes: Some(bytes), ..self }
    }

    /// What an error of a call means, where the service knows it better than *unknown*: a refusal to send, for example by
    /// `LoadShed`, is [`Answer::UNAVAILABLE`].
    #[must_use]
    pub fn on_error(self, answer: fn(&(dyn std::error::Error + 'static)) -> Answer) -> Self {
        Self { on_error: answer, ..self }
    }
}

impl<S> Publisher for ServicePublisher<S>
where
    S: Service<Arc<PendingEvent>, Response = Answer> + Clone + Send + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::Future: Send,
{
    fn publish(&self, event: Arc<PendingEvent>) -> Publishing<'_> {
        let mut service = self.service.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let on_error = self.on_error;
        Box::pin(async move {
            if poll_fn(|cx| service.poll_ready(cx)).await.is_err() {
                return Answer::UNAVAILABLE;
            }
            match service.call(event).await {
                Ok(answer) => answer,
                Err(error) => on_error(&*error.into()),
            }
        })
    }

    fn max_event_bytes(&self) -> Option<usize> {
        self.max_event_bytes
    }
}

impl<S> fmt::Debug for ServicePublisher<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServicePublisher").field("max_event_bytes", &self.max_event_bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::outbox::Event;
    use crate::outbox::publish::testing::pending;

    /// Answers after so long.
    struct Slow(Duration, Answer);

    impl Publisher for Slow {
        fn publish(&self, _event: Arc<PendingEvent>) -> Publishing<'_> {
            Box::pin(async { tokio::time::sleep(self.0).await }).then(self.1)
        }
    }

    trait Then<'a> {
        fn then(self, answer: Answer) -> Publishing<'a>;
    }

    impl<'a, F: Future<Output = ()> + Send + 'a> Then<'a> for F {
        fn then(self, answer: Answer) -> Publishing<'a> {
            Box::pin(async move {
                self.await;
                answer
            })
        }
    }

    fn event() -> Arc<PendingEvent> {
        pending(Event::new("out", "", "t", "/s"), SystemTime::now(), 0).into()
    }

    // M34: what a time limit has cut off may have been sent.
    #[tokio::test(start_paused = true)]
    async fn tower_fits_around_a_publisher() {
        let within = |limit| {
            let inner = PublisherService::new(Slow(Duration::from_secs(1), Answer::ACKED));
            let service = tower::ServiceBuilder::new().timeout(Duration::from_millis(limit)).service(inner);
            ServicePublisher::new(service).with_max_event_bytes(7)
        };
        assert_eq!(within(2_000).publish(event()).await, Answer::ACKED);
        assert_eq!(within(500).publish(event()).await, Answer::Unknown);
        assert_eq!(within(500).on_error(|_| Answer::UNAVAILABLE).publish(event()).await, Answer::UNAVAILABLE);
        let boxed: Box<dyn Publisher> = Box::new(within(1));
        assert_eq!((boxed.max_event_bytes(), boxed.keeps_order()), (Some(7), false));
    }
}
