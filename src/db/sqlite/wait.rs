//! Waiting for another process's write lock (S16 ff.): SQLite's own back-off starves whoever came second.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Sqlite, SqlitePool};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::db::fault::{Fault, fault};

const SHORTEST: u64 = 200;
const LONGEST: u64 = 1_000;

/// Evaluates until the result is not a refusal as busy, or `$until` has passed. (A macro, because of a closure that
/// borrows the compiler cannot yet tell that its future is `Send`.)
macro_rules! patiently {
    ($until:expr, $attempt:expr) => {{
        let until = $until;
        loop {
            match async { $attempt }.await {
                Err(error) => match $crate::db::sqlite::wait::again(until, error).await {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
                Ok(done) => break Ok(done),
            }
        }
    }};
}

pub(crate) use patiently;

/// A connection of this pool. A new one may meet another one that opens, recovers or closes the file, and waits for it.
pub(crate) async fn acquire(pool: &SqlitePool, until: Instant) -> Result<PoolConnection<Sqlite>, sqlx::Error> {
    patiently!(until, timeout_at(until, pool.acquire()).await.unwrap_or(Err(sqlx::Error::PoolTimedOut)))
}

/// Pauses after an attempt that failed as busy; gives any other error back, or this one when `until` has passed.
pub(crate) async fn again(until: Instant, error: sqlx::Error) -> Result<(), sqlx::Error> {
    if fault::<Sqlite>(&error) != Fault::Conflict || Instant::now() >= until {
        return Err(error);
    }
    pause().await;
    Ok(())
}

/// 0.2 to 1 ms. The runtime's timers are too coarse for it; at most one task of a store waits here at a time.
async fn pause() {
    let [random, ..] = Uuid::new_v4().into_bytes();
    let micros = SHORTEST + (LONGEST - SHORTEST) * u64::from(random) / 255;
    let _ = tokio::task::spawn_blocking(move || std::thread::sleep(Duration::from_micros(micros))).await;
}
