//! S30: migrations with a history of their own.

use idempotency::PostgresStore;
use idempotency::store::Store;
use idempotency::testing::store::{answer, completed, request};

use crate::support::postgres::{pool_of, store_on};

#[tokio::test(flavor = "multi_thread")]
async fn many_processes_may_migrate_at_once_and_again() {
    let pool = pool_of(10).await;
    let mut migrating = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = PostgresStore::new(pool.clone()).await.unwrap();
        migrating.spawn(async move { store.migrate().await });
    }
    for migrated in migrating.join_all().await {
        migrated.unwrap();
    }
    store_on(&pool).await;
    let versions: i64 =
        sqlx::query_scalar("SELECT count(*) FROM idempotency_migrations").fetch_one(&pool).await.unwrap();
    let newest = (1..).take_while(|version| PostgresStore::schema_sql(*version, None).is_some()).count();
    assert_eq!(usize::try_from(versions).unwrap(), newest);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_own_history_is_left_alone() {
    let pool = pool_of(2).await;
    sqlx::raw_sql(
        "CREATE TABLE _sqlx_migrations (version bigint PRIMARY KEY); INSERT INTO _sqlx_migrations VALUES (99)",
    )
    .execute(&pool)
    .await
    .unwrap();
    store_on(&pool).await;
    let hosts: Vec<i64> = sqlx::query_scalar("SELECT version FROM _sqlx_migrations").fetch_all(&pool).await.unwrap();
    assert_eq!(hosts, [99]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_of_any_name_is_created_and_used() {
    let pool = pool_of(2).await;
    let name = format!("App \"x\"; {}", uuid::Uuid::new_v4());
    let store = PostgresStore::builder(pool.clone()).schema(&name).build().await.unwrap();
    store.migrate().await.unwrap();
    store.migrate().await.unwrap();
    completed(&store, &request("in a schema", 1), answer("done")).await;
    let tables: Vec<String> =
        sqlx::query_scalar("SELECT tablename::text FROM pg_tables WHERE schemaname = $1 ORDER BY 1")
            .bind(&name)
            .fetch_all(&pool)
            .await
            .unwrap();
    for table in ["idempotency_keys", "idempotency_leases", "idempotency_migrations"] {
        assert!(tables.iter().any(|name| name == table), "{table} is not in {tables:?}");
    }
    // The same key in another schema is another key: K holds the qualified name.
    let elsewhere = store_on(&pool).await;
    let verdict = elsewhere.claim(&request("in a schema", 1)).await.unwrap();
    assert!(matches!(verdict, idempotency::store::Verdict::Claimed(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sql_can_be_had_for_a_hosts_own_history() {
    let pool = pool_of(2).await;
    let sql = PostgresStore::schema_sql(1, None).unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&pool).await.unwrap();
    let store = PostgresStore::new(pool).await.unwrap();
    completed(&store, &request("hosted", 1), answer("done")).await;
    assert!(PostgresStore::schema_sql(0, None).is_none());
    assert!(PostgresStore::schema_sql(usize::MAX, None).is_none());
    assert!(PostgresStore::schema_sql(1, Some("a\"b")).unwrap().contains("\"a\"\"b\".idempotency_keys"));
}

// A missing table is a matter of set-up, and the layer answers 503: it passes with the deployment.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_before_its_migration_is_an_error_not_a_run() {
    let store = PostgresStore::new(pool_of(1).await).await.unwrap();
    let error = store.claim(&request("early", 1)).await.unwrap_err();
    assert_eq!(error.kind(), idempotency::ErrorKind::Setup);
    let unknown = PostgresStore::builder(pool_of(1).await).schema("").build().await.unwrap_err();
    assert_eq!(unknown.kind(), idempotency::ErrorKind::Setup);
}
