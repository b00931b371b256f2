//! Speed over HTTP and Postgres, on the loopback interface: first requests, replays and duplicates behind the layer,
//! against services that do the same work without it.
//!
//! `tests/run --with cargo bench --bench service` starts a private Postgres for it; otherwise it takes the one of
//! POSTGRES_URL. Client, service and database share the machine, so only ratios of one run mean anything: variants
//! take turns in short rounds, and each ratio is of two neighbours.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(clippy::disallowed_methods, reason = "a benchmark is no library: it spawns, and begins transactions plainly")]

mod apps;
mod database;
mod load;
mod orders;
mod proxy;
mod spread;

use std::time::Duration;

use apps::Service;
use database::Database;
use load::Clients;
use orders::{KEYS, Order};
use proxy::Proxy;
use spread::Spread;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const CLIENTS: usize = 16;
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let only = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let database = Database::new().await?;
    println!("Postgres {}", database.describe().await?);
    if wanted("first") {
        first(&database).await?;
    }
    if wanted("replay") {
        replays(&database).await?;
    }
    if wanted("distance") {
        distance(&database).await?;
    }
    if wanted("duplicates") {
        duplicates(&database).await?;
    }
    database.remove().await
}

/// Throughput of first requests against the same handler in a transaction of its own.
async fn first(database: &Database) -> Result<(), Failure> {
    let service = Service::start(database.pool(16).await?).await?;
    let mut clients = Clients::connect(service.address, CLIENTS).await?;
    let (mut bare, mut guarded) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let took = [clients.round(ROUND, |_| Order::Bare).await?, clients.round(ROUND, |_| Order::Guarded).await?];
        // Connections open and statements are prepared in the first round.
        if round > 0 {
            bare.push(took[0]);
            guarded.push(took[1]);
        }
    }
    report("first requests, 16 clients", ("own transaction", &bare), ("guarded", &guarded));
    Ok(())
}

/// Throughput of replays against a service that reads one row by its primary key.
async fn replays(database: &Database) -> Result<(), Failure> {
    let service = Service::start(database.pool(16).await?).await?;
    let mut clients = Clients::connect(service.address, CLIENTS).await?;
    for key in 0..KEYS {
        clients.one(Order::Kept(key)).await?;
    }
    let (mut read, mut looked_up, mut replayed) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let took = [
            clients.round(ROUND, |_| Order::Read).await?,
            clients.round(ROUND, |_| Order::Replayed).await?,
            clients.round(ROUND, |_| Order::LookedUp).await?,
        ];
        if round > 0 {
            read.push(took[0]);
            replayed.push(took[1]);
            looked_up.push(took[2]);
        }
    }
    report("replays, 16 clients", ("GET, one SELECT", &read), ("replay", &replayed));
    report("the same", ("POST, one SELECT", &looked_up), ("replay", &replayed));
    Ok(())
}

/// Latency of first requests with 1 ms more on each round trip to the database.
async fn distance(database: &Database) -> Result<(), Failure> {
    let proxy = Proxy::start(&database.options, Duration::from_millis(1)).await?;
    let service = Service::start(database.pool_on(proxy.options(&database.options), 4).await?).await?;
    let mut clients = Clients::connect(service.address, 1).await?;
    let (mut trip, mut bare, mut guarded) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..300 {
        let took =
            [clients.one(Order::Read).await?, clients.one(Order::Bare).await?, clients.one(Order::Guarded).await?];
        if turn >= 50 {
            trip.push(took[0]);
            bare.push(took[1]);
            guarded.push(took[2]);
        }
    }
    let ratio = Spread::of_ratios(&guarded, &bare);
    println!("first request, 1 ms more on each round trip: {ratio} of the latency without the layer");
    for (what, times) in [("one SELECT", trip), ("own transaction", bare), ("guarded", guarded)] {
        println!("    {what:18} {} ms", Spread::of(times).map(|seconds| seconds * 1000.0));
    }
    Ok(())
}

/// Latency of 409s for a thousand duplicates of a slow request.
async fn duplicates(database: &Database) -> Result<(), Failure> {
    let pool = database.pool(5).await?;
    let service = Service::start(pool.clone()).await?;
    let mut slow = Clients::connect(service.address, 1).await?;
    let mut one = Clients::connect(service.address, 1).await?;
    let mut some = Clients::connect(service.address, CLIENTS).await?;
    let mut crowd = Clients::connect(service.address, 1000).await?;
    let [mut alone, mut by_some, mut plain_by_some, mut at_once, mut plain] = [const { Vec::new() }; 5];
    for _ in 0..ROUNDS {
        let first = tokio::spawn(async move { slow.one(Order::Slow).await.map(|_| slow) });
        service.entered.acquire().await?.forget();
        one.times(10, |_| Order::Duplicate).await?;
        let quiet = one.times(1000, |_| Order::Duplicate).await?;
        let busy = some.times(1000, |_| Order::Duplicate).await?;
        let burst = crowd.times(1000, |_| Order::Duplicate).await?;
        // Only the slow request has a connection.
        let in_use = pool.size() as usize - pool.num_idle();
        if in_use != 1 {
            return Err(format!("{in_use} connections in use").into());
        }
        alone.push(p99(quiet));
        by_some.push(p99(busy));
        plain_by_some.push(p99(some.times(1000, |_| Order::Nothing).await?));
        at_once.push(p99(burst));
        plain.push(p99(crowd.times(1000, |_| Order::Nothing).await?));
        service.leave.add_permits(1);
        slow = first.await??;
        Order::next_slow();
    }
    println!("409s for 1,000 duplicates of one slow request, pool of 5, one connection of it in use");
    println!("    p99 with 16 at a time   {} of the p99 of one at a time", Spread::of_ratios(&by_some, &alone));
    println!("    p99 with 16 at a time   {} of plain 409s, 16 at a time", Spread::of_ratios(&by_some, &plain_by_some));
    println!("    p99 with all at once    {} of plain 409s at once", Spread::of_ratios(&at_once, &plain));
    for (what, times) in [
        ("one at a time", alone),
        ("16 at a time", by_some),
        ("plain, 16 at a time", plain_by_some),
        ("all at once", at_once),
        ("plain, all at once", plain),
    ] {
        println!("    {what:19} p99 {} ms", Spread::of(times).map(|seconds| seconds * 1000.0));
    }
    Ok(())
}

fn p99(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

fn report(what: &str, theirs: (&str, &[f64]), ours: (&str, &[f64])) {
    println!("{what}: {} of the throughput", Spread::of_ratios(ours.1, theirs.1));
    for (name, rates) in [theirs, ours] {
        println!("    {name:18} {} a second", Spread::of(rates.to_vec()).rounded());
    }
}
