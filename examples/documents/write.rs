//! The body of a write, and then its transaction.

use std::marker::PhantomData;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::Extensions;
use axum::response::Result;
use idempotency::Tx;

use crate::database::Database;

/// A request without a key is not read by the layer before it runs. Were its transaction begun first, as by the extractor
/// `Tx`, a client that sends its body slowly would hold it: on SQLite, everybody's write lock.
pub struct Write<DB> {
    pub body: Bytes,
    extensions: Extensions,
    engine: PhantomData<fn() -> DB>,
}

impl<DB: Database> Write<DB> {
    /// Begins the transaction, or takes that of the key's claim.
    pub async fn begin(&self) -> Result<Tx<DB>> {
        Ok(Tx::take(&self.extensions).await?)
    }
}

impl<DB: Database, S: Send + Sync> FromRequest<S> for Write<DB> {
    type Rejection = <Bytes as FromRequest<S>>::Rejection;

    async fn from_request(request: Request, state: &S) -> std::result::Result<Self, Self::Rejection> {
        let extensions = request.extensions().clone();
        let body = Bytes::from_request(request, state).await?;
        Ok(Self { body, extensions, engine: PhantomData })
    }
}
