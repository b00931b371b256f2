//! Waits for a service to be ready and calls it once, for requests that the layer does not touch.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

pin_project! {
    pub(super) struct Oneshot<Svc, Req>
    where
        Svc: Service<Req>,
    {
        #[pin]
        state: State<Svc, Req, Svc::Future>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<Svc, Req, Fut> {
        Waiting { service: Svc, request: Option<Req> },
        Called { #[pin] future: Fut },
    }
}

impl<Svc: Service<Req>, Req> Oneshot<Svc, Req> {
    pub(super) fn new(service: Svc, request: Req) -> Self {
        Self { state: State::Waiting { service, request: Some(request) } }
    }
}

impl<Svc: Service<Req>, Req> Future for Oneshot<Svc, Req> {
    type Output = Result<Svc::Response, Svc::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let future = match state.as_mut().project() {
                StateProjection::Called { future } => return future.poll(cx),
                StateProjection::Waiting { service, request } => {
                    ready!(service.poll_ready(cx))?;
                    match request.take() {
                        Some(request) => service.call(request),
                        None => unreachable!("the state changes in the same poll that takes the request"),
                    }
                }
            };
            state.set(State::Called { future });
        }
    }
}
