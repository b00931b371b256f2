//! What a request costs the server, and what it does not leave there (S10).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use idempotency::store::Isolation;

use crate::support::app::send;
use crate::support::mysql::{
    WAYS, Way, assert_is_in_order, builder, create_effects, effects, new_database, options, pool_on, pool_with,
    store_on, write_effect,
};
use crate::support::mysql_proxy::Proxy;
use crate::support::proxy::Then;

/// The commands of a first request and of a replay, on warm connections, until their answers.
async fn commands_of(way: Way) -> [Vec<String>; 2] {
    let database = new_database().await;
    let direct = pool_on(options().database(&database), 2).await;
    store_on(&direct, way).await;
    create_effects(&direct).await;
    let proxy = Proxy::start(&options()).await;
    let pool = pool_on(proxy.options(&options()).database(&database), 1).await;
    let store = builder(&pool, way).build().await.unwrap();
    let app = effects(store, |tx| async move {
        drop(tx);
        StatusCode::CREATED
    });
    // Each statement is prepared once a connection.
    assert_eq!(send(&app, Some("warm"), "{}").await.status, 201);
    assert!(send(&app, Some("warm"), "{}").await.is_replay());
    let commands = Arc::new(Mutex::new(Vec::new()));
    let mut all = Vec::new();
    for replay in [false, true] {
        // What the pool does when a connection comes back is not ours, and not in the request's time.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let seen = Arc::clone(&commands);
        proxy.judge(move |command| {
            let text = String::from_utf8_lossy(command.payload).into_owned();
            seen.lock().unwrap().push(match command.kind {
                3 => text,
                22 => "prepare".to_owned(),
                23 => "execute".to_owned(),
                14 => "ping".to_owned(),
                other => format!("command {other}"),
            });
            Then::Forward
        });
        assert_eq!(send(&app, Some("counted"), "{}").await.is_replay(), replay);
        tokio::time::sleep(Duration::from_millis(100)).await;
        all.push(std::mem::take(&mut *commands.lock().unwrap()));
    }
    all.try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_request_takes_three_round_trips_on_mariadb() {
    let [first, replay] = commands_of(Way::NoWait).await;
    assert!(first[0].starts_with("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION"), "{first:?}");
    assert_eq!(first[1..3], ["execute", "execute"], "{first:?}");
    // Once the answer is out: what sqlx does with a transaction that it believes open.
    assert_eq!(first[3..], ["ROLLBACK", "ping"], "{first:?}");
    assert!(replay[0].starts_with("SET TRANSACTION"), "{replay:?}");
    assert_eq!(replay[1], "execute", "{replay:?}");
    assert_eq!(replay[2], "ROLLBACK", "{replay:?}");
    assert!(replay[3].contains("SET SESSION TRANSACTION READ WRITE"), "{replay:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_request_takes_four_round_trips_with_a_named_lock() {
    let [first, replay] = commands_of(Way::NamedLock).await;
    assert!(first[0].contains("DO GET_LOCK('idem:"), "{first:?}");
    assert_eq!(first[1..3], ["execute", "execute"], "{first:?}");
    assert!(
        first[3].contains("COMMIT; SET autocommit = 1; SET SESSION TRANSACTION READ WRITE; DO RELEASE_LOCK('idem:"),
        "{first:?}"
    );
    assert_eq!(first[4..], ["ROLLBACK", "ping"], "{first:?}");
    assert_eq!(replay[1..3], ["execute", "execute"], "{replay:?}");
    assert_eq!(replay[3], "ROLLBACK", "{replay:?}");
    assert!(replay[4].contains("RELEASE_LOCK"), "{replay:?}");
}

// S10: a pool that keeps no prepared statements leaves none on the server.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_statement_cache_no_statement_stays_behind() {
    for way in WAYS {
        let database = new_database().await;
        let pool = pool_on(options().database(&database).statement_cache_capacity(0), 1).await;
        let store = store_on(&pool, way).await;
        create_effects(&pool).await;
        for status in [201, 402, 500] {
            let app = effects(store.clone(), move |tx| async move {
                drop(tx);
                StatusCode::from_u16(status).unwrap()
            });
            for _ in 0..2 {
                assert_eq!(send(&app, Some(&format!("cacheless {status}")), "{}").await.status, status);
            }
        }
        let mut connection = pool.acquire().await.unwrap();
        let status: Vec<(String, String)> =
            sqlx::query_as("SHOW SESSION STATUS WHERE Variable_name IN ('Com_stmt_prepare', 'Com_stmt_close')")
                .fetch_all(&mut *connection)
                .await
                .unwrap();
        let of = |name: &str| status.iter().find(|(n, _)| n == name).unwrap().1.parse::<u64>().unwrap();
        // The one that asks is still open.
        assert_eq!(of("Com_stmt_prepare"), of("Com_stmt_close") + 1, "{way:?} {status:?}");
        assert!(of("Com_stmt_prepare") > 6);
    }
}

// S12: the claim's own isolation level, whatever the session's is, and the session is as it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_brings_its_own_settings_and_takes_them_with_it() {
    for way in WAYS {
        let options = options().database(&new_database().await);
        let pool = pool_with(options, 1, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ").await;
        store_on(&pool, way).await;
        create_effects(&pool).await;
        for (isolation, name) in [
            (Isolation::ReadCommitted, "READ COMMITTED"),
            (Isolation::RepeatableRead, "REPEATABLE READ"),
            (Isolation::Serializable, "SERIALIZABLE"),
        ] {
            let store = builder(&pool, way).isolation(isolation).build().await.unwrap();
            let app = effects(store, move |mut tx| async move {
                // It is shown once it has written, in a picture that may be 100 ms old.
                write_effect(&mut tx, "one").await.unwrap();
                tokio::time::sleep(Duration::from_millis(200)).await;
                let level: String = sqlx::query_scalar(
                    "SELECT trx_isolation_level FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = CONNECTION_ID()",
                )
                .fetch_one(&mut *tx)
                .await
                .unwrap();
                assert_eq!(level, name);
                StatusCode::CREATED
            });
            for key in [Some(name), None] {
                assert_eq!(send(&app, key, "{}").await.status, 201, "{way:?} {name}");
                let mut connection = pool.acquire().await.unwrap();
                assert_is_in_order(&mut connection).await;
                let level: String =
                    sqlx::query_scalar("SELECT @@tx_isolation").fetch_one(&mut *connection).await.unwrap();
                assert_eq!(level, "REPEATABLE-READ");
            }
        }
    }
}
