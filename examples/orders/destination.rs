//! Where events go: `EVENTS`.

use idempotency::outbox::publish::{
    HttpPublisher, LinesPublisher, NatsPublisher, RabbitMqPublisher, RedisStreamsPublisher,
};
use idempotency::outbox::relay::Relay;

use crate::Failure;
use crate::database::Database;

/// What events name their destination. Which broker that is, the relay knows.
pub const NAME: &str = "events";
/// The subject, queue or stream there.
pub const TOPIC: &str = "orders.placed";

/// Where events go.
pub enum Destination<'a> {
    Lines,
    Nats(&'a str),
    RabbitMq(&'a str),
    Redis(&'a str),
    Http(&'a str),
}

impl<'a> Destination<'a> {
    pub fn parse(events: &'a str) -> Result<Self, Failure> {
        match events.split_once(':').map(|(scheme, _)| scheme) {
            Some("stdout") => Ok(Self::Lines),
            Some("nats") => Ok(Self::Nats(events)),
            Some("amqp") => Ok(Self::RabbitMq(events)),
            Some("redis") => Ok(Self::Redis(events)),
            Some("http") => Ok(Self::Http(events)),
            // It may hold a password, so it is not shown.
            _ => Err("EVENTS must be stdout:, nats://…, amqp://…, redis://… or http://…".into()),
        }
    }

    /// Gives the relay its publisher, and makes the stream or queue where it is missing, so that there is something to
    /// look at.
    pub async fn publisher<DB: Database>(&self, relay: Relay<DB>) -> Result<Relay<DB>, Failure> {
        Ok(match *self {
            Self::Lines => relay.publisher(NAME, LinesPublisher::stdout()),
            Self::Nats(url) => {
                let client = async_nats::connect(url).await?;
                let jetstream = async_nats::jetstream::new(client.clone());
                let stream = async_nats::jetstream::stream::Config {
                    name: "orders".to_owned(),
                    subjects: vec!["orders.>".to_owned()],
                    ..Default::default()
                };
                jetstream.get_or_create_stream(stream).await?;
                relay.publisher(NAME, NatsPublisher::new(client))
            }
            Self::RabbitMq(url) => {
                let connection = lapin::Connection::connect(url, lapin::ConnectionProperties::default()).await?;
                let durable = lapin::options::QueueDeclareOptions { durable: true, ..Default::default() };
                let channel = connection.create_channel().await?;
                channel.queue_declare(TOPIC.into(), durable, lapin::types::FieldTable::default()).await?;
                connection.close(0, "".into()).await?;
                relay.publisher(NAME, RabbitMqPublisher::new(url)?)
            }
            Self::Redis(url) => relay.publisher(NAME, RedisStreamsPublisher::single(url)?),
            Self::Http(url) => relay.publisher(NAME, HttpPublisher::new(url)?.structured()),
        })
    }
}
