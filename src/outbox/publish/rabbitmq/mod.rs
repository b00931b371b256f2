//! RabbitMQ.

mod channels;
mod judge;
mod message;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::uri::AMQPUri;
use tokio::time::{Instant, timeout_at};

use super::link::Link;
use super::{Answer, Publisher, Publishing, Reason};
use crate::error::{Error, ErrorKind};
use crate::outbox::PendingEvent;
use channels::Channels;

/// Publishes to an exchange of RabbitMQ. An event's topic is the routing key.
///
/// - Messages are persistent, mandatory and confirmed. One that no queue takes comes back and is refused as
///   [`Reason::Unroutable`], although the broker confirms it.
/// - Each event under way has a channel of its own, on one connection, and channels are used again. So a message that comes
///   back, and a channel that the broker closes (a missing exchange, no rights), tell of one event for certain. Where the
///   connection is lost, every event under way is [`Answer::Unknown`]. The next event connects anew.
/// - A *nack* is [`Answer::Unavailable`]: a queue is full, or the broker could not store.
/// - The event is a CloudEvent in binary mode; the property `message_id` is its id, `type` its type.
///
/// RabbitMQ drops no duplicates: consumers do, by the id.
///
/// The crate `lapin` logs a message that comes back at the level *warn*, payload included: filter
/// `lapin::returned_messages` where that must not be in logs.
#[derive(Clone)]
pub struct RabbitMqPublisher {
    link: Arc<Link<Arc<Channels>>>,
    uri: Arc<AMQPUri>,
    exchange: ShortString,
    deadline: Duration,
    max_event_bytes: Option<usize>,
}

impl RabbitMqPublisher {
    /// For this broker: `amqp://user:password@host:port/vhost`, `%2f` being the default vhost; `amqps://…` where the
    /// host's `lapin` has TLS. The connection is made when it is first needed. A heartbeat of ten seconds is asked for,
    /// unless the URI says another one.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`]: not such a URI.
    pub fn new(uri: &str) -> Result<Self, Error> {
        // The source may show the URI with its password.
        let mut uri =
            AMQPUri::from_str(uri).map_err(|_| Error::with_source(ErrorKind::Setup, "not the URI of a RabbitMQ"))?;
        uri.query.heartbeat.get_or_insert(10);
        Ok(Self {
            link: Arc::new(Link::new()),
            uri: Arc::new(uri),
            exchange: ShortString::default(),
            deadline: Duration::from_secs(5),
            max_event_bytes: None,
        })
    }

    /// Publishes to this exchange. Without it to the default one, where the routing key is the name of a queue. Clones
    /// with other exchanges share the connection.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`]: longer than 255 bytes.
    pub fn exchange(self, exchange: &str) -> Result<Self, Error> {
        let exchange =
            ShortString::try_new(exchange.to_owned()).map_err(|error| Error::with_source(ErrorKind::Setup, error))?;
        Ok(Self { exchange, ..self })
    }

    /// How long a confirm is waited for, connection included. Five seconds by default.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// The largest event, where the broker's `max_message_size` is known: it tells nobody. One that is larger than the
    /// broker takes is refused as [`Reason::Rejected`].
    #[must_use]
    pub fn with_max_event_bytes(self, bytes: usize) -> Self {
        Self { max_event_bytes: Some(bytes), ..self }
    }

    /// The connection's channels. A connection that was lost while nobody looked is made anew at once.
    async fn channels(&self, until: Instant) -> Option<Arc<Channels>> {
        loop {
            let open = self.link.open(|| Channels::connect(&self.uri, until)).await?;
            if open.connection.is_open() {
                return Some(open.connection);
            }
            self.link.leave(&open);
        }
    }

    async fn attempt(&self, event: &PendingEvent) -> Answer {
        if self.max_event_bytes.is_some_and(|most| event.event().size() > most) {
            return Answer::never(Reason::TooLarge);
        }
        let Some((routing_key, properties)) = message::parts(event) else { return Answer::never(Reason::Malformed) };
        let until = Instant::now() + self.deadline;
        let Ok(Some(channels)) = timeout_at(until, self.channels(until)).await else { return Answer::UNAVAILABLE };
        if channels.is_blocked() {
            // It reads no more, because of its memory or its disk.
            return Answer::UNAVAILABLE;
        }
        if message::header_bytes(event) > channels.frame_bytes() {
            // Properties must fit into one frame, or the broker closes the connection on everybody.
            return Answer::never(Reason::TooLarge);
        }
        let Ok(Ok(channel)) = timeout_at(until, channels.take()).await else { return Answer::UNAVAILABLE };
        let publishing = async {
            let options = BasicPublishOptions { mandatory: true, immediate: false };
            let payload = event.event().payload_ref();
            channel.basic_publish(self.exchange.clone(), routing_key, options, payload, properties).await?.await
        };
        match timeout_at(until, publishing).await {
            Ok(Ok(confirmation)) => {
                channels.give_back(channel);
                judge::confirmed(&confirmation)
            }
            Ok(Err(error)) => judge::failed(&error),
            // The channel is not used again: its confirm may still come.
            Err(_) => Answer::Unknown,
        }
    }
}

impl Publisher for RabbitMqPublisher {
    fn publish(&self, event: Arc<PendingEvent>) -> Publishing<'_> {
        Box::pin(async move { self.attempt(&event).await })
    }

    fn max_event_bytes(&self) -> Option<usize> {
        self.max_event_bytes
    }
}

impl fmt::Debug for RabbitMqPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqPublisher")
            .field("exchange", &self.exchange.as_str())
            .field("deadline", &self.deadline)
            .field("is_open", &self.link.current().is_some_and(|open| open.connection.is_open()))
            .finish_non_exhaustive()
    }
}
