//! Everything in this process.

use std::time::Instant;

use axum::body::Body;
use http::Request;
use idempotency::MemoryStore;
use idempotency::fingerprint::Fingerprinter;
use ruts::store::moka::MokaStore;

use crate::stacks::{Peer, axum_idempotent, bare, idempotent, ours, ours_by};
use crate::sums::{ratios, spread};
use crate::work::{again, request, send};

const ROUNDS: usize = 41;
const PER_ROUND: usize = 1_000;

/// Microseconds a request, by round.
#[derive(Default)]
struct Times {
    first: Vec<f64>,
    added: Vec<f64>,
    replay: Vec<f64>,
}

pub(crate) async fn run() {
    let bare = bare();
    let memory = idempotent::memory::MemoryStore::builder().try_build().expect("a store");
    let moka = || MokaStore::builder().max_capacity(1_000_000).build();
    let store = || MemoryStore::new().capacity(1_000_000);
    let peers = [
        ours(store()),
        ours_by("idempotency, raw body", store(), Fingerprinter::new().raw_body()),
        ours_by("idempotency, by key alone", store(), Fingerprinter::new().key_only()),
        idempotent(memory),
        axum_idempotent(moka(), true),
        axum_idempotent(moka(), false),
    ];
    let mut all: Vec<Times> = peers.iter().map(|_| Times::default()).collect();
    for round in 0..=ROUNDS {
        let alone = time(&bare, requests(round, false)).await;
        // Each is the first once in a while.
        for at in (0..peers.len()).map(|at| (at + round) % peers.len()) {
            let (peer, times) = (&peers[at], &mut all[at]);
            let requests = requests(round, peer.session);
            let repeated = requests.iter().map(again).collect();
            let runs = peer.runs.count();
            let first = time(peer, requests).await;
            let replay = time(peer, repeated).await;
            assert_eq!(peer.runs.count() - runs, PER_ROUND as u64, "{}: each operation runs once", peer.name);
            // The first round is for warming up.
            if round > 0 {
                times.first.push(first);
                times.added.push(first - alone);
                times.replay.push(replay);
            }
        }
    }
    println!("memory, in process, µs a request, {ROUNDS} rounds of {PER_ROUND}: median (least to most)");
    for (peer, Times { first, added, replay }) in peers.iter().zip(&all) {
        let (first, added, replay) = (spread(first), spread(added), spread(replay));
        println!("{:30} first {first:.1}, added {added:.1}, replay {replay:.1}", peer.name);
    }
    println!("ratios, ours to theirs, round by round, and of the best rounds");
    // As each is by default, and where both compare as much.
    for (ours, theirs) in [(0, 3), (0, 4), (0, 5), (1, 3), (2, 4), (1, 5)] {
        let names = format!("{} to {}", peers[ours].name, peers[theirs].name);
        let (ours, theirs) = (&all[ours], &all[theirs]);
        println!(
            "{names:60} added {:.2}, first {:.2}, replay {:.2}; best rounds: added {:.2}, replay {:.2}",
            ratios(&ours.added, &theirs.added),
            ratios(&ours.first, &theirs.first),
            ratios(&ours.replay, &theirs.replay),
            spread(&ours.added).least / spread(&theirs.added).least,
            spread(&ours.replay).least / spread(&theirs.replay).least,
        );
    }
}

fn requests(round: usize, session: bool) -> Vec<Request<Body>> {
    // The peer with sessions takes no quoted keys for what they are.
    let quote = if session { "" } else { "\"" };
    let key = |number| format!("{quote}6f1d9c1e-0c5a-4c84-9c3f-{:012x}{quote}", round * PER_ROUND + number);
    (0..PER_ROUND).map(|number| request(&key(number), session)).collect()
}

/// One after the other.
async fn time(peer: &Peer, requests: Vec<Request<Body>>) -> f64 {
    let count = requests.len() as f64;
    let start = Instant::now();
    for request in requests {
        send(&peer.stack, request).await;
    }
    start.elapsed().as_secs_f64() * 1e6 / count
}
