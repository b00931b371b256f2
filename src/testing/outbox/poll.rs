//! How events are found and taken away.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::Harness;
use super::support::{commit, done, enqueued, event, only, payloads, pending, queue};
use crate::db::outbox::{Acked, From, Queue};
use crate::outbox::{Bucket, Event, Place};

/// Of each bucket the first events beyond the number, no more than asked for, in order (M36).
pub async fn a_poll_goes_on_where_it_is_told_to<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let queue = queue(&outbox);
    let mut tx = harness.begin().await;
    // Of many buckets.
    let batch: Vec<Event> = (0..300).map(|n| event(&format!("k{}", n % 30)).bytes(n.to_string())).collect();
    done(outbox.enqueue_all(&mut tx, &batch)).await;
    commit(tx).await;
    let buckets: Vec<Bucket> = Bucket::all().collect();
    for count in [1, 2, 3, 5, 63, 64] {
        let mut from: Vec<From> =
            buckets[..count].iter().map(|bucket| From { bucket: *bucket, after: 0, most: 4 }).collect();
        let mut found = 0;
        loop {
            let step = done(queue.poll(&from)).await;
            for pair in step.windows(2) {
                assert!(pair[0].place() < pair[1].place());
            }
            for from in &mut from {
                let of_bucket: Vec<i64> = step
                    .iter()
                    .filter(|pending| pending.bucket() == from.bucket)
                    .map(|pending| pending.place().seq)
                    .collect();
                assert!(of_bucket.len() <= 4 && of_bucket.iter().all(|seq| *seq > from.after));
                from.after = of_bucket.last().copied().unwrap_or(from.after);
            }
            if step.is_empty() {
                break;
            }
            found += step.len();
        }
        let all = pending(&outbox).await;
        let expected = all.iter().filter(|pending| usize::from(pending.bucket().number()) < count).count();
        assert_eq!(found, expected);
    }
    assert!(done(queue.poll(&[])).await.is_empty());
    let any = pending(&outbox).await.remove(0);
    assert_eq!(done(queue.read(any.place())).await, Some(any.clone()));
    assert_eq!(done(queue.read(Place { seq: any.place().seq + 1_000_000, ..any.place() })).await, None);
}

/// What is acked goes by bucket, number and id together, and as often as it is said (M32).
pub async fn an_ack_deletes_its_own_row_only<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let queue = queue(&outbox);
    let mut tx = harness.begin().await;
    let batch: Vec<Event> = (0..100).map(|n| event(&format!("k{n}")).bytes(format!("{n:02}"))).collect();
    done(outbox.enqueue_all(&mut tx, &batch)).await;
    commit(tx).await;
    let mut read = pending(&outbox).await;
    read.sort_by_key(|pending| pending.place().seq);
    let acked = |pending: &crate::outbox::PendingEvent| Acked { place: pending.place(), id: pending.id() };
    let mut wrong = Vec::new();
    for pending in &read {
        wrong.push(Acked { id: Uuid::now_v7(), ..acked(pending) });
        let other = Bucket::new((pending.bucket().number() + 1) % Bucket::COUNT).unwrap_or(pending.bucket());
        wrong.push(Acked { place: Place { bucket: other, ..pending.place() }, id: pending.id() });
    }
    done(queue.delete(&wrong)).await;
    assert_eq!(pending(&outbox).await.len(), 100);
    let half: Vec<Acked> = read[..50].iter().map(acked).collect();
    for _ in 0..2 {
        done(queue.delete(&half)).await;
        assert_eq!(payloads(&pending(&outbox).await), (50..100).map(|n| n.to_string()).collect::<Vec<_>>());
    }
    done(queue.delete(&[])).await;
}

/// An event that is not due is not pending, and then stands behind what came before (M40).
pub async fn a_deferred_event_waits<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let queue = queue(&outbox);
    let later = SystemTime::now() + Duration::from_secs(3600);
    let mut tx = harness.begin().await;
    let batch = [
        event("k").bytes("2").deliver_after(SystemTime::UNIX_EPOCH + Duration::from_secs(2)),
        event("k").bytes("never").deliver_after(later),
        event("k").bytes("0"),
        event("k").bytes("1").deliver_after(SystemTime::UNIX_EPOCH + Duration::from_secs(1)),
    ];
    let ids = done(outbox.enqueue_all(&mut tx, &batch)).await;
    commit(tx).await;
    assert_eq!(only(&outbox).await.id(), ids[2]);
    assert_eq!(done(outbox.stats()).await.deferred, 3);
    assert_eq!(done(queue.promote(1)).await, 1);
    assert_eq!(done(queue.promote(10)).await, 1);
    assert_eq!(done(queue.promote(10)).await, 0);
    let read = pending(&outbox).await;
    assert_eq!(payloads(&read), ["0", "1", "2"]);
    let mut found: Vec<Uuid> = read.iter().map(crate::outbox::PendingEvent::id).collect();
    found.sort_unstable();
    let mut expected = vec![ids[0], ids[2], ids[3]];
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(done(outbox.stats()).await.deferred, 1);
    // One that is due while its id is pending is that event.
    let id = Uuid::now_v7();
    let due = event("k").id(id).deliver_after(SystemTime::UNIX_EPOCH);
    enqueued(harness, &outbox, &due).await;
    enqueued(harness, &outbox, &event("k").id(id).bytes("twin")).await;
    done(queue.promote(10)).await;
    assert_eq!(pending(&outbox).await.iter().filter(|pending| pending.id() == id).count(), 1);
    assert_eq!(done(outbox.stats()).await.deferred, 1);
}
