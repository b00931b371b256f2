//! The store in memory, and what has no database behind it.

use std::time::Duration;

use idempotency::purge::Purger;
use idempotency::store::AnyStore;
use idempotency::{ErrorKind, MemoryStore};

// S9: nothing to do is no error.
#[tokio::test]
async fn an_empty_purger_and_an_empty_store_are_purged() {
    assert_eq!(Purger::new().purge_once().await.unwrap().rows, 0);
    assert_eq!(Purger::new().keys("keys", MemoryStore::new()).purge_once().await.unwrap().rows, 0);
}

// S31: what fails keeps no other table from being purged, and is told.
#[tokio::test]
async fn a_store_that_cannot_be_purged_is_an_error_and_run_survives_it() {
    let purger = || Purger::new().keys("keys", AnyStore::new(MemoryStore::new())).interval(Duration::from_millis(5));
    assert_eq!(purger().purge_once().await.unwrap_err().kind(), ErrorKind::Setup);
    let done = purger().run(tokio::time::sleep(Duration::from_millis(50))).await;
    assert_eq!(done.rows, 0);
}
