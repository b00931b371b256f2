//! An old process and a new one on the same tables, those of the first version or the newest ones (S30).

use std::time::Duration;

use idempotency::inbox::{Inbox, Message, MessageId, Processed};
use idempotency::outbox::relay::Relay;
use idempotency::outbox::{Bucket, Event, Outbox};
use idempotency::store::{Claim, ClaimRequest, Kept, LeaseClaim, Settlement, Store, Verdict};
use idempotency::testing::relay::Broker;
use idempotency::testing::store::{answer, completed, request};
use idempotency::{LeaseDialect, LeaseStore};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::first::{CONSUMER, DESTINATION, First, KEY, SOURCE};

/// Which bucket the key is in.
const BUCKET: u8 = 63;

/// Whose tables they are.
#[derive(Clone, Copy, Debug)]
pub enum Tables {
    Newest,
    First,
}

pub async fn on<F: First>(tables: Tables) -> F {
    let first = F::empty().await;
    match tables {
        // One history for all tables of an engine.
        Tables::Newest => Outbox::new(first.pool().clone()).await.unwrap().migrate().await.unwrap(),
        Tables::First => first.create(4).await,
    }
    first
}

/// How the first version stores [`answer`] with the text `first`.
fn stored() -> Vec<u8> {
    b"IA\x01\x01\x00\xc9\x00\x05first".to_vec()
}

async fn replayed<S: Store>(store: &S, asked: &ClaimRequest) {
    match store.claim(&asked.again()).await.unwrap() {
        Verdict::Replay(record) => assert_eq!(record.answer, answer("first")),
        _ => panic!("no replay of {:?}", asked.lookup().key().as_str()),
    }
}

async fn in_progress<S: Store>(store: &S, asked: &ClaimRequest) {
    let verdict = store.claim(&asked.again()).await.unwrap();
    assert!(matches!(verdict, Verdict::InProgress { .. }), "{:?} is free", asked.lookup().key().as_str());
}

fn kept() -> Settlement {
    Settlement::Commit(Kept { answer: answer("first"), retention: Duration::from_secs(3600) })
}

pub async fn keys<F: First>(tables: Tables) {
    let old: F = on(tables).await;
    let new = old.newest().await;
    // What the old one has settled, the new one replays; and the other way round.
    let asked = request("old", 1);
    let claim = old.claim(&asked).await.unwrap();
    in_progress(&new, &asked).await;
    old.settle(claim, &asked, &stored()).await;
    replayed(&new, &asked).await;
    let mismatch = new.claim(&request("old", 2)).await.unwrap();
    assert!(matches!(mismatch, Verdict::Mismatch));
    let asked = request("new", 1);
    let Verdict::Claimed(claim) = new.claim(&asked).await.unwrap() else { panic!("not free") };
    claim.settle(kept()).await.unwrap();
    assert_eq!(old.answer(&asked).await, Some(stored()), "the stored form is frozen");
    assert!(old.claim(&request("new", 1)).await.is_none());
    assert_eq!(old.answer(&request("new", 2)).await, None);
    // An operator's old tool deletes what the new one has settled.
    assert!(old.forget(&asked).await);
    // While the new one runs the key is not free for the old one; what it gives up is.
    let Verdict::Claimed(claim) = new.claim(&request("new", 1)).await.unwrap() else { panic!("not free") };
    assert!(old.claim(&request("new", 1)).await.is_none());
    claim.settle(Settlement::Abandon).await.unwrap();
    let claim = old.claim(&asked).await.unwrap();
    old.give_up(claim, &asked).await;
    completed(&new, &request("new", 1), answer("first")).await;
}

async fn leased<DB: LeaseDialect>(store: &LeaseStore<DB>, asked: &ClaimRequest) -> LeaseClaim<DB> {
    let Verdict::Claimed(claim) = store.claim(asked).await.unwrap() else { panic!("not free") };
    claim
}

pub async fn leases<F: First>(tables: Tables) {
    let old: F = on(tables).await;
    let new = LeaseStore::new(old.pool().clone()).await.unwrap();
    let asked = request("old", 1);
    assert!(old.lease(&asked).await);
    in_progress(&new, &asked).await;
    assert!(old.renew(&asked).await && old.settle_lease(&asked, &stored()).await);
    replayed(&new, &asked).await;
    let asked = request("new", 1);
    let claim = leased(&new, &asked).await;
    assert!(!old.lease(&request("new", 1)).await);
    assert!(!old.renew(&request("new", 1)).await, "the token is another one");
    claim.settle(kept()).await.unwrap();
    assert_eq!(old.leased_answer(&asked).await, Some(stored()));
    // What the old one gives up the new one takes, with a larger fence.
    let asked = request("given up", 1);
    assert!(old.lease(&asked).await && old.abandon_lease(&asked).await);
    let claim = leased(&new, &request("given up", 1)).await;
    assert!(claim.fence().is_some_and(|fence| fence.0 > 1));
    claim.settle(kept()).await.unwrap();
    replayed(&new, &asked).await;
}

pub async fn inbox<F: First>(tables: Tables) {
    let old: F = on(tables).await;
    let new = Inbox::new(old.pool().clone(), CONSUMER).await.unwrap();
    let process = async |id: &str, payload: &[u8]| {
        let message = Message::new(MessageId::new(SOURCE, id).unwrap(), payload);
        new.process(&message, async |_| Ok::<(), sqlx::Error>(())).await.unwrap()
    };
    assert!(old.accept("evt_1", b"payload").await);
    assert!(matches!(process("evt_1", b"payload").await, Processed::Duplicate));
    assert!(matches!(process("evt_1", b"another").await, Processed::Conflict));
    assert!(matches!(process("evt_2", b"payload").await, Processed::First(())));
    assert!(!old.accept("evt_2", b"payload").await);
    assert!(!old.accept("evt_1", b"payload").await);
}

/// The newest relay, for as long as it takes it to have so many events, or for this time.
async fn relayed<F: First>(outbox: &Outbox<F::DB>, events: usize, most: Duration) -> Vec<String> {
    let (stop, stopped) = oneshot::channel::<()>();
    let broker = Broker::new();
    let relay = Relay::new(outbox.clone()).publisher(DESTINATION, broker.clone());
    let stopping = async {
        let had = async {
            while broker.events() < events {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(most, had).await;
        drop(stop);
    };
    let (counts, ()) = tokio::join!(relay.run(async { drop(stopped.await) }), stopping);
    counts.unwrap();
    broker.copies().into_iter().map(|copy| copy.text).collect()
}

pub async fn outbox<F: First>(tables: Tables) {
    let old: F = on(tables).await;
    let new = Outbox::new(old.pool().clone()).await.unwrap();
    // M22: which bucket a key is in is a constant of the schema.
    let bucket = Bucket::of(DESTINATION, Some(KEY), &Uuid::nil()).number();
    assert_eq!(bucket, BUCKET);
    let enqueue = async |payload: &'static str| {
        let mut tx = old.pool().begin().await.unwrap();
        new.enqueue(&mut tx, &Event::new(DESTINATION, "t", "kind", "/new").key(KEY).bytes(payload)).await.unwrap();
        tx.commit().await.unwrap();
    };
    old.enqueue(bucket, "1").await;
    enqueue("2").await;
    assert_eq!(relayed::<F>(&new, 2, Duration::from_secs(20)).await, ["1", "2"]);
    enqueue("3").await;
    old.enqueue(bucket, "4").await;
    assert!(old.join().await, "what the new relay gave up is free for an old one");
    if F::SHARES {
        // M33: what the old relay owns the new one leaves alone.
        assert!(relayed::<F>(&new, 1, Duration::from_secs(2)).await.is_empty());
    }
    assert_eq!(old.publish(bucket).await, ["3", "4"]);
    old.leave().await;
    old.enqueue(bucket, "5").await;
    assert_eq!(relayed::<F>(&new, 1, Duration::from_secs(20)).await, ["5"]);
    let stats = new.stats().await.unwrap();
    assert_eq!((stats.pending, stats.failing, stats.dead), (0, 0, 0));
}

/// The tests of an engine.
macro_rules! on_each_version {
    ($first:ty) => {
        // S30: an old process on the newest tables.
        mod old_process {
            use crate::rolling::{Tables, inbox, keys, leases, outbox};

            #[tokio::test(flavor = "multi_thread")]
            async fn shares_keys() {
                keys::<$first>(Tables::Newest).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn shares_leases() {
                leases::<$first>(Tables::Newest).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn shares_an_inbox() {
                inbox::<$first>(Tables::Newest).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn shares_an_outbox() {
                outbox::<$first>(Tables::Newest).await;
            }
        }

        // S30: a new process on the first tables.
        mod new_process {
            use crate::missing::{newer_history, older_tables};
            use crate::rolling::{Tables, inbox, keys, leases, outbox};

            #[tokio::test(flavor = "multi_thread")]
            async fn shares_keys() {
                keys::<$first>(Tables::First).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn shares_leases() {
                leases::<$first>(Tables::First).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn shares_an_inbox() {
                inbox::<$first>(Tables::First).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn shares_an_outbox() {
                outbox::<$first>(Tables::First).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn says_which_tables_are_missing_and_loses_nothing() {
                for version in 1..=4 {
                    older_tables::<$first>(version).await;
                }
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn leaves_a_newer_history_alone() {
                newer_history::<$first>().await;
            }
        }
    };
}

pub(crate) use on_each_version;
