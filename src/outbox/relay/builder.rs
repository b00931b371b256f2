//! The settings of a relay.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::delivery::Delivery;
use super::driver::{Desk, Driver, Membership, Timing};
use super::plan::schedule::{Counts, Scheduler, Settings};
use crate::db::OutboxDialect;
use crate::db::outbox::Member;
use crate::db::outbox::scan::Scan;
use crate::error::{Error, ErrorKind};
use crate::outbox::Outbox;
use crate::outbox::publish::Publisher;

/// Publishes the events of an outbox.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn doc(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use idempotency::outbox::publish::LinesPublisher;
/// use idempotency::outbox::{Outbox, relay::Relay};
///
/// let outbox = Outbox::new(pool).await?;
/// let relay = Relay::new(outbox).name("pod-1").publisher("broker", LinesPublisher::stdout());
/// let counts = relay.run(async { tokio::signal::ctrl_c().await.unwrap_or_default() }).await?;
/// println!("{} events published", counts.published);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct Relay<DB: OutboxDialect> {
    outbox: Outbox<DB>,
    name: Option<String>,
    destinations: HashMap<Arc<str>, (Arc<dyn Publisher>, Delivery)>,
    settings: Settings,
    lease: Duration,
    publish: Duration,
    grace: Duration,
}

impl<DB: OutboxDialect> Relay<DB> {
    /// A relay without destinations. It needs a pool of at least three connections of its own.
    pub fn new(outbox: Outbox<DB>) -> Self {
        Self {
            outbox,
            name: None,
            destinations: HashMap::new(),
            settings: Settings::default(),
            lease: Duration::from_secs(15),
            publish: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }

    /// A name that outlives the process, such as that of the host or pod: after a restart the relay takes up at once what it
    /// had before, without waiting for its own lease to end (M33). No two processes that run at the same time may share one:
    /// the later ousts the earlier. Without it, a random one. At most 255 bytes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Events for `destination` go to this publisher, with the default [`Delivery`]. Events for destinations that the relay
    /// does not know stay in the outbox.
    pub fn publisher(self, destination: impl Into<String>, publisher: impl Publisher + 'static) -> Self {
        self.publisher_with(destination, publisher, Delivery::new())
    }

    /// The same with settings of its own.
    pub fn publisher_with(
        mut self,
        destination: impl Into<String>,
        publisher: impl Publisher + 'static,
        delivery: Delivery,
    ) -> Self {
        self.destinations.insert(destination.into().into(), (Arc::new(publisher), delivery));
        self
    }

    /// How long another relay waits before it takes over from one that has fallen silent: 15 s by default. Renewed every
    /// third of it. Order does not depend on it (M32), only how soon events go on and how many come twice.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How many events of a destination may be out at once, and how many bytes: 256 and 16 MiB by default. So many may be
    /// published twice when the process is killed. Of one key only one is out in any case.
    pub const fn window(mut self, events: usize, bytes: usize) -> Self {
        self.settings.window_events = events;
        self.settings.window_bytes = bytes;
        let ahead = events.saturating_mul(4);
        self.settings.ahead = if ahead < LEAST_AHEAD { LEAST_AHEAD } else { ahead };
        self
    }

    /// How long a publisher may take before its answer counts as unknown: 30 s by default. Publishers have deadlines of their
    /// own, which should be shorter.
    pub const fn publish_timeout(mut self, limit: Duration) -> Self {
        self.publish = limit;
        self
    }

    /// How long a relay that stops waits for what is out: 10 s by default.
    pub const fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How often the table is looked at while nothing is there: at most every second by default, also if more is given
    /// here (M41). While events come it is looked at sooner, and at once after [`Outbox::wake`] in this process.
    pub const fn poll_idle(mut self, rest: Duration) -> Self {
        let second = Duration::from_secs(1);
        self.settings.poll_idle = if rest.as_nanos() < second.as_nanos() { rest } else { second };
        self
    }

    /// Works until `shutdown` is ready. Then it takes nothing more, waits for what is out as long as the grace allows, gives its
    /// buckets up and returns what it has done (M40).
    ///
    /// It survives whatever the database and the destinations do, and goes on when they are back.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`] for an outbox without a pool, tables that are missing at the start, or a name that is too long.
    /// [`ErrorKind::LeaseLost`] when a later process has taken its name.
    ///
    /// # Cancel safety
    /// Dropped, it is as if the process were killed: nothing is lost, what was out is published again by the next owner
    /// once the lease has ended, and at most a window of events comes twice.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<Counts, Error> {
        let name = self.name.unwrap_or_else(|| format!("relay-{}", Uuid::new_v4()));
        if name.is_empty() || name.len() > 255 {
            return Err(Error::with_source(ErrorKind::Setup, "a relay's name has 1 to 255 bytes"));
        }
        self.outbox.queue()?;
        let token = Uuid::new_v4();
        let window = self.settings.window_events;
        let settings = Settings { settle: DB::Queue::SETTLES, ..self.settings };
        let destined = self.destinations.iter().map(|(name, (publisher, delivery))| {
            (Arc::clone(name), delivery.destined(publisher.keeps_order(), window))
        });
        let seed = Uuid::new_v4().as_u64_pair().0;
        let scheduler = Scheduler::new(settings, destined, seed);
        let timing = Timing {
            publish: self.publish,
            grace: self.grace,
            promote: settings.poll_idle,
            dead_retention: self.outbox.shared.settings.dead_retention,
        };
        let publishers = self.destinations.into_iter().map(|(name, (publisher, _))| (name, publisher)).collect();
        let desk = Desk { outbox: self.outbox, owner: token, limit: DATABASE };
        let membership = Membership::new(Member { name, token }, self.lease);
        Box::pin(Driver::new(desk, publishers, scheduler, membership, timing).run(shutdown)).await
    }
}

impl<DB: OutboxDialect> fmt::Debug for Relay<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("name", &self.name)
            .field("destinations", &self.destinations.keys())
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// Rows read ahead of small windows: polls cost more than memory.
const LEAST_AHEAD: usize = 256;
/// A call of the database.
const DATABASE: Duration = Duration::from_secs(10);
