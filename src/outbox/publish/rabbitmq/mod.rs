//! RabbitMQ.

mod batch;
mod channels;
mod flight;
mod judge;
mod message;
mod wary;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use lapin::types::ShortString;
use lapin::uri::AMQPUri;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::link::{Link, Open};
use super::{Answer, Publisher, Publishing, Reason};
use crate::error::{Error, ErrorKind};
use crate::outbox::PendingEvent;
use batch::{Gathering, Member, Outgoing, Word};
use channels::{Channels, Way};
use flight::Flight;
use wary::Wary;

/// In bytes: such an event goes alone, since its size may be what the broker closes a channel for.
const LARGE: usize = 64 << 10;
/// So many connections are asked for a channel, the second one being new.
const CONNECTIONS: usize = 2;

/// Publishes to an exchange of RabbitMQ. An event's topic is the routing key.
///
/// - Messages are persistent, mandatory and confirmed. One that no queue takes comes back and is refused as
///   [`Reason::Unroutable`], although the broker confirms it.
/// - Events that are published at the same time share a channel, up to 64 of them on each of a few, all on one connection. An event
///   is told by its id, when all of its channel are confirmed or, where one of them takes longer than 100 ms, as soon as its own
///   answer is certain.
/// - Where the broker closes a channel because of one event (a missing exchange, no rights, too large), those that shared it and
///   were not confirmed are [`Answer::Unknown`], since nobody can tell which it was. From then on each has a channel
///   of its own until it is confirmed, as all events have with [`one_channel_each`](Self::one_channel_each) and large ones always; then it is told.
/// - Where the connection is lost, every event under way is [`Answer::Unknown`]. The next event connects anew.
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
    shares_channels: bool,
    gathering: Arc<Gathering>,
    wary: Arc<Wary>,
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
            shares_channels: true,
            gathering: Arc::new(Gathering::new()),
            wary: Arc::default(),
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
        // A channel that is closed because of one exchange says nothing of others.
        Ok(Self { exchange, gathering: Arc::new(Gathering::new()), wary: Arc::default(), ..self })
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

    /// Gives each event a channel of its own, so that what the broker says of one touches no other: for destinations where an
    /// event that is [`Answer::Unknown`] waits for an operator. It costs some of the rate.
    #[must_use]
    pub fn one_channel_each(self) -> Self {
        Self { shares_channels: false, ..self }
    }

    /// The connection. One that was lost while nobody looked is made anew at once.
    async fn open(&self, until: Instant) -> Option<Open<Arc<Channels>>> {
        let open = async {
            loop {
                let open = self.link.open(|| Channels::connect(&self.uri, until)).await?;
                if open.connection.is_open() {
                    return Some(open);
                }
                self.link.leave(&open);
            }
        };
        let open = timeout_at(until, open).await.ok()??;
        // A blocked one reads no more, because of its memory or its disk.
        (!open.connection.is_blocked()).then_some(open)
    }

    /// A channel that nobody else has.
    async fn way(&self, until: Instant) -> Option<Way> {
        for _ in 0..CONNECTIONS {
            let open = self.open(until).await?;
            match timeout_at(until, open.connection.take()).await.ok()? {
                Ok(way) => return Some(way),
                // The client uses no number of a channel again that the broker has closed, so a connection may have none
                // left. What is out on others goes on.
                Err(_) => self.link.leave(&open),
            }
        }
        None
    }

    async fn attempt(&self, event: Arc<PendingEvent>) -> Answer {
        if self.max_event_bytes.is_some_and(|most| event.event().size() > most) {
            return Answer::never(Reason::TooLarge);
        }
        let Some((routing_key, properties)) = message::parts(&event) else { return Answer::never(Reason::Malformed) };
        let header_bytes = message::header_bytes(&event);
        let outgoing = Outgoing { event, routing_key, properties };
        let until = Instant::now() + self.deadline;
        let Some(open) = self.open(until).await else { return Answer::UNAVAILABLE };
        if header_bytes > open.connection.frame_bytes() {
            // Properties must fit into one frame, or the broker closes the connection on everybody.
            return Answer::never(Reason::TooLarge);
        }
        let large = outgoing.event.event().size() > LARGE;
        if large || !self.shares_channels || self.wary.of(outgoing.id()) {
            self.alone(outgoing, until).await
        } else {
            self.together(outgoing, until).await
        }
    }

    async fn alone(&self, outgoing: Outgoing, until: Instant) -> Answer {
        let Some(way) = self.way(until).await else { return Answer::UNAVAILABLE };
        let (tell, answer) = oneshot::channel();
        self.flight(way, vec![Member { outgoing, tell }]).listen(answer, until).await
    }

    /// On one channel with all that are published just now.
    async fn together(&self, outgoing: Outgoing, until: Instant) -> Answer {
        loop {
            let mut seat = self.gathering.join(outgoing.clone());
            if let Some(lead) = seat.lead.take() {
                let turn = timeout_at(until, self.gathering.turns.acquire()).await.ok();
                let way = if turn.is_some() { self.way(until).await } else { None };
                // Until now nothing was sent.
                let members = lead.close();
                let Some(way) = way else {
                    for Member { tell, .. } in members {
                        let _ = tell.send(Word::Answer(Answer::UNAVAILABLE));
                    }
                    return Answer::UNAVAILABLE;
                };
                let mut flight = self.flight(way, members);
                flight.hear_soon(turn).await;
                return flight.listen(seat.answer, until).await;
            }
            match timeout_at(until, &mut seat.answer).await {
                Ok(Ok(Word::Answer(answer))) => return answer,
                Ok(Ok(Word::Listen(answer, flight))) => return flight.listen(answer, until).await,
                Ok(Err(_)) if seat.was_left() => {}
                Ok(Err(_)) | Err(_) => return Answer::Unknown,
            }
        }
    }

    fn flight(&self, way: Way, members: Vec<Member>) -> Flight {
        Flight::new(way, &self.exchange, members, Arc::clone(&self.wary))
    }
}

impl Publisher for RabbitMqPublisher {
    fn publish(&self, event: Arc<PendingEvent>) -> Publishing<'_> {
        Box::pin(async move { self.attempt(event).await })
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
