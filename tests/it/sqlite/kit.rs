//! The conformance kit on SQLite files (case O13: a database that the service has already).

use idempotency::testing::store::Harness;
use idempotency::{LookupKey, SqliteStore};
use tempfile::TempDir;

/// Stores on one file; each is an owner of its own, as another process would be.
struct SqliteHarness {
    folder: TempDir,
    first: SqliteStore,
}

impl SqliteHarness {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let first = SqliteStore::open(folder.path().join("kit.sqlite")).await.unwrap();
        first.migrate().await.unwrap();
        Self { folder, first }
    }
}

impl Harness for SqliteHarness {
    type Store = SqliteStore;

    const FREES_ON_DROP: bool = true;

    async fn store(&self) -> SqliteStore {
        SqliteStore::open(self.folder.path().join("kit.sqlite")).await.unwrap()
    }

    async fn expire(&self, lookup: &LookupKey) {
        let changed =
            sqlx::query("UPDATE idempotency_keys SET expires_at = 1 WHERE scope = ? AND id_key = ? AND endpoint = ?")
                .bind(lookup.scope().as_str())
                .bind(lookup.key().as_str())
                .bind(lookup.endpoint().as_str())
                .execute(self.first.pool())
                .await
                .unwrap();
        assert_eq!(changed.rows_affected(), 1);
    }

    async fn records(&self) -> u64 {
        let count: i64 =
            sqlx::query_scalar("SELECT count(*) FROM idempotency_keys").fetch_one(self.first.pool()).await.unwrap();
        count.try_into().unwrap()
    }
}

idempotency::store_conformance!(files, SqliteHarness::new());
idempotency::operator_conformance!(operators, SqliteHarness::new());
