//! The kit for applications: a message that is delivered more than once (M42).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idempotency::inbox::Processed;
use idempotency::testing::inbox::deliver;

use super::lab::{Lab, message, on_each};

on_each!(a_handler_behind_an_inbox_acts_once);

// M42: three at once, three more afterwards; two deliveries fail first.
async fn a_handler_behind_an_inbox_acts_once<L: Lab>(lab: L) {
    let inbox = lab.inbox("deliver").await;
    let (told, calls) = (message("1"), AtomicUsize::new(0));
    let calls = &calls;
    let value = deliver(3, || {
        inbox.process(&told, |mut tx| async move {
            L::write(&mut tx, "delivered").await?;
            match calls.fetch_add(1, Ordering::SeqCst) {
                call if call < 2 => Err(sqlx::Error::RowNotFound),
                call => Ok(call),
            }
        })
    });
    assert_eq!(value.await, 2);
    assert_eq!(lab.effects("delivered").await, 1);
}

// M42: a consumer without an inbox is found, and so is one that loses the message.
#[tokio::test]
async fn what_acts_twice_or_never_is_found() {
    let unprotected = || async { Ok::<_, ()>(Processed::First(())) };
    assert!(tokio::spawn(async move { deliver(2, unprotected).await }).await.is_err());
    let lost = || async { Ok::<Processed<()>, ()>(Processed::Duplicate) };
    assert!(tokio::spawn(async move { deliver(2, lost).await }).await.is_err());
    let strange = || async { Ok::<Processed<()>, ()>(Processed::Conflict) };
    assert!(tokio::spawn(async move { deliver(2, strange).await }).await.is_err());
    let soon = AtomicUsize::new(0);
    let busy_first = || async {
        Ok::<_, ()>(match soon.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Processed::Busy { retry_after: Duration::from_millis(1) },
            2 => Processed::First("value"),
            _ => Processed::Duplicate,
        })
    };
    assert_eq!(deliver(2, busy_first).await, "value");
}
