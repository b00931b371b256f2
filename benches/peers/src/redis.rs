//! The same on a Redis server, without HTTP. `axum-idempotent` is not among them: its store needs HEXPIRE (Redis 7.4), and on an
//! older server each of its writes fails after the value is written, which nobody sees from outside.

use std::time::{Duration, Instant};

use idempotency::store::RedisStore;
use idempotent::valkey::ValkeyStore;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::stacks::{Peer, idempotent, ours};
use crate::sums::{ratios, spread};
use crate::work::{again, request, send};

const ROUNDS: usize = 9;
const AT_ONCE: usize = 16;
const ROUND: Duration = Duration::from_millis(1_500);
const ALONE: usize = 1_500;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Default)]
struct Figures {
    /// Microseconds a first request, one after another.
    first: Vec<f64>,
    /// And a replay.
    replay: Vec<f64>,
    /// First requests a second, 16 at once.
    firsts: Vec<f64>,
    /// And replays.
    replays: Vec<f64>,
}

pub(crate) async fn run(url: String) -> Result<(), Failure> {
    let run = Uuid::new_v4();
    let valkey = ValkeyStore::with_url(&url).prefix(format!("peer-{run}")).try_build().await?;
    let peers = [ours(RedisStore::single(url.as_str()).prefix(format!("ours-{run}")).build()?), idempotent(valkey)];
    let mut all: Vec<Figures> = peers.iter().map(|_| Figures::default()).collect();
    for round in 0..=ROUNDS {
        for at in (0..peers.len()).map(|at| (at + round) % peers.len()) {
            let (peer, figures) = (&peers[at], &mut all[at]);
            let (first, replay) = alone(peer).await;
            let (firsts, replays) = (at_once(peer, false).await, at_once(peer, true).await);
            // The first round is for warming up.
            if round > 0 {
                figures.first.push(first);
                figures.replay.push(replay);
                figures.firsts.push(firsts);
                figures.replays.push(replays);
            }
        }
    }
    println!("Redis, without HTTP, {ROUNDS} rounds: median (least to most)");
    for (peer, Figures { first, replay, firsts, replays }) in peers.iter().zip(&all) {
        let (first, replay, firsts, replays) = (spread(first), spread(replay), spread(firsts), spread(replays));
        println!("{:30} one after another: first {first:.0} µs, replay {replay:.0} µs", peer.name);
        println!("{:30} {AT_ONCE} at once: {firsts:.0} first requests/s, {replays:.0} replays/s", "");
    }
    println!("ratios, ours to theirs, round by round (one after another: times; at once: requests a second)");
    let ours = &all[0];
    for (peer, theirs) in peers.iter().zip(&all).skip(1) {
        println!(
            "{:30} one after another: first {:.2}, replay {:.2}; at once: firsts {:.2}, replays {:.2}",
            peer.name,
            ratios(&ours.first, &theirs.first),
            ratios(&ours.replay, &theirs.replay),
            ratios(&ours.firsts, &theirs.firsts),
            ratios(&ours.replays, &theirs.replays),
        );
    }
    Ok(())
}

fn fresh(session: bool) -> http::Request<axum::body::Body> {
    request(&Uuid::new_v4().to_string(), session)
}

/// Microseconds of a first request and of a replay.
async fn alone(peer: &Peer) -> (f64, f64) {
    let runs = peer.runs.count();
    let requests: Vec<_> = (0..ALONE).map(|_| fresh(peer.session)).collect();
    let repeated: Vec<_> = requests.iter().map(again).collect();
    let each = async |requests: Vec<_>| {
        let start = Instant::now();
        for request in requests {
            send(&peer.stack, request).await;
        }
        start.elapsed().as_secs_f64() * 1e6 / ALONE as f64
    };
    let times = (each(requests).await, each(repeated).await);
    assert_eq!(peer.runs.count() - runs, ALONE as u64, "{}: each operation runs once", peer.name);
    times
}

/// How many a second 16 tasks get done, each one after the other.
async fn at_once(peer: &Peer, replays: bool) -> f64 {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (stack, session) = (peer.stack.clone(), peer.session);
        tasks.spawn(async move {
            let known = fresh(session);
            if replays {
                send(&stack, again(&known)).await;
            }
            let mut done = 0_u32;
            while start.elapsed() < ROUND {
                send(&stack, if replays { again(&known) } else { fresh(session) }).await;
                done += 1;
            }
            done
        });
    }
    let done: u32 = tasks.join_all().await.into_iter().sum();
    f64::from(done) / start.elapsed().as_secs_f64()
}
