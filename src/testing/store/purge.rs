//! What a purge may take.

use super::Harness;
use super::support::{answer, claimed, completed, kept, name, replayed, request, settled, verdict};
use crate::store::{Purge, Settlement};

/// Expired rows go, within the limit; live and running ones stay (S9; cases O01, B29).
pub async fn a_purge_takes_what_has_expired_and_nothing_else<H: Harness>(harness: &H)
where
    H::Store: Purge,
{
    let store = harness.store().await;
    for number in 0..20 {
        completed(&store, &request(&format!("purged {number}"), 1), answer("old")).await;
    }
    for number in 0..20 {
        harness.expire(request(&format!("purged {number}"), 1).lookup()).await;
    }
    completed(&store, &request("live", 1), answer("live")).await;
    let running = claimed(&store, &request("still running", 1)).await;
    for _ in 0..10 {
        let batch = store.purge(5).await.unwrap_or_else(|error| panic!("the purge failed: {error:?}"));
        assert!(batch <= 5, "a batch of {batch} rows");
    }
    assert_eq!(replayed(&store, &request("live", 1)).await.answer, answer("live"));
    assert_eq!(name(&verdict(&store, &request("still running", 1)).await), "in progress");
    settled(running, Settlement::Commit(kept(answer("done")))).await;
    assert_eq!(harness.records().await, 2, "an expired record is left, or a live one is gone");
}
