//! A connection that all events of a publisher share, made anew when it is lost.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// One connects, the others wait for what comes of it.
pub(super) struct Link<T> {
    open: Mutex<Option<Open<T>>>,
    connecting: tokio::sync::Mutex<()>,
    failed: AtomicU64,
    made: AtomicU64,
}

/// A connection, and which one it is.
#[derive(Clone)]
pub(super) struct Open<T> {
    pub(super) connection: T,
    number: u64,
}

impl<T: Clone> Link<T> {
    pub(super) const fn new() -> Self {
        Self {
            open: Mutex::new(None),
            connecting: tokio::sync::Mutex::const_new(()),
            failed: AtomicU64::new(0),
            made: AtomicU64::new(0),
        }
    }

    /// The connection, made by `connect` where there is none. `None`: it could not be made, now or by whoever tried while
    /// we waited. So a dead server refuses a crowd at once.
    pub(super) async fn open<F>(&self, connect: impl FnOnce() -> F) -> Option<Open<T>>
    where
        F: Future<Output = Option<T>>,
    {
        if let Some(open) = self.current() {
            return Some(open);
        }
        let failed = self.failed.load(Ordering::SeqCst);
        let _turn = self.connecting.lock().await;
        if let Some(open) = self.current() {
            return Some(open);
        }
        if self.failed.load(Ordering::SeqCst) != failed {
            return None;
        }
        // Who is dropped while it connects has failed as well: the next one tries itself.
        let Some(connection) = connect().await else {
            self.failed.fetch_add(1, Ordering::SeqCst);
            return None;
        };
        let open = Open { connection, number: self.made.fetch_add(1, Ordering::SeqCst) };
        *self.lock() = Some(open.clone());
        Some(open)
    }

    /// Gives this connection up, if it is still the one in use.
    pub(super) fn leave(&self, lost: &Open<T>) {
        let mut open = self.lock();
        if open.as_ref().is_some_and(|open| open.number == lost.number) {
            *open = None;
        }
    }

    pub(super) fn current(&self) -> Option<Open<T>> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Open<T>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_crowd_connects_once_and_fails_once() {
        let link = Link::new();
        let tried = AtomicUsize::new(0);
        let connect = |outcome: Option<u8>| {
            let tried = &tried;
            move || async move {
                tried.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                outcome
            }
        };
        let failed = futures_util::future::join_all((0..10).map(|_| link.open(connect(None)))).await;
        assert!(failed.iter().all(Option::is_none));
        assert_eq!(tried.load(Ordering::SeqCst), 1);
        let made = futures_util::future::join_all((0..10).map(|_| link.open(connect(Some(7))))).await;
        assert!(made.iter().all(|open| open.as_ref().is_some_and(|open| open.connection == 7)));
        assert_eq!(tried.load(Ordering::SeqCst), 2);

        let lost = made[0].clone().unwrap();
        link.leave(&lost);
        let next = link.open(connect(Some(8))).await.unwrap();
        link.leave(&lost);
        assert_eq!(link.current().map(|open| open.number), Some(next.number), "only the lost one is left");
    }
}
