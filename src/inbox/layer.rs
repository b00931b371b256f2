//! The inbox as a tower layer, for consumers that are services (M9).

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use super::source::{IdError, IdSource, Incoming};
use super::{Inbox, InboxDialect, InboxTx, Message, Opened, Processed};
use crate::error::{Error, ErrorKind};
use crate::events::Event;
use crate::layer::unwind::Caught;

/// Makes a service of messages process each of them once: what [`Inbox::process`] is for a function.
///
/// The inner service gets a [`Delivery`], with the transaction in which the message was accepted. What it writes through
/// that is committed when it answers, and undone when it fails or panics. The outer service takes what a broker's client
/// has received, an [`Incoming`], and answers with [`Processed`], which says whether to acknowledge.
///
/// The inner service is called for first deliveries only. An answer of any kind is a success: a service that answers
/// failures (an `http::Response` with status 500) must make an error of them.
///
/// # Where to put it
/// trace, timeout → rate and concurrency limits of the consumer → **inbox** → handler. A timeout outside drops the handler
/// and rolls back.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # async fn f(pool: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
/// use bytes::Bytes;
/// use idempotency::inbox::{Delivery, Inbox, InboxLayer, source::IdSource};
/// use tower::{ServiceBuilder, service_fn};
///
/// let inbox = Inbox::new(pool, "billing").await?;
/// let consumer = ServiceBuilder::new()
///     .layer(InboxLayer::new(inbox, IdSource::cloud_events()))
///     .service(service_fn(async |delivery: Delivery<http::Request<Bytes>, sqlx::Sqlite>| {
///         let Delivery { message, mut tx, .. } = delivery;
///         let order: i64 = serde_json::from_slice(message.body()).map_err(sqlx::Error::decode)?;
///         sqlx::query("INSERT INTO invoices (order_id) VALUES (?)").bind(order).execute(&mut *tx).await.map(drop)
///     }));
/// # let _ = consumer; Ok(()) }
/// ```
pub struct InboxLayer<DB: InboxDialect> {
    inbox: Inbox<DB>,
    ids: IdSource,
    compares_payloads: bool,
    trusts_counts: bool,
}

/// A message for the first time, as the inner service gets it.
pub struct Delivery<M, DB: InboxDialect> {
    /// What was received.
    pub message: M,
    /// The transaction in which it was accepted. Drop it before the answer.
    pub tx: InboxTx<DB>,
    /// Which attempt at the message it is, counted from 1; `None` where nobody counts.
    pub attempt: Option<u64>,
}

/// Why a message was not processed.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeliveryError<E> {
    /// It has no identity, and will have none when it comes again: put it aside, then acknowledge it.
    Identity(IdError),
    /// The service's own error, also when it was not ready. Everything was undone. Let the message come again.
    Service(E),
    /// The service has panicked. Everything was undone. Let the message come again.
    Panicked,
    /// The inbox: see [`Inbox::process`]. Let the message come again.
    Inbox(Error),
}

impl<E> DeliveryError<E> {
    /// Whether a redelivery may help. Where not, put the message aside and acknowledge it.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Identity(_))
    }
}

impl<DB: InboxDialect> InboxLayer<DB> {
    /// A layer over `inbox`. Where the identity of a message comes from has no default.
    #[must_use]
    pub fn new(inbox: Inbox<DB>, ids: IdSource) -> Self {
        Self { inbox, ids, compares_payloads: true, trusts_counts: true }
    }

    /// Does not compare payloads, for senders whose bytes differ between deliveries: nothing is ever a
    /// [`Conflict`](Processed::Conflict).
    #[must_use]
    pub fn ignore_payloads(self) -> Self {
        Self { compares_payloads: false, ..self }
    }

    /// Does not ask the broker how often it has delivered a message: only failures that the inbox counts make it
    /// [`Poison`](Processed::Poison). For brokers that also count what was [`Busy`](Processed::Busy), where that happens
    /// often: a message could be given up that has never failed.
    #[must_use]
    pub fn ignore_delivery_counts(self) -> Self {
        Self { trusts_counts: false, ..self }
    }

    fn message(&self, incoming: &impl Incoming) -> Result<Message, IdError> {
        let id = self.ids.read(incoming)?;
        let message =
            if self.compares_payloads { Message::new(id, incoming.payload()) } else { Message::without_payload(id) };
        Ok(match incoming.deliveries().filter(|_| self.trusts_counts) {
            Some(deliveries) => message.with_deliveries(deliveries),
            None => message,
        })
    }
}

/// The service that [`InboxLayer`] makes of another one.
pub struct InboxService<Svc, DB: InboxDialect> {
    inner: Svc,
    layer: InboxLayer<DB>,
}

impl<Svc, DB: InboxDialect> Layer<Svc> for InboxLayer<DB> {
    type Service = InboxService<Svc, DB>;

    fn layer(&self, inner: Svc) -> Self::Service {
        InboxService { inner, layer: self.clone() }
    }
}

/// The answer of an [`InboxService`]. Dropped, the service's future is dropped and rolled back.
pub type InboxFuture<T, E> = Pin<Box<dyn Future<Output = Result<Processed<T>, DeliveryError<E>>> + Send>>;

impl<Svc, M, DB> Service<M> for InboxService<Svc, DB>
where
    Svc: Service<Delivery<M, DB>> + Clone + Send + 'static,
    Svc::Future: Send + 'static,
    Svc::Response: Send,
    Svc::Error: Send,
    M: Incoming + Send + 'static,
    DB: InboxDialect,
{
    type Response = Processed<Svc::Response>;
    type Error = DeliveryError<Svc::Error>;
    type Future = InboxFuture<Svc::Response, Svc::Error>;

    /// Always ready: the inner service is asked just before the message is accepted, so that no transaction waits for it.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, incoming: M) -> Self::Future {
        let message = self.layer.message(&incoming);
        let (inbox, inner) = (self.layer.inbox.clone(), self.inner.clone());
        Box::pin(async move {
            let message = message.map_err(DeliveryError::Identity)?;
            deliver(&inbox, inner, incoming, &message).await
        })
    }
}

async fn deliver<Svc, M, DB>(
    inbox: &Inbox<DB>,
    mut inner: Svc,
    incoming: M,
    message: &Message,
) -> Result<Processed<Svc::Response>, DeliveryError<Svc::Error>>
where
    Svc: Service<Delivery<M, DB>>,
    DB: InboxDialect,
{
    poll_fn(|cx| inner.poll_ready(cx)).await.map_err(DeliveryError::Service)?;
    let first = match inbox.open(message).await.map_err(DeliveryError::Inbox)? {
        Opened::First(first) => first,
        Opened::Duplicate => return Ok(Processed::Duplicate),
        Opened::Busy { retry_after } => return Ok(Processed::Busy { retry_after }),
        Opened::Conflict => return Ok(Processed::Conflict),
        Opened::Poison => return Ok(Processed::Poison),
    };
    let tx = match first.tx().await {
        Ok(tx) => tx,
        Err(error) => return Err(DeliveryError::Inbox(Error::with_source(ErrorKind::Unavailable, error))),
    };
    let delivery = Delivery { message: incoming, tx, attempt: first.attempt() };
    match Caught::calling(|| inner.call(delivery)).await {
        Ok(Ok(answer)) => {
            first.commit().await.map_err(DeliveryError::Inbox)?;
            Ok(Processed::First(answer))
        }
        Ok(Err(error)) => {
            first.fail().await;
            Err(DeliveryError::Service(error))
        }
        Err(_) => {
            inbox.shared.of().emit(Event::Panicked);
            first.fail().await;
            Err(DeliveryError::Panicked)
        }
    }
}

impl<DB: InboxDialect> Clone for InboxLayer<DB> {
    fn clone(&self) -> Self {
        Self { inbox: self.inbox.clone(), ids: self.ids.clone(), ..*self }
    }
}

impl<Svc: Clone, DB: InboxDialect> Clone for InboxService<Svc, DB> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

// By hand, so that a service may fail with a `Box<dyn Error>`, which is no `Error` itself.
impl<E: fmt::Display> fmt::Display for DeliveryError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity(_) => f.write_str("the message has no identity"),
            Self::Service(error) => error.fmt(f),
            Self::Panicked => f.write_str("the handler has panicked"),
            Self::Inbox(_) => f.write_str("the inbox failed"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for DeliveryError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Identity(error) => Some(error),
            Self::Inbox(error) => Some(error),
            Self::Service(_) | Self::Panicked => None,
        }
    }
}

impl<DB: InboxDialect> fmt::Debug for InboxLayer<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxLayer").field("inbox", &self.inbox).field("ids", &self.ids).finish_non_exhaustive()
    }
}

impl<Svc, DB: InboxDialect> fmt::Debug for InboxService<Svc, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxService").field("layer", &self.layer).finish_non_exhaustive()
    }
}

impl<M, DB: InboxDialect> fmt::Debug for Delivery<M, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}
