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

/// Gives the relay its publisher, and makes the stream or queue where it is missing, so that there is something to look at.
pub async fn publisher<DB: Database>(relay: Relay<DB>, events: &str) -> Result<Relay<DB>, Failure> {
    let scheme = events.split_once(':').map(|(scheme, _)| scheme);
    Ok(match scheme {
        Some("stdout") => relay.publisher(NAME, LinesPublisher::stdout()),
        Some("nats") => {
            let client = async_nats::connect(events).await?;
            let jetstream = async_nats::jetstream::new(client.clone());
            let stream = async_nats::jetstream::stream::Config {
                name: "orders".to_owned(),
                subjects: vec!["orders.>".to_owned()],
                ..Default::default()
            };
            jetstream.get_or_create_stream(stream).await?;
            relay.publisher(NAME, NatsPublisher::new(client))
        }
        Some("amqp") => {
            let connection = lapin::Connection::connect(events, lapin::ConnectionProperties::default()).await?;
            let durable = lapin::options::QueueDeclareOptions { durable: true, ..Default::default() };
            let channel = connection.create_channel().await?;
            channel.queue_declare(TOPIC.into(), durable, lapin::types::FieldTable::default()).await?;
            connection.close(0, "".into()).await?;
            relay.publisher(NAME, RabbitMqPublisher::new(events)?)
        }
        Some("redis") => relay.publisher(NAME, RedisStreamsPublisher::single(events)?),
        Some("http") => relay.publisher(NAME, HttpPublisher::new(events)?.structured()),
        // It may hold a password, so it is not shown.
        _ => return Err("EVENTS must be stdout:, nats://…, amqp://…, redis://… or http://…".into()),
    })
}
