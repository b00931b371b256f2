//! Many writers whose transactions commit in any order (M30).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use idempotency::outbox::{Event, PendingEvent};
use idempotency::testing::outbox::drain;
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use crate::support::outbox_lab::{Lab, MariaDbLab, PostgresLab, SqliteLab};

const EACH: usize = 12;

fn random(below: u64) -> u64 {
    let [a, b, ..] = Uuid::new_v4().into_bytes();
    u64::from(u16::from_be_bytes([a, b])) % below
}

/// Writers enqueue, wait and commit or roll back; somebody takes away what is there, all the time. Nothing that was committed
/// is missing, and nothing else is there. Every writer has a key of its own, whose events come in its order.
async fn nothing_is_lost<L: Lab>(writers: usize) {
    let lab: &'static L = Box::leak(Box::new(L::new().await));
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        tasks.spawn(async move {
            let outbox = lab.outbox().await;
            let mut committed = Vec::new();
            for n in 0..EACH {
                let mut tx = lab.transaction().await;
                let event = Event::new("d", "t", "k", "/s").key(writer.to_string()).bytes(n.to_string());
                let id = outbox.enqueue(&mut tx, &event).await.unwrap();
                sleep(Duration::from_millis(random(if L::WRITERS { 40 } else { 3 }))).await;
                if random(4) == 0 {
                    tx.rollback().await.unwrap();
                } else {
                    tx.commit().await.unwrap();
                    committed.push((id, n));
                }
            }
            (writer.to_string(), committed)
        });
    }
    let outbox = lab.outbox().await;
    let (mut expected, mut found) = (HashMap::new(), Vec::new());
    while !tasks.is_empty() {
        found.extend(drain(&outbox).await);
        while let Some(done) = tasks.try_join_next() {
            let (key, committed) = done.unwrap();
            expected.insert(key, committed);
        }
        sleep(Duration::from_millis(5)).await;
    }
    found.extend(drain(&outbox).await);
    let ids: HashSet<Uuid> = found.iter().map(PendingEvent::id).collect();
    assert_eq!(ids.len(), found.len(), "something is there twice");
    let mut of_key: BTreeMap<String, Vec<(Uuid, usize)>> = BTreeMap::new();
    for pending in &found {
        let n = String::from_utf8_lossy(pending.event().payload_ref()).parse().unwrap();
        of_key.entry(pending.event().key_ref().unwrap().to_owned()).or_default().push((pending.id(), n));
    }
    for (key, committed) in expected {
        assert_eq!(of_key.remove(&key).unwrap_or_default(), committed, "of writer {key}");
    }
    assert!(of_key.is_empty(), "invented: {of_key:?}");
}

// M30, M31, cases B01, B03 and B06
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_on_postgres() {
    nothing_is_lost::<PostgresLab>(64).await;
}

// M30, M31
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_on_mariadb() {
    nothing_is_lost::<MariaDbLab>(64).await;
}

// M30, M31
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_on_sqlite() {
    nothing_is_lost::<SqliteLab>(8).await;
}
