//! The client's side: a call with its key.

use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::Failure;
use crate::service::{Order, PAY, Receipt};

pub struct Client(tonic::client::Grpc<Channel>);

impl Client {
    pub async fn connect(url: String) -> Result<Self, Failure> {
        Ok(Self(tonic::client::Grpc::new(Channel::from_shared(url)?.connect().await?)))
    }

    /// One attempt. Every attempt at an operation has the same key and the same message.
    pub async fn pay(&mut self, key: &'static str, account: &str, cents: i64) -> Result<Response<Receipt>, Status> {
        self.0.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let mut request = Request::new(Order { account: account.to_owned(), cents });
        request.metadata_mut().insert("idempotency-key", AsciiMetadataValue::from_static(key));
        self.0.unary(request, PathAndQuery::from_static(PAY), ProstCodec::<Order, Receipt>::default()).await
    }
}

/// Why the layer refused the call, if it was the layer.
pub fn problem(status: &Status) -> &str {
    status.metadata().get("idempotency-problem").and_then(|uri| uri.to_str().ok()).unwrap_or("not the layer's")
}
