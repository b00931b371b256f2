//! An outbox in a schema of its own on the server, removed at the end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotency::Error;
use idempotency::outbox::publish::Publisher;
use idempotency::outbox::relay::{Counts, Relay};
use idempotency::outbox::{Event, Outbox};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool, Postgres, Row};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::counting::{Counting, Progress};
use crate::{Failure, PAYLOAD, rate};

pub(crate) const DESTINATION: &str = "broker";
/// As many events as one call takes.
const BATCH: usize = 1_000;

pub(crate) struct Database {
    options: PgConnectOptions,
    schema: String,
    pool: PgPool,
    pub(crate) outbox: Outbox<Postgres>,
}

/// A relay at work.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Counts, Error>>,
    pub(crate) progress: Arc<Progress>,
    outbox: Outbox<Postgres>,
}

impl Database {
    pub(crate) async fn new() -> Result<Self, Failure> {
        let url = std::env::var("POSTGRES_URL")
            .map_err(|_| "POSTGRES_URL is not set: tests/run --with cargo bench --all-features --bench relay")?;
        let options: PgConnectOptions = url.parse()?;
        let schema = format!("bench_{}", std::process::id());
        let options = options.options([("search_path", schema.as_str())]);
        let pool = pool(&options, 10).await?;
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).execute(&pool).await?;
        let outbox = Outbox::new(pool.clone()).await?;
        outbox.migrate().await?;
        Ok(Self { options, schema, pool, outbox })
    }

    pub(crate) async fn describe(&self) -> Result<String, Failure> {
        let row = sqlx::query("SELECT current_setting('server_version'), current_setting('synchronous_commit')");
        let row = row.fetch_one(&self.pool).await?;
        Ok(format!("{}, synchronous_commit {}", row.get::<&str, _>(0), row.get::<&str, _>(1)))
    }

    pub(crate) async fn pool(&self, size: u32) -> Result<PgPool, Failure> {
        pool(&self.options, size).await
    }

    /// A relay with a pool of its own that has all buckets already.
    pub(crate) async fn relay(&self, publisher: impl Publisher + 'static) -> Result<Running, Failure> {
        let (publisher, progress) = Counting::new(publisher);
        let outbox = Outbox::new(self.pool(5).await?).await?;
        // A name takes its buckets back at once.
        let relay = Relay::new(outbox.clone()).name("bench").publisher(DESTINATION, publisher);
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(relay.run(async move {
            let _ = stopped.await;
        }));
        let owned = "SELECT count(*) FROM idempotency_outbox_bucket WHERE owner IS NOT NULL";
        for _ in 0..500 {
            if sqlx::query_scalar::<_, i64>(owned).fetch_one(&self.pool).await? == 64 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Running { stop, task, progress, outbox })
    }

    /// How many events a second a relay moves that finds all of them at once.
    pub(crate) async fn drain(
        &self,
        publisher: impl Publisher + 'static,
        topic: &str,
        events: usize,
        keys: usize,
    ) -> Result<f64, Failure> {
        let relay = self.relay(publisher).await?;
        let mut tx = self.pool.begin().await?;
        let all: Vec<Event> = (0..events).map(|number| event(topic, number % keys)).collect();
        for batch in all.chunks(BATCH) {
            self.outbox.enqueue_all(&mut tx, batch).await?;
        }
        tx.commit().await?;
        let start = Instant::now();
        // In the same process the relay is told of a commit.
        relay.outbox.wake();
        relay.progress.reaches(events).await;
        let took = start.elapsed();
        let counts = relay.stop().await?;
        if counts.published != events as u64 {
            return Err(format!("{counts:?} of {events} events").into());
        }
        sqlx::raw_sql("VACUUM ANALYZE idempotency_outbox").execute(&self.pool).await?;
        Ok(rate(events, took))
    }

    /// Whatever is left.
    pub(crate) async fn clear(&self) -> Result<(), Failure> {
        sqlx::raw_sql("TRUNCATE idempotency_outbox").execute(&self.pool).await?;
        Ok(())
    }

    pub(crate) async fn remove(&self) -> Result<(), Failure> {
        sqlx::raw_sql(AssertSqlSafe(format!("DROP SCHEMA {} CASCADE", self.schema))).execute(&self.pool).await?;
        Ok(())
    }
}

impl Running {
    pub(crate) async fn stop(self) -> Result<Counts, Failure> {
        let _ = self.stop.send(());
        Ok(self.task.await??)
    }
}

pub(crate) fn event(topic: &str, key: usize) -> Event {
    Event::new(DESTINATION, topic, "order.placed", "/bench")
        .key(key.to_string())
        .payload("application/json", vec![b'x'; PAYLOAD])
}

async fn pool(options: &PgConnectOptions, size: u32) -> Result<PgPool, Failure> {
    let settings = PgPoolOptions::new().min_connections(size).max_connections(size).test_before_acquire(false);
    Ok(settings.connect_with(options.clone()).await?)
}
