//! The cut test: drop a delivery after its n-th poll, for every n (Q2).

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::redelivery::until_not_busy;
use super::{CONSUMER, Harness, Work, message};
use crate::inbox::Processed;

/// More polls than any delivery needs; the loop ends with the first one that is not cut.
const MOST_POLLS: usize = 400;

/// Polls `future` at most `polls` times, then drops it.
async fn cut_after<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // The last allowed poll was this one: cut now, not when it would have been woken.
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// A dropped delivery is done or undone, whichever: the redelivery learns which, and the effect is there once. No connection
/// is left in a transaction.
pub async fn a_dropped_delivery_is_done_or_undone<H: Harness>(harness: &H) {
    let (here, elsewhere) = (harness.inbox(CONSUMER).await, harness.inbox(CONSUMER).await);
    for polls in 0..MOST_POLLS {
        let (told, what) = (message(format!("cut {polls}"), "payload"), format!("cut {polls}"));
        let cut = cut_after(harness.process(&here, &told, Work::new(&what)), polls).await;
        let inbox = if polls % 2 == 0 { &here } else { &elsewhere };
        match until_not_busy(harness, inbox, &told, &what).await {
            Processed::First(()) | Processed::Duplicate => {}
            other => panic!("cut after {polls} polls, told {other:?}"),
        }
        assert_eq!(harness.effects(&what).await, 1, "cut after {polls} polls");
        if cut.is_some() {
            return;
        }
    }
    panic!("a delivery takes more than {MOST_POLLS} polls");
}
