//! For tests of applications: a message that is delivered more than once (M42).

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::concurrency::together;
use crate::inbox::Processed;

/// How long deliveries that fail or are busy are repeated.
const PATIENCE: Duration = Duration::from_secs(30);

/// Delivers one message `times` times at once and then `times` more one after the other, as brokers do, and gives what the
/// handler gave. A delivery that is busy or fails is delivered again for half a minute.
///
/// `deliver` is one delivery: a call of [`Inbox::process`](crate::inbox::Inbox::process), or whatever your consumer does
/// with a message, down to what it would tell the broker. Afterwards look whether its effects are there once: what a
/// handler does outside its transaction is found by that.
///
/// # Panics
/// If the message was processed twice, or never, or was taken for a conflict or for poison.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use idempotency::{Inbox, SqliteStore};
/// # use idempotency::inbox::{InboxTx, Message, MessageId};
/// # let folder = tempfile::tempdir()?;
/// # let pool = sqlx::SqlitePool::connect_lazy_with(SqliteStore::connect_options(folder.path().join("test.sqlite")));
/// async fn bill(mut tx: InboxTx<sqlx::Sqlite>) -> Result<(), sqlx::Error> {
///     sqlx::query("INSERT INTO invoices (order_id) VALUES (7)").execute(&mut *tx).await.map(drop)
/// }
///
/// let inbox = Inbox::new(pool.clone(), "billing").await?;
/// inbox.migrate().await?;
/// sqlx::query("CREATE TABLE invoices (order_id INTEGER NOT NULL)").execute(&pool).await?;
///
/// let message = Message::new(MessageId::new("orders", "evt_1")?, b"{}");
/// idempotency::testing::inbox::deliver(3, || inbox.process(&message, bill)).await;
/// let invoices: i64 = sqlx::query_scalar("SELECT count(*) FROM invoices").fetch_one(&pool).await?;
/// assert_eq!(invoices, 1);
/// # Ok(()) }
/// # #[cfg(not(feature = "sqlite"))]
/// # fn main() {}
/// ```
pub async fn deliver<T, E, F, Fut>(times: usize, deliver: F) -> T
where
    E: fmt::Debug,
    F: Fn() -> Fut,
    Fut: Future<Output = Result<Processed<T>, E>>,
{
    let until = Instant::now() + PATIENCE;
    let mut firsts: Vec<T> =
        together((0..times).map(|_| until_told(&deliver, until))).await.into_iter().flatten().collect();
    for _ in 0..times {
        firsts.extend(until_told(&deliver, until).await);
    }
    assert!(firsts.len() <= 1, "the message was processed {} times", firsts.len());
    match firsts.pop() {
        Some(value) => value,
        None => panic!("the message was never processed: each delivery was a duplicate"),
    }
}

/// What the handler gave, if this delivery was the first.
async fn until_told<T, E, F, Fut>(deliver: &F, until: Instant) -> Option<T>
where
    E: fmt::Debug,
    F: Fn() -> Fut,
    Fut: Future<Output = Result<Processed<T>, E>>,
{
    loop {
        let pause = match deliver().await {
            Ok(Processed::First(value)) => return Some(value),
            Ok(Processed::Duplicate) => return None,
            Ok(Processed::Busy { retry_after }) if Instant::now() < until => retry_after.min(Duration::from_millis(20)),
            Err(_) if Instant::now() < until => Duration::from_millis(20),
            Ok(Processed::Busy { .. }) => panic!("the message stays busy"),
            Ok(Processed::Conflict) => panic!("the message was taken for another one under its id"),
            Ok(Processed::Poison) => panic!("the message was taken for poison"),
            Err(error) => panic!("the message fails for ever: {error:?}"),
        };
        sleep(pause).await;
    }
}
