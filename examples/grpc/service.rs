//! `payments.Payments`, as tonic's code generator would write it, and its handler.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use idempotency::{Tx, TxError};
use sqlx::Sqlite;
use tonic::body::Body;
use tonic::codegen::{StdError, http};
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Order {
    #[prost(string, tag = "1")]
    pub account: String,
    #[prost(int64, tag = "2")]
    pub cents: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Receipt {
    #[prost(int64, tag = "1")]
    pub id: i64,
    #[prost(int64, tag = "2")]
    pub cents: i64,
}

pub const PAY: &str = "/payments.Payments/Pay";

#[derive(Clone, Default)]
pub struct Payments {
    runs: Arc<AtomicUsize>,
}

impl Payments {
    /// How often a payment was asked for in earnest.
    pub fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// The handler: what it writes through `Tx` is kept together with its answer, or not at all.
    async fn pay(&self, request: Request<Order>) -> Result<Response<Receipt>, Status> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        // Kept, and told to every retry with this key: the order itself is wrong.
        if request.get_ref().cents <= 0 {
            return Err(Status::invalid_argument("cents must be more than 0"));
        }
        let mut tx = Tx::<Sqlite>::take(request.extensions()).await.map_err(|error| no_transaction(&error))?;
        let Order { account, cents } = request.into_inner();
        let id = sqlx::query_scalar("INSERT INTO payments (account, cents) VALUES (?, ?) RETURNING id")
            .bind(account)
            .bind(cents)
            .fetch_one(&mut *tx)
            .await
            .map_err(|error| failed(&error))?;
        Ok(Response::new(Receipt { id, cents }))
    }
}

/// Nothing is kept, and the client may send the call again.
fn failed(error: &sqlx::Error) -> Status {
    if idempotency::is_retryable::<Sqlite>(error) {
        Status::unavailable("Send the same call again.")
    } else {
        Status::internal("The payment could not be stored.")
    }
}

fn no_transaction(error: &TxError) -> Status {
    Status::unavailable(format!("No transaction: {error}."))
}

impl NamedService for Payments {
    const NAME: &'static str = "payments.Payments";
}

impl<B> Service<http::Request<B>> for Payments
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let payments = self.clone();
        Box::pin(async move {
            if request.uri().path() != PAY {
                return Ok(Status::unimplemented("").into_http());
            }
            let pay = service_fn(move |order| {
                let payments = payments.clone();
                async move { payments.pay(order).await }
            });
            Ok(Grpc::new(ProstCodec::<Receipt, Order>::default()).unary(pay, request).await)
        })
    }
}
