//! Speed of a relay from Postgres to NATS JetStream, RabbitMQ and Redis Streams, on the loopback interface.
//!
//! `tests/run --with cargo bench --all-features --bench relay` starts private servers for it; otherwise it takes those of
//! POSTGRES_URL, NATS_URL, AMQP_URL and REDIS_URL. Relay, database and broker share the machine, so only ratios of one run
//! mean anything: variants take turns in short rounds, and each ratio is of neighbours. The yardstick is the lesser of two
//! rates: what the broker's client does alone with as many messages out at once, and what a relay does whose publisher
//! acks at once, which is the database's side alone.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(clippy::disallowed_methods, reason = "a benchmark is no library: it spawns, and begins transactions plainly")]

mod brokers;
mod counting;
mod database;
mod enqueue;
#[path = "../service/spread.rs"]
mod spread;

use brokers::Broker;
use counting::Instantly;
use database::Database;
use spread::Spread;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// As a relay has out at once by default.
const WINDOW: usize = 256;
const ROUNDS: usize = 7;
const EVENTS: usize = 20_000;
const OF_ONE_KEY: usize = 2_000;
const KEYS: usize = 1_000;
const PAYLOAD: usize = 300;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let only = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let database = Database::new().await?;
    println!(
        "Postgres {}; {EVENTS} events of {PAYLOAD} B, {KEYS} keys, {WINDOW} out at once",
        database.describe().await?
    );
    for broker in [Broker::nats().await?, Broker::rabbitmq().await?, Broker::redis().await?] {
        if wanted(broker.name) {
            throughput(&database, &broker).await?;
        }
        broker.remove().await?;
    }
    if wanted("enqueue") {
        enqueue::beside_a_relay(&database).await?;
    }
    database.remove().await
}

/// So many a second.
pub(crate) fn rate(number: usize, took: std::time::Duration) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX)) / took.as_secs_f64()
}

async fn throughput(database: &Database, broker: &Broker) -> Result<(), Failure> {
    let [mut client, mut table, mut relay, mut one_key, mut in_turn] = [const { Vec::new() }; 5];
    for round in 0..=ROUNDS {
        let rates = [
            broker.client_alone(EVENTS, WINDOW).await?,
            database.drain(Instantly, broker.topic(), EVENTS, KEYS).await?,
            database.drain(broker.publisher(), broker.topic(), EVENTS, KEYS).await?,
            database.drain(broker.publisher(), broker.topic(), OF_ONE_KEY, 1).await?,
            broker.client_alone(OF_ONE_KEY, 1).await?,
        ];
        // Connections open and statements are prepared in the first round.
        if round > 0 {
            for (all, rate) in [&mut client, &mut table, &mut relay, &mut one_key, &mut in_turn].into_iter().zip(rates)
            {
                all.push(rate);
            }
        }
    }
    let lesser: Vec<f64> = client.iter().zip(&table).map(|(client, table)| client.min(*table)).collect();
    println!("{}: {} of the lesser of client and database", broker.name, Spread::of_ratios(&relay, &lesser));
    println!("    one key: {} of the client, one message after the other", Spread::of_ratios(&one_key, &in_turn));
    for (what, rates) in [
        ("relay", relay),
        ("client alone", client),
        ("database alone", table),
        ("relay, one key", one_key),
        ("client, in turn", in_turn),
    ] {
        println!("    {what:16} {} a second", Spread::of(rates).rounded());
    }
    Ok(())
}
