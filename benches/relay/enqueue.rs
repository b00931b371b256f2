//! What a relay costs those who write.

use std::time::{Duration, Instant};

use idempotency::outbox::Outbox;
use sqlx::Postgres;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::brokers::Broker;
use crate::database::{Database, event};
use crate::spread::Spread;
use crate::{Failure, rate};

const WRITERS: usize = 16;
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_secs(3);

/// The p99 of a transaction that writes an event, at half of the load that saturates the machine with a relay at work.
pub(crate) async fn beside_a_relay(database: &Database) -> Result<(), Failure> {
    let outbox = Outbox::new(database.pool(u32::try_from(WRITERS)?).await?).await?;
    let pool = database.pool(u32::try_from(WRITERS)?).await?;
    let broker = Broker::nats().await?;
    let writers = Writers { outbox, pool, topic: broker.topic().to_owned() };
    let relay = database.relay(broker.publisher()).await?;
    let most = rate(writers.round(None).await?.len(), ROUND);
    relay.stop().await?;
    database.clear().await?;
    let pause = Duration::from_secs_f64(2.0 / most) * u32::try_from(WRITERS)?;
    let (mut off, mut on) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let without = p99(writers.round(Some(pause)).await?);
        database.clear().await?;
        let relay = database.relay(broker.publisher()).await?;
        let with = p99(writers.round(Some(pause)).await?);
        relay.stop().await?;
        database.clear().await?;
        if round > 0 {
            off.push(without);
            on.push(with);
        }
    }
    broker.remove().await?;
    println!(
        "enqueue at {:.0} a second, half of the most: p99 with a relay to NATS {} of that without",
        most / 2.0,
        Spread::of_ratios(&on, &off)
    );
    for (what, times) in [("without", off), ("with", on)] {
        println!("    {what:8} {} ms", Spread::of(times).map(|seconds| seconds * 1000.0));
    }
    Ok(())
}

struct Writers {
    outbox: Outbox<Postgres>,
    pool: sqlx::PgPool,
    topic: String,
}

impl Writers {
    /// How long each transaction took, counted from when it was due. Without a pause each follows the one before.
    async fn round(&self, pause: Option<Duration>) -> Result<Vec<f64>, Failure> {
        let mut running = JoinSet::new();
        let until = Instant::now() + ROUND;
        for writer in 0..WRITERS {
            let (outbox, pool, topic) = (self.outbox.clone(), self.pool.clone(), self.topic.clone());
            running.spawn(async move {
                let mut times = Vec::new();
                let mut clock = pause.map(|pause| {
                    let mut clock = interval(pause);
                    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
                    clock
                });
                if let Some(pause) = pause {
                    tokio::time::sleep(pause * u32::try_from(writer)? / u32::try_from(WRITERS)?).await;
                }
                while Instant::now() < until {
                    let due = match &mut clock {
                        Some(clock) => clock.tick().await.into_std(),
                        None => Instant::now(),
                    };
                    let mut tx = pool.begin().await?;
                    outbox.enqueue(&mut tx, &event(&topic, writer)).await?;
                    tx.commit().await?;
                    times.push(due.elapsed().as_secs_f64());
                }
                Ok::<_, Failure>(times)
            });
        }
        let mut all = Vec::new();
        while let Some(times) = running.join_next().await {
            all.extend(times??);
        }
        Ok(all)
    }
}

fn p99(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}
