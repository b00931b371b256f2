//! Writers, relays, faults, and the reading afterwards.

use std::collections::{BTreeMap, HashSet};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use idempotency::outbox::{Event, Outbox};
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::Elsewhere;
use super::child::{Orders, start};
use super::logs::Readable;

pub const WINDOW: usize = 64;
const LEASE: Duration = Duration::from_millis(900);
const RELAYS: usize = 3;
const LIMIT: Duration = Duration::from_secs(240);

pub struct Plan {
    pub keys: usize,
    pub each: u64,
    pub window_per_key: usize,
    pub faults: usize,
}

/// What the reader found.
#[derive(Debug)]
pub struct Outcome {
    pub events: usize,
    pub copies: usize,
    pub missing: usize,
    pub invented: usize,
    /// Keys whose first copies are not in the order of their commits.
    pub disordered: usize,
    /// Kills, stalls and cuts.
    pub interruptions: usize,
    pub took: Duration,
}

pub async fn run<L: Elsewhere>(lab: &L, log: &impl Readable, plan: &Plan) -> Outcome {
    let began = Instant::now();
    let orders = |number: usize| async move {
        Orders {
            engine: L::ENGINE.to_owned(),
            place: lab.place().await,
            name: format!("relay-{number}"),
            log: log.way(),
            window: WINDOW,
            window_per_key: plan.window_per_key,
            lease: LEASE,
        }
    };
    let mut relays = Vec::new();
    for number in 0..RELAYS {
        relays.push(Process::start(orders(number).await));
    }
    let outbox = lab.outbox().await;
    let written = AtomicBool::new(false);
    let writers = async {
        write(lab, &outbox, plan, &log.topic()).await;
        written.store(true, Ordering::SeqCst);
    };
    let faults = async {
        let mut done = 0;
        // At least so many, and as long as there is something to disturb.
        while done < plan.faults {
            sleep(Duration::from_millis(150)).await;
            disturb(lab, log, &mut relays, done).await;
            done += 1;
        }
        done
    };
    let ((), interruptions) = tokio::join!(writers, faults);
    assert!(written.load(Ordering::SeqCst));
    let since = Instant::now();
    while lab.count("SELECT count(*) FROM idempotency_outbox".to_owned()).await > 0 {
        assert!(since.elapsed() < LIMIT, "events are left: {:?}", outbox.stats().await);
        sleep(Duration::from_millis(50)).await;
    }
    // What stalled relays still have to say belongs to the log.
    sleep(Duration::from_secs(1)).await;
    for relay in relays {
        relay.end();
    }
    judge(&log.read().await, plan, interruptions, began.elapsed())
}

fn judge(copies: &[(String, u64)], plan: &Plan, interruptions: usize, took: Duration) -> Outcome {
    let mut seen = HashSet::new();
    let mut first: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (key, n) in copies {
        if seen.insert((key.as_str(), *n)) {
            first.entry(key).or_default().push(*n);
        }
    }
    let keys: Vec<String> = (0..plan.keys).map(|key| format!("k{key}")).collect();
    let expected: HashSet<(&str, u64)> =
        keys.iter().flat_map(|key| (1..=plan.each).map(move |n| (key.as_str(), n))).collect();
    Outcome {
        events: seen.len(),
        copies: copies.len(),
        missing: expected.difference(&seen).count(),
        invented: seen.difference(&expected).count(),
        disordered: first.values().filter(|told| !told.is_sorted()).count(),
        interruptions,
        took,
    }
}

/// Each writer takes a key's lock, then enqueues, then commits, so the numbers of a key are in the order of its commits. Some
/// are rolled back, and drawn again.
async fn write<L: Elsewhere>(lab: &L, outbox: &Outbox<L::DB>, plan: &Plan, topic: &str) {
    let keys: Arc<Vec<Mutex<u64>>> = Arc::new((0..plan.keys).map(|_| Mutex::new(0)).collect());
    let writers = (0..if L::WRITERS { 12 } else { 2 }).map(|writer: usize| {
        let keys = Arc::clone(&keys);
        async move {
            // Each begins somewhere else.
            let order = (0..keys.len()).cycle().skip(writer * 7).take(keys.len());
            let order: Vec<usize> = order.collect();
            let mut chance = writer;
            loop {
                let mut idle = true;
                for which in &order {
                    let mut last = keys[*which].lock().await;
                    if *last == plan.each {
                        continue;
                    }
                    idle = false;
                    chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let roll = chance >> 33;
                    let upto = (*last + 1 + (roll % 4) as u64).min(plan.each);
                    let events: Vec<Event> = (*last + 1..=upto)
                        .map(|n| {
                            Event::new("broker", topic, "counted", "/order")
                                .key(format!("k{which}"))
                                .bytes(n.to_string())
                        })
                        .collect();
                    let mut tx = lab.transaction().await;
                    outbox.enqueue_all(&mut tx, &events).await.unwrap();
                    if L::WRITERS {
                        sleep(Duration::from_millis((roll / 5 % 20) as u64)).await;
                    }
                    if roll.is_multiple_of(17) {
                        tx.rollback().await.unwrap();
                    } else {
                        tx.commit().await.unwrap();
                        *last = upto;
                    }
                }
                if idle {
                    return;
                }
            }
        }
    });
    join_all(writers).await;
}

async fn disturb<L: Elsewhere>(lab: &L, log: &impl Readable, relays: &mut [Process], number: usize) {
    let which = number / 4 % relays.len();
    match number % 4 {
        0 => relays[which].kill_and_restart(),
        1 => {
            relays[which].signal("STOP");
            sleep(LEASE * 3).await;
            relays[which].signal("CONT");
        }
        2 => lab.end_sessions().await,
        _ => log.cut().await,
    }
}

/// A relay's process. Dropped, it is killed.
struct Process {
    child: Child,
    orders: Orders,
}

impl Process {
    fn start(orders: Orders) -> Self {
        Self { child: start(&orders), orders }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    fn kill_and_restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = start(&self.orders);
    }

    /// In order.
    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
