//! Who relays (M33, M39).

use std::time::Duration;

use tokio::time::sleep;

use super::Harness;
use super::support::{LEASE, by_bucket, done, enqueued, event, failed, member, only, queue};
use crate::db::outbox::{Beat, Queue, Taken};

/// For what shall end while the test waits. The server's clock counts.
const SHORT: Duration = Duration::from_secs(2);

fn members(beat: &Beat) -> Vec<&str> {
    match beat {
        Beat::Member { members, .. } => members.iter().map(String::as_str).collect(),
        other => panic!("not a member: {other:?}"),
    }
}

fn holdings(beat: Beat) -> Vec<Taken> {
    match beat {
        Beat::Member { holdings, .. } => holdings,
        other => panic!("not a member: {other:?}"),
    }
}

/// Members see one another, and no bucket has two owners. Where one relay works for all, others stand by (M33, M39).
pub async fn members_share_the_buckets<H: Harness>(harness: &H) {
    let (here, there) = (harness.outbox().await, harness.outbox().await);
    let (one, two) = (member("b"), member("a"));
    let first = done(queue(&here).join(&one, LEASE)).await;
    assert_eq!(members(&first), ["b"]);
    if !H::SHARES {
        assert_eq!(done(queue(&there).join(&two, LEASE)).await, Beat::StandBy);
        assert!(done(queue(&there).take(&two, 64)).await.is_empty());
        done(queue(&here).leave(&one)).await;
        assert_eq!(members(&done(queue(&there).beat(&two, LEASE)).await), ["a"]);
        assert_eq!(done(queue(&there).take(&two, 64)).await.len(), 64);
        return;
    }
    assert_eq!(members(&done(queue(&there).join(&two, LEASE)).await), ["a", "b"]);
    assert_eq!(members(&done(queue(&here).beat(&one, LEASE)).await), ["a", "b"]);
    let (of_one, of_two) = (done(queue(&here).take(&one, 40)).await, done(queue(&there).take(&two, 64)).await);
    assert_eq!((of_one.len(), of_two.len()), (40, 24));
    assert!(of_one.iter().chain(&of_two).all(|taken| !taken.vanished && taken.fence.epoch > 0));
    let (one_has, two_has) = (by_bucket(&of_one), by_bucket(&of_two));
    assert!(one_has.keys().all(|bucket| !two_has.contains_key(bucket)));
    assert_eq!(by_bucket(&holdings(done(queue(&here).beat(&one, LEASE)).await)), one_has);
    // Surplus goes back, and is there for the other one.
    let surplus: Vec<_> = of_one[..8].iter().map(|taken| taken.fence).collect();
    done(queue(&here).release(&surplus)).await;
    assert_eq!(holdings(done(queue(&here).beat(&one, LEASE)).await).len(), 32);
    let given = done(queue(&there).take(&two, 64)).await;
    assert!(given.len() == 8 && given.iter().all(|taken| !taken.vanished));
    done(queue(&here).leave(&one)).await;
    assert_eq!(members(&done(queue(&there).beat(&two, LEASE)).await), ["a"]);
    let left = done(queue(&there).take(&two, 64)).await;
    assert!(left.len() == 32 && left.iter().all(|taken| !taken.vanished));
    // Many at once: each bucket to one of them.
    done(queue(&there).leave(&two)).await;
    let crowd: Vec<_> = (0..4).map(|n| member(&format!("crowd-{n}"))).collect();
    let mut taken = tokio::task::JoinSet::new();
    for member in crowd {
        let outbox = harness.outbox().await;
        done(queue(&outbox).join(&member, LEASE)).await;
        taken.spawn(async move {
            let mut own = Vec::new();
            for _ in 0..8 {
                own.extend(done(queue(&outbox).take(&member, 4)).await);
            }
            own
        });
    }
    let taken = taken.join_all().await.concat();
    assert!(taken.len() > 32 && by_bucket(&taken).len() == taken.len(), "{} taken", taken.len());
}

/// Who is silent for longer than its lease loses its buckets, whatever its own clock says, and they are taken carefully
/// (M33, M34, case B12).
pub async fn a_member_that_is_silent_loses_its_buckets<H: Harness>(harness: &H) {
    let (here, there) = (harness.outbox().await, harness.outbox().await);
    let (one, two) = (member("one"), member("two"));
    enqueued(harness, &here, &event("k")).await;
    let pending = only(&here).await;
    done(queue(&here).join(&one, SHORT)).await;
    let taken = done(queue(&here).take(&one, 64)).await;
    let stale = by_bucket(&taken)[&pending.bucket()];
    if !H::SHARES {
        // A process that is merely stalled keeps its post; one that has gone has left a trace.
        sleep(SHORT * 2).await;
        assert_eq!(done(queue(&there).join(&two, LEASE)).await, Beat::StandBy);
        queue(&here).vanish(&one);
        assert!(matches!(done(queue(&there).join(&two, LEASE)).await, Beat::Member { .. }));
        let after = done(queue(&there).take(&two, 64)).await;
        assert!(after.len() == 64 && after.iter().all(|taken| taken.vanished));
        assert_eq!(done(queue(&here).record(&stale, &failed(&pending))).await, None);
        return;
    }
    done(queue(&there).join(&two, LEASE)).await;
    assert!(done(queue(&there).take(&two, 64)).await.is_empty());
    sleep(SHORT * 2).await;
    assert_eq!(members(&done(queue(&there).beat(&two, LEASE)).await), ["two"]);
    let after = done(queue(&there).take(&two, 63)).await;
    assert!(after.len() == 63 && after.iter().all(|taken| taken.vanished));
    let kept = by_bucket(&after);
    let lost = taken.iter().filter(|taken| kept.contains_key(&taken.fence.bucket)).count();
    assert_eq!(lost, 63);
    // It comes back, and learns what it still has.
    let left = holdings(done(queue(&here).beat(&one, LEASE)).await);
    assert!(left.len() == 1 && !kept.contains_key(&left[0].fence.bucket));
    if kept.contains_key(&pending.bucket()) {
        assert_eq!(done(queue(&here).record(&stale, &failed(&pending))).await, None);
    }
    assert!(done(queue(&there).take(&two, 64)).await.is_empty());
    // What was taken carefully is remembered to be so, should the answer have been lost.
    assert!(holdings(done(queue(&there).beat(&two, LEASE)).await).iter().all(|held| held.vanished));
}

/// A relay that starts again under its name gets its buckets at once, and the one before is told (M33).
pub async fn a_later_incarnation_follows_at_once<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let queue = queue(&outbox);
    let (old, new) = (member("pod-1"), member("pod-1"));
    done(queue.join(&old, LEASE)).await;
    let before = by_bucket(&done(queue.take(&old, 64)).await);
    assert_eq!(members(&done(queue.join(&new, LEASE)).await), ["pod-1"]);
    let after = done(queue.take(&new, 64)).await;
    assert!(after.len() == 64 && after.iter().all(|taken| taken.vanished));
    assert!(after.iter().all(|taken| taken.fence.epoch > before[&taken.fence.bucket].epoch));
    let beat = done(queue.beat(&old, LEASE)).await;
    assert_eq!(beat, if H::SHARES { Beat::Ousted } else { Beat::StandBy });
    assert!(done(queue.take(&old, 64)).await.is_empty());
    done(queue.leave(&old)).await;
    assert_eq!(holdings(done(queue.beat(&new, LEASE)).await).len(), 64);
}
