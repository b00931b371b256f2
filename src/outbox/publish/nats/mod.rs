//! NATS JetStream.

mod judge;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::header::{HeaderName, HeaderValue, NATS_EXPECTED_STREAM, NATS_MESSAGE_ID};
use async_nats::jetstream::Context;
use async_nats::jetstream::context::{ContextBuilder, PublishAckFuture, PublishError};
use async_nats::jetstream::message::PublishMessage;
use async_nats::{Client, ConnectOptions, HeaderMap};
use tokio::time::timeout;

use super::cloud_events::Binding;
use super::{Answer, Publisher, Publishing, Reason};
use crate::error::{Error, ErrorKind};
use crate::outbox::PendingEvent;
use judge::Said;

/// What attributes and their names may add to an event on the wire.
const OVERHEAD: usize = 4096;

/// Publishes to NATS JetStream. An event's topic is the subject; a stream must be there that takes it.
///
/// - Acked is what the stream has acknowledged, a *duplicate* too: `Nats-Msg-Id` is the event's id, so a stream drops what
///   it had within its window. After a redrive it is `{id}#{n}`, so that the redrive arrives.
/// - The event is a CloudEvent in binary mode.
/// - Many events are under way on one connection, which reconnects by itself. While it is lost, events are answered
///   [`Answer::Unavailable`] and nothing is buffered. The one that was under way is [`Answer::Unknown`].
/// - Servers and streams tell nobody that a client has no right to publish: such an event is [`Answer::Unknown`] after the
///   deadline.
///
/// The types of `async-nats` in signatures here are outside semver: this crate follows that one.
#[derive(Clone)]
pub struct NatsPublisher {
    jetstream: Context,
    stream: Option<Arc<str>>,
    deadline: Duration,
}

impl NatsPublisher {
    /// On these servers, with commas between: `nats://host:4222,nats://user:password@other:4222`. The servers need not be
    /// up: the connection is made and made anew in the background.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`]: no address of a server.
    ///
    /// # Cancel safety
    /// Safe to drop.
    pub async fn connect(servers: &str) -> Result<Self, Error> {
        let client = ConnectOptions::new()
            .name("outbox")
            .retry_on_initial_connect()
            .ping_interval(Duration::from_secs(10))
            .reconnect_delay_callback(|attempt| {
                Duration::from_millis(10 << attempt.saturating_sub(1).min(6)).min(Duration::from_secs(1))
            })
            .connect(servers.split(',').map(str::trim).collect::<Vec<_>>().join(","))
            .await;
        // The source may show the address with its password.
        client.map(Self::new).map_err(|_| Error::with_source(ErrorKind::Setup, "not an address of NATS servers"))
    }

    /// On a connection of the host's: with credentials, TLS, a JetStream domain of its account.
    #[must_use]
    pub fn new(client: Client) -> Self {
        // More than a relay's window, so that no event waits here for another.
        Self::with_context(ContextBuilder::new().max_ack_inflight(65_536).build(client))
    }

    /// In this context of the host's: another domain, another prefix. Its limit of pending acks must be larger than the
    /// relay's window.
    #[must_use]
    pub fn with_context(jetstream: Context) -> Self {
        Self { jetstream, stream: None, deadline: Duration::from_secs(5) }
    }

    /// Demands that the subject belongs to this stream (`Nats-Expected-Stream`). Without it, an event goes to whatever
    /// stream takes its subject.
    #[must_use]
    pub fn expect_stream(self, stream: &str) -> Self {
        Self { stream: Some(stream.into()), ..self }
    }

    /// How long an acknowledgement is waited for. Five seconds by default.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// The message of an event. `None`: NATS cannot express it.
    fn message(&self, event: &PendingEvent) -> Option<PublishMessage> {
        let mut headers = HeaderMap::new();
        let mut append = |name: &str, value: &str| {
            headers.append(HeaderName::from_str(name).ok()?, HeaderValue::from_str(value).ok()?);
            Some(())
        };
        for (name, value) in Binding::Nats.fields(event) {
            append(&name, &value)?;
        }
        if let Some(media_type) = event.event().content_type() {
            append("content-type", media_type)?;
        }
        headers.insert(NATS_MESSAGE_ID, event.delivery_id());
        if let Some(stream) = &self.stream {
            headers.insert(NATS_EXPECTED_STREAM, HeaderValue::from_str(stream).ok()?);
        }
        Some(PublishMessage::build().headers(headers).payload(event.event().payload_ref().clone()))
    }

    async fn attempt(&self, event: &PendingEvent) -> Answer {
        let subject = event.event().topic();
        if !judge::is_subject(subject) {
            return Answer::never(Reason::Malformed);
        }
        let Some(message) = self.message(event) else { return Answer::never(Reason::Malformed) };
        let client = self.jetstream.client();
        if client.connection_state() != State::Connected {
            // It would be kept in a buffer, and sent some time after we have said that it was not.
            return Answer::UNAVAILABLE;
        }
        // What follows runs under one deadline. Until the message is handed over nothing has been sent.
        let sending = self.jetstream.send_publish(subject.to_owned(), message);
        let acking = match timeout(self.deadline, sending).await {
            Ok(Ok(acking)) => acking,
            Ok(Err(error)) => return self.judged(subject, &error).await,
            Err(_) => return Answer::UNAVAILABLE,
        };
        match self.acked(acking).await {
            Some(Ok(duplicate)) => Answer::Acked { duplicate },
            Some(Err(error)) => self.judged(subject, &error).await,
            None => Answer::Unknown,
        }
    }

    async fn acked(&self, acking: PublishAckFuture) -> Option<Result<bool, PublishError>> {
        let answer = timeout(self.deadline, acking.into_future()).await.ok()?;
        Some(answer.map(|ack| ack.duplicate))
    }

    async fn judged(&self, subject: &str, error: &PublishError) -> Answer {
        match judge::judge(error) {
            Said::Answer(answer) => answer,
            Said::NobodyListens => self.who_listens(subject).await,
        }
    }

    /// Nobody took the message. Either no stream has the subject, or the stream has no leader at the moment, or JetStream
    /// is not up: only the server can tell.
    async fn who_listens(&self, subject: &str) -> Answer {
        let asked = timeout(self.deadline, self.jetstream.stream_by_subject(subject)).await;
        match asked {
            Ok(Err(error)) if judge::is_no_stream(&error) => Answer::refused(Reason::Unroutable),
            _ => Answer::UNAVAILABLE,
        }
    }
}

impl Publisher for NatsPublisher {
    fn publish(&self, event: Arc<PendingEvent>) -> Publishing<'_> {
        Box::pin(async move { self.attempt(&event).await })
    }

    /// The server's `max_payload`, which counts header fields too, less what an event needs for those.
    fn max_event_bytes(&self) -> Option<usize> {
        let client = self.jetstream.client();
        (client.connection_state() == State::Connected).then(|| client.max_payload().saturating_sub(OVERHEAD))
    }
}

impl fmt::Debug for NatsPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsPublisher")
            .field("stream", &self.stream)
            .field("deadline", &self.deadline)
            .field("state", &self.jetstream.client().connection_state())
            .finish_non_exhaustive()
    }
}
