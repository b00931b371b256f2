//! The brokers, and what their clients do without a relay.

use std::time::Instant;

use async_nats::jetstream::{self, stream};
use futures_util::{StreamExt, TryStreamExt};
use idempotency::outbox::PendingEvent;
use idempotency::outbox::publish::{NatsPublisher, Publisher, Publishing, RabbitMqPublisher, RedisStreamsPublisher};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use redis::aio::MultiplexedConnection;

use crate::{Failure, PAYLOAD, rate};

pub(crate) struct Broker {
    pub(crate) name: &'static str,
    topic: String,
    client: Client,
    publisher: AnyPublisher,
}

enum Client {
    Nats(jetstream::Context),
    RabbitMq { channel: Channel, _connection: Connection },
    Redis(MultiplexedConnection),
}

/// Of one of the brokers.
#[derive(Clone)]
pub(crate) struct AnyPublisher(std::sync::Arc<dyn Publisher>);

impl Publisher for AnyPublisher {
    fn publish(&self, event: std::sync::Arc<PendingEvent>) -> Publishing<'_> {
        self.0.publish(event)
    }
}

fn address(name: &str) -> Result<String, Failure> {
    std::env::var(name).map_err(|_| format!("{name} is not set").into())
}

impl Broker {
    pub(crate) async fn nats() -> Result<Self, Failure> {
        let (url, topic) = (address("NATS_URL")?, format!("bench-{}", std::process::id()));
        let context = jetstream::new(async_nats::connect(&url).await?);
        let config = stream::Config { name: topic.clone(), subjects: vec![topic.clone()], ..Default::default() };
        context.create_stream(config).await?;
        let publisher = NatsPublisher::connect(&url).await?;
        Ok(Self::new("nats", topic, Client::Nats(context), publisher))
    }

    pub(crate) async fn rabbitmq() -> Result<Self, Failure> {
        let (url, topic) = (address("AMQP_URL")?, format!("bench-{}", std::process::id()));
        let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        channel.queue_declare(topic.as_str().into(), options, FieldTable::default()).await?;
        let publisher = RabbitMqPublisher::new(&url)?;
        Ok(Self::new("rabbitmq", topic, Client::RabbitMq { channel, _connection: connection }, publisher))
    }

    pub(crate) async fn redis() -> Result<Self, Failure> {
        let (url, topic) = (address("REDIS_URL")?, format!("bench-{}", std::process::id()));
        let connection = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
        let publisher = RedisStreamsPublisher::single(url.as_str())?;
        Ok(Self::new("redis", topic, Client::Redis(connection), publisher))
    }

    fn new(name: &'static str, topic: String, client: Client, publisher: impl Publisher + 'static) -> Self {
        Self { name, topic, client, publisher: AnyPublisher(std::sync::Arc::new(publisher)) }
    }

    pub(crate) fn topic(&self) -> &str {
        &self.topic
    }

    pub(crate) fn publisher(&self) -> AnyPublisher {
        self.publisher.clone()
    }

    /// How many messages a second the client publishes and has acked, so many out at once.
    pub(crate) async fn client_alone(&self, messages: usize, window: usize) -> Result<f64, Failure> {
        let start = Instant::now();
        futures_util::stream::iter(0..messages)
            .map(|_| self.one())
            .buffer_unordered(window)
            .try_for_each(async |()| Ok(()))
            .await?;
        Ok(rate(messages, start.elapsed()))
    }

    async fn one(&self) -> Result<(), Failure> {
        let payload = vec![b'x'; PAYLOAD];
        match &self.client {
            Client::Nats(context) => {
                context.publish(self.topic.clone(), payload.into()).await?.await?;
            }
            Client::RabbitMq { channel, .. } => {
                let options = BasicPublishOptions { mandatory: true, ..Default::default() };
                let properties = BasicProperties::default().with_delivery_mode(2);
                let topic = self.topic.as_str().into();
                let confirm = channel.basic_publish("".into(), topic, options, &payload, properties).await?.await?;
                if confirm != Confirmation::Ack(None) {
                    return Err(format!("{confirm:?}").into());
                }
            }
            Client::Redis(connection) => {
                let mut connection = connection.clone();
                let mut cmd = redis::cmd("XADD");
                cmd.arg(&self.topic).arg("*").arg("data").arg(&payload[..]);
                cmd.exec_async(&mut connection).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn remove(&self) -> Result<(), Failure> {
        match &self.client {
            Client::Nats(context) => {
                context.delete_stream(&self.topic).await?;
            }
            Client::RabbitMq { channel, .. } => {
                channel.queue_delete(self.topic.as_str().into(), QueueDeleteOptions::default()).await?;
            }
            Client::Redis(connection) => {
                redis::cmd("DEL").arg(&self.topic).exec_async(&mut connection.clone()).await?;
            }
        }
        Ok(())
    }
}
