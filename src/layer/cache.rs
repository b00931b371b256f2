//! Answers that were stored a moment ago, kept in this process, so that their replays ask no store (S27).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::digest_map::{Digest, DigestMap};
use crate::record::{AnswerBody, Record};

/// A store keeps a record for at least 60 s from its settlement (H44). This ends before, by any clock.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// What a record takes besides its body, about.
const OVERHEAD: usize = 1024;

/// Bounded in bytes; the oldest go first.
pub(super) struct ReplayCache {
    limit: usize,
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    by_key: DigestMap<Row>,
    /// In the order in which they were kept. An entry whose row was replaced since is passed over.
    order: VecDeque<(Instant, Digest)>,
    bytes: usize,
}

struct Row {
    record: Arc<Record>,
    kept_at: Instant,
}

impl ReplayCache {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, rows: Mutex::default() }
    }

    pub(super) fn get(&self, digest: &Digest) -> Option<Arc<Record>> {
        let rows = self.lock();
        let row = rows.by_key.get(digest)?;
        (row.kept_at.elapsed() < KEPT_FOR).then(|| Arc::clone(&row.record))
    }

    /// Keeps what the store has kept. `settled_at`: a moment before its settlement was asked for.
    pub(super) fn keep(&self, digest: &Digest, record: Arc<Record>, settled_at: Instant) {
        let size = size(&record);
        if size > self.limit {
            return;
        }
        let rows = &mut *self.lock();
        rows.take(digest);
        rows.order.push_back((settled_at, *digest));
        rows.bytes += size;
        rows.by_key.insert(*digest, Row { record, kept_at: settled_at });
        while let Some((kept_at, oldest)) = rows.order.front().copied() {
            let is_current = rows.by_key.get(&oldest).is_some_and(|row| row.kept_at == kept_at);
            if is_current && rows.bytes <= self.limit && kept_at.elapsed() < KEPT_FOR {
                break;
            }
            rows.order.pop_front();
            if is_current {
                rows.take(&oldest);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        // Nothing panics under the lock.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
    fn take(&mut self, digest: &Digest) {
        if let Some(row) = self.by_key.remove(digest) {
            self.bytes -= size(&row.record);
        }
    }
}

fn size(record: &Record) -> usize {
    let body = match &record.answer.body {
        AnswerBody::Kept(body) => body.len(),
        AnswerBody::NotKept => 0,
    };
    OVERHEAD + body
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    use super::*;
    use crate::fingerprint::{Fingerprint, Profile};
    use crate::record::Answer;

    fn record(length: usize) -> Arc<Record> {
        let body = AnswerBody::Kept(Bytes::from(vec![b'x'; length]));
        let answer = Answer { status: StatusCode::OK, headers: HeaderMap::new(), body, trailers: None };
        Arc::new(Record { fingerprint: Fingerprint::new(Profile::from_bytes([0; 8]), [0; 32]), answer })
    }

    fn held(cache: &ReplayCache) -> Vec<u8> {
        (0..=u8::MAX).filter(|key| cache.get(&[*key; 32]).is_some()).collect()
    }

    // S27
    #[tokio::test(start_paused = true)]
    async fn it_is_bounded_in_bytes_and_forgets_the_oldest() {
        let cache = ReplayCache::new(3 * (OVERHEAD + 100));
        for key in 0..5 {
            cache.keep(&[key; 32], record(100), Instant::now());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(held(&cache), [2, 3, 4]);
        cache.keep(&[9; 32], record(4 * (OVERHEAD + 100)), Instant::now());
        assert_eq!(held(&cache), [2, 3, 4], "larger than all of it");
        // Kept again under the same key, it counts once.
        for _ in 0..10 {
            cache.keep(&[4; 32], record(100), Instant::now());
        }
        assert_eq!(held(&cache), [2, 3, 4]);
        assert_eq!(cache.lock().bytes, 3 * (OVERHEAD + 100));
    }

    // S27, H44
    #[tokio::test(start_paused = true)]
    async fn it_forgets_before_any_store_does() {
        let cache = ReplayCache::new(1 << 20);
        cache.keep(&[1; 32], record(1), Instant::now());
        tokio::time::advance(KEPT_FOR - Duration::from_millis(1)).await;
        assert_eq!(held(&cache), [1]);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(held(&cache).is_empty());
        cache.keep(&[2; 32], record(1), Instant::now());
        assert_eq!(cache.lock().by_key.len(), 1, "what is over is not kept");
        assert_eq!(cache.lock().order.len(), 1);
    }
}
