//! S30: migrations with a history of their own.

use idempotency::store::Store;
use idempotency::testing::store::{answer, completed, request};
use idempotency::{ErrorKind, MySqlStore};

use crate::support::mysql::{WAYS, builder, options, pool_of, pool_on, store_on};

#[tokio::test(flavor = "multi_thread")]
async fn many_processes_may_migrate_at_once_and_again() {
    let pool = pool_of(10).await;
    let mut migrating = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = MySqlStore::new(pool.clone()).await.unwrap();
        migrating.spawn(async move { store.migrate().await });
    }
    for migrated in migrating.join_all().await {
        migrated.unwrap();
    }
    store_on(&pool, WAYS[0]).await;
    let versions: i64 =
        sqlx::query_scalar("SELECT count(*) FROM idempotency_migrations").fetch_one(&pool).await.unwrap();
    let newest = (1..).take_while(|version| MySqlStore::schema_sql(*version, None).is_some()).count();
    assert_eq!(usize::try_from(versions).unwrap(), newest);
    // The lock of the migrations is gone with its session: nobody waits.
    tokio::time::timeout(std::time::Duration::from_secs(5), store_on(&pool, WAYS[0])).await.unwrap();
}

// A migration that was cut between its statement and its line in the history runs again.
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_was_cut_is_taken_up_again() {
    let pool = pool_of(2).await;
    store_on(&pool, WAYS[0]).await;
    sqlx::raw_sql("DELETE FROM idempotency_migrations").execute(&pool).await.unwrap();
    let store = store_on(&pool, WAYS[0]).await;
    completed(&store, &request("after", 1), answer("done")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_own_history_is_left_alone() {
    let pool = pool_of(2).await;
    sqlx::raw_sql(
        "CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY); INSERT INTO _sqlx_migrations VALUES (99)",
    )
    .execute(&pool)
    .await
    .unwrap();
    store_on(&pool, WAYS[0]).await;
    let hosts: Vec<i64> = sqlx::query_scalar("SELECT version FROM _sqlx_migrations").fetch_all(&pool).await.unwrap();
    assert_eq!(hosts, [99]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_any_name_is_created_and_used() {
    for way in WAYS {
        let pool = pool_of(2).await;
        let name = format!("App `x`; {}", uuid::Uuid::new_v4());
        let store = builder(&pool, way).schema(&name).build().await.unwrap();
        store.migrate().await.unwrap();
        store.migrate().await.unwrap();
        completed(&store, &request("in a database", 1), answer("done")).await;
        let tables: Vec<String> = sqlx::query_scalar(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = ? ORDER BY table_name",
        )
        .bind(&name)
        .fetch_all(&pool)
        .await
        .unwrap();
        for table in ["idempotency_keys", "idempotency_leases", "idempotency_migrations"] {
            assert!(tables.iter().any(|name| name == table), "{table} is not in {tables:?}");
        }
        // The same key in another database is another key.
        let claim = store.claim(&request("in two databases", 1)).await.unwrap();
        let elsewhere = store_on(&pool, way).await;
        let verdict = elsewhere.claim(&request("in two databases", 1)).await.unwrap();
        assert!(matches!(verdict, idempotency::store::Verdict::Claimed(_)), "{way:?}");
        drop((claim, verdict));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sql_can_be_had_for_a_hosts_own_history() {
    let pool = pool_of(2).await;
    let sql = MySqlStore::schema_sql(1, None).unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&pool).await.unwrap();
    let store = MySqlStore::new(pool).await.unwrap();
    completed(&store, &request("hosted", 1), answer("done")).await;
    assert!(MySqlStore::schema_sql(0, None).is_none());
    assert!(MySqlStore::schema_sql(2, None).unwrap().contains("idempotency_leases"));
    assert!(MySqlStore::schema_sql(usize::MAX, None).is_none());
    assert!(MySqlStore::schema_sql(1, Some("a`b")).unwrap().contains("`a``b`.idempotency_keys"));
}

// A missing table is a matter of set-up, and the layer answers 503: it passes with the deployment.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_before_its_migration_is_an_error_not_a_run() {
    for way in WAYS {
        let pool = pool_of(1).await;
        let store = builder(&pool, way).build().await.unwrap();
        let error = store.claim(&request("early", 1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Setup, "{error:?}");
        let unnamed = builder(&pool, way).schema("").build().await.unwrap_err();
        assert_eq!(unnamed.kind(), ErrorKind::Setup);
    }
    let url = std::env::var("MYSQL_URL").unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    let nowhere = MySqlStore::new(pool_on(server.parse().unwrap(), 1).await).await.unwrap_err();
    assert_eq!(nowhere.kind(), ErrorKind::Setup);
    let read_only = crate::support::mysql::pool_with(options(), 1, "SET SESSION TRANSACTION READ ONLY").await;
    assert_eq!(MySqlStore::new(read_only).await.unwrap_err().kind(), ErrorKind::Setup);
}
