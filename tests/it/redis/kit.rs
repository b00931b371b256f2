//! The kit, on each kind of server and behind an erased store.

use idempotency::LookupKey;
use idempotency::store::{AnyStore, OnUnknown};
use idempotency::testing::store::Harness;

use crate::support::redis::RedisHarness;

struct Erased(RedisHarness);

impl Harness for Erased {
    type Store = AnyStore;

    const FREES_ON_DROP: bool = false;

    async fn store(&self) -> AnyStore {
        AnyStore::operable(self.0.store().await)
    }

    async fn expire(&self, lookup: &LookupKey) {
        self.0.expire(lookup).await;
    }

    async fn store_on_unknown(&self, on_unknown: OnUnknown) -> Option<AnyStore> {
        self.0.store_on_unknown(on_unknown).await.map(AnyStore::operable)
    }

    async fn records(&self) -> u64 {
        self.0.records().await
    }

    async fn end_leases(&self) {
        self.0.end_leases().await;
    }
}

idempotency::store_conformance!(single, RedisHarness::single());
idempotency::store_conformance!(cluster, RedisHarness::cluster());
idempotency::store_conformance!(erased, async { Erased(RedisHarness::single().await) });

// S8
idempotency::operator_conformance!(single_operators, RedisHarness::single());
idempotency::operator_conformance!(cluster_operators, RedisHarness::cluster());
idempotency::operator_conformance!(erased_operators, async { Erased(RedisHarness::single().await) });
