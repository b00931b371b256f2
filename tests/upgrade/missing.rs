//! A new process on tables that lack a migration, or that somebody newer has migrated (S30, case O12).

use std::sync::atomic::{AtomicU32, Ordering};

use idempotency::ErrorKind;
use idempotency::LeaseStore;
use idempotency::inbox::{Inbox, Message, MessageId, ProcessError, Processed};
use idempotency::outbox::relay::Relay;
use idempotency::outbox::{Event, Outbox};
use idempotency::store::{Store, Verdict};
use idempotency::testing::store::{answer, completed, request};

use crate::first::{CONSUMER, DESTINATION, First, SOURCE};

/// What has its tables works. What lacks them says so by [`ErrorKind::Setup`] before anything is done, and works after the
/// migration; what was there before is still there.
pub async fn older_tables<F: First>(version: i32) {
    let first = F::empty().await;
    first.create(version).await;
    let pool = || first.pool().clone();
    let keys = first.newest().await;
    let asked = request("before", 1);
    completed(&keys, &asked, answer("first")).await;

    let leases = LeaseStore::new(pool()).await.unwrap();
    let leased = leases.claim(&request("leased", 1)).await;
    match (version >= 2, leased) {
        (true, Ok(Verdict::Claimed(_))) => {}
        (false, Err(error)) => assert_eq!(error.kind(), ErrorKind::Setup, "leases at {version}"),
        _ => panic!("leases at {version}"),
    }

    let inbox = Inbox::new(pool(), CONSUMER).await.unwrap();
    let message = Message::new(MessageId::new(SOURCE, "evt_1").unwrap(), b"payload");
    let runs = AtomicU32::new(0);
    let process = async || {
        let run = async |_| {
            runs.fetch_add(1, Ordering::Relaxed);
            Ok::<(), sqlx::Error>(())
        };
        inbox.process(&message, run).await
    };
    match (version >= 3, process().await) {
        (true, Ok(Processed::First(()))) => {}
        (false, Err(ProcessError::Inbox(error))) => assert_eq!(error.kind(), ErrorKind::Setup, "inbox at {version}"),
        (_, other) => panic!("inbox at {version}: {other:?}"),
    }
    assert_eq!(runs.load(Ordering::Relaxed), u32::from(version >= 3), "a handler ran without a mark");

    let outbox = Outbox::new(pool()).await.unwrap();
    let enqueue = async || {
        let mut tx = first.pool().begin().await.unwrap();
        outbox.enqueue(&mut tx, &Event::new(DESTINATION, "t", "kind", "/new").bytes("1")).await?;
        tx.commit().await.unwrap();
        Ok::<_, idempotency::outbox::EnqueueError>(())
    };
    // The transaction that the event tells of does not commit without it.
    assert_eq!(enqueue().await.is_ok(), version >= 4, "outbox at {version}");
    if version < 4 {
        let error = outbox.stats().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Setup, "outbox at {version}");
        let broker = idempotency::testing::relay::Broker::new();
        let relay = Relay::new(outbox.clone()).publisher(DESTINATION, broker).run(std::future::pending());
        assert_eq!(relay.await.unwrap_err().kind(), ErrorKind::Setup, "relay at {version}");
    }

    // Nothing was lost, and nothing is missing.
    outbox.migrate().await.unwrap();
    for version in 1..=4 {
        assert!(first.applied(version).await, "{version}");
    }
    let replay = keys.claim(&asked.again()).await.unwrap();
    assert!(matches!(replay, Verdict::Replay(record) if record.answer == answer("first")));
    let leased = leases.claim(&request("leased", 1)).await.unwrap();
    assert_eq!(matches!(leased, Verdict::Claimed(_)), version < 2);
    let processed = process().await.unwrap();
    assert_eq!(matches!(processed, Processed::First(())), version < 3);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    if version < 4 {
        enqueue().await.unwrap();
    }
    assert_eq!(outbox.stats().await.unwrap().pending, 1);
}

/// A process that starts after a newer one has migrated does its own migrations, which are all there, and works.
pub async fn newer_history<F: First>() {
    let first = F::empty().await;
    first.create(4).await;
    first.apply(999).await;
    Outbox::new(first.pool().clone()).await.unwrap().migrate().await.unwrap();
    assert!(first.applied(999).await);
    completed(&first.newest().await, &request("after", 1), answer("first")).await;
}
