//! What an event is when it comes out.

use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::Harness;
use super::app::enqueued_in;
use super::support::{commit, done, enqueued, event, only, payloads, pending, roll_back};
use crate::outbox::{Bucket, EnqueueError, Event, Outbox, TraceContext};
use crate::store::BodyCodec;

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Every part of an event comes back byte for byte, and what is absent stays absent (M21).
pub async fn an_event_comes_back_as_it_was<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let trace = TraceContext { traceparent: TRACEPARENT.to_owned(), tracestate: Some("a=b".to_owned()) };
    let full = Event::new("broker", "topic ü '\"\\", "type", "/source")
        .key("kéy")
        .payload("application/octet-stream", every_byte)
        .header("a", "1")
        .header("A", "\"ü\\")
        .header("a", "2")
        .trace(trace);
    let bare = Event::new("broker", "", "type", "/source");
    for written in [full, bare] {
        let before = SystemTime::now();
        let id = enqueued(harness, &outbox, &written).await;
        let read = only(&outbox).await;
        assert_eq!(id.get_version_num(), 7);
        assert_eq!((read.id(), read.event()), (id, &written));
        assert_eq!(read.bucket(), Bucket::of(written.destination(), written.key_ref(), &id));
        assert_eq!((read.redrives(), read.delivery_id()), (0, id.to_string()));
        let age = match read.occurred_at().duration_since(before) {
            Ok(age) => age,
            Err(error) => error.duration(),
        };
        assert!(age < Duration::from_secs(600), "the server's clock is another machine's, but not this far off");
        assert_eq!(super::drain(&outbox).await.len(), 1);
    }
}

/// What is rolled back leaves nothing; what is not committed is seen by its own transaction only.
pub async fn an_event_of_a_rolled_back_transaction_never_was<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let mut tx = harness.transaction().await;
    done(outbox.enqueue(&mut tx, &event("k"))).await;
    done(outbox.enqueue(&mut tx, &event("k").deliver_after(SystemTime::UNIX_EPOCH))).await;
    assert_eq!(enqueued_in(&outbox, &mut tx).await.len(), 1);
    assert!(pending(&outbox).await.is_empty());
    roll_back(tx).await;
    let stats = done(outbox.stats()).await;
    assert_eq!((stats.pending, stats.deferred), (0, 0));
}

/// An outbox that knows only where its tables are writes the same rows, and can do nothing else.
pub async fn an_outbox_without_a_pool_enqueues_into_the_same_tables<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let alone: Outbox<H::DB> = match harness.builder().build_without_pool() {
        Ok(alone) => alone,
        Err(error) => panic!("{error:?}"),
    };
    let id = enqueued(harness, &alone, &event("k")).await;
    assert_eq!(only(&outbox).await.id(), id);
    assert_eq!(alone.stats().await.map_err(|error| error.kind()), Err(crate::ErrorKind::Setup));
}

/// A batch gets growing numbers in its order, and one event that cannot be written keeps all of them out.
pub async fn a_batch_is_in_order_and_all_or_none<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let batch: Vec<Event> = (0..250).map(|n| event(&format!("k{}", n % 7)).bytes(n.to_string())).collect();
    let mut tx = harness.transaction().await;
    let ids = done(outbox.enqueue_all(&mut tx, &batch)).await;
    assert!(done(outbox.enqueue_all(&mut tx, &[])).await.is_empty());
    commit(tx).await;
    let mut read = pending(&outbox).await;
    read.sort_by_key(|pending| pending.place().seq);
    assert_eq!(read.iter().map(crate::outbox::PendingEvent::id).collect::<Vec<_>>(), ids);
    assert_eq!(payloads(&read), (0..250).map(|n| n.to_string()).collect::<Vec<_>>());

    let mut tx = harness.transaction().await;
    let bad = [event("k"), event("k").key("\0")];
    assert!(matches!(outbox.enqueue_all(&mut tx, &bad).await, Err(EnqueueError::Invalid(_))));
    let many = vec![event("k"); 1_001];
    assert!(matches!(outbox.enqueue_all(&mut tx, &many).await, Err(EnqueueError::BatchTooLarge { events: 1_001, .. })));
    let large = vec![event("k").bytes(vec![0; 900_000]); 10];
    assert!(matches!(outbox.enqueue_all(&mut tx, &large).await, Err(EnqueueError::BatchTooLarge { .. })));
    // The largest that is taken, in one packet.
    done(outbox.enqueue_all(&mut tx, &large[..9])).await;
    commit(tx).await;
    assert_eq!(pending(&outbox).await.len(), 259);
}

/// An id that is there already is told, alone and in a batch, pending and deferred, and is never swallowed (cases B10, B17 and
/// B19).
pub async fn the_same_id_twice_is_an_error<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let (one, later) = (event("k").id(uuid::Uuid::now_v7()), SystemTime::now() + Duration::from_secs(3600));
    let twice = [one.clone(), one.clone()];
    let deferred = one.clone().deliver_after(later);
    enqueued(harness, &outbox, &one).await;
    let other = event("k").id(uuid::Uuid::now_v7()).deliver_after(later);
    enqueued(harness, &outbox, &other).await;
    for again in [&one, &other] {
        let mut tx = harness.transaction().await;
        assert!(matches!(outbox.enqueue(&mut tx, again).await, Err(EnqueueError::Duplicate(_))));
        roll_back(tx).await;
    }
    let fresh = event("k").id(uuid::Uuid::now_v7());
    for batch in [vec![event("x"), one.clone()], vec![event("x"), fresh.clone(), fresh]] {
        let mut tx = harness.transaction().await;
        assert!(matches!(outbox.enqueue_all(&mut tx, &batch).await, Err(EnqueueError::Duplicate(_))));
        // Whoever goes on all the same commits nothing of the batch.
        let _ = tx.commit().await;
    }
    drop((twice, deferred));
    let stats = done(outbox.stats()).await;
    assert_eq!((stats.pending, stats.deferred), (1, 1));
}

/// What is refused before it is written leaves the transaction as it was (case B61).
pub async fn what_cannot_be_sent_leaves_the_transaction_usable<H: Harness>(harness: &H) {
    let outbox = harness.build(Outbox::builder().max_size(1_000)).await;
    let mut tx = harness.transaction().await;
    let large = event("k").bytes(vec![0; 1_000]);
    let (size, limit) = (large.size(), 1_000);
    match outbox.enqueue(&mut tx, &large).await {
        Err(EnqueueError::TooLarge { size: told, limit: at }) => assert_eq!((told, at), (size, limit)),
        other => panic!("too large: {other:?}"),
    }
    assert!(matches!(outbox.enqueue(&mut tx, &event("k\n")).await, Err(EnqueueError::Invalid(_))));
    let id = done(outbox.enqueue(&mut tx, &event("k"))).await;
    commit(tx).await;
    assert_eq!(only(&outbox).await.id(), id);
}

struct Reversed;

impl BodyCodec for Reversed {
    fn encode(&self, body: Bytes) -> Bytes {
        body.iter().rev().copied().collect()
    }

    fn decode(&self, stored: Bytes) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.encode(stored))
    }
}

/// Payloads stand in the table as the codec makes them and come out as they were; an event without a trace gets the current
/// one, where it is well-formed.
pub async fn payloads_pass_the_codec_and_traces_the_hook<H: Harness>(harness: &H) {
    let current = || Some(TraceContext { traceparent: TRACEPARENT.to_owned(), tracestate: None });
    let outbox = harness.build(Outbox::builder().codec(Reversed).trace_context(current)).await;
    enqueued(harness, &outbox, &event("k").bytes("abc")).await;
    let stored = only(&harness.outbox().await).await;
    assert_eq!(&stored.event().payload_ref()[..], b"cba");
    assert_eq!(stored.event().trace_ref().map(|trace| trace.traceparent.as_str()), Some(TRACEPARENT));
    let drained = super::drain(&outbox).await;
    assert_eq!(payloads(&drained), ["abc"]);
    let own = TraceContext { traceparent: "nonsense".to_owned(), tracestate: None };
    enqueued(harness, &outbox, &event("k").trace(own)).await;
    assert_eq!(only(&outbox).await.event().trace_ref(), None);
}

/// Keys are told apart by every byte; an empty one is a key, none is not (M21).
pub async fn keys_are_kept_byte_for_byte<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let keys = [Some(""), None, Some("a"), Some("A"), Some("a "), Some(" a"), Some("ä"), Some("a\u{308}"), Some("0")];
    let mut tx = harness.transaction().await;
    for key in keys {
        let plain = Event::new("kit", "t", "k", "/s");
        done(outbox.enqueue(&mut tx, &key.map_or(plain.clone(), |key| plain.key(key)))).await;
    }
    commit(tx).await;
    let mut read = pending(&outbox).await;
    read.sort_by_key(|pending| pending.place().seq);
    assert_eq!(read.iter().map(|pending| pending.event().key_ref()).collect::<Vec<_>>(), keys);
    for key in keys.into_iter().flatten() {
        done(outbox.pause_key("kit", key)).await;
    }
    assert_eq!(done(outbox.paused()).await.len(), 8);
    done(outbox.resume_key("kit", "a")).await;
    assert_eq!(done(outbox.paused()).await.len(), 7);
}
