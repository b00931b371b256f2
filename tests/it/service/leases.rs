//! The reference service with keys as leases: the handler's own transaction, and ids that all attempts share.

use std::process::Command;
use std::time::{Duration, Instant};

use super::crash::kills_under_load_leave_one_effect_an_operation;
use super::duplicates::{
    another_body_is_refused_while_the_first_is_running, fifty_identical_requests_make_one_payment,
    two_processes_share_their_keys,
};
use super::{Engine, LEASE};
use crate::support::redis;
use crate::support::service::example;

pub fn cluster() -> String {
    let nodes: Vec<_> = redis::cluster_urls().iter().map(|url| url.replace("redis://", "")).collect();
    format!("redis-cluster://{}", nodes.join(","))
}

macro_rules! leased {
    ($($test:ident: $run:path, $engine:expr;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                let _calm = redis::calm().await;
                $run($engine).await;
            }
        )*
    };
}

// H20, H21, H22, case C01, C04, C12: the same tests as with keys in the claim's transaction.
leased! {
    fifty_by_leases_on_sqlite: fifty_identical_requests_make_one_payment, Engine::sqlite().keys("lease");
    fifty_by_leases_on_postgres: fifty_identical_requests_make_one_payment, Engine::postgres().await.keys("lease");
    fifty_by_leases_on_mariadb: fifty_identical_requests_make_one_payment, Engine::mysql().await.keys("lease");
    fifty_by_redis: fifty_identical_requests_make_one_payment, Engine::postgres().await.keys(&redis::url());
    fifty_in_memory: fifty_identical_requests_make_one_payment, Engine::sqlite().keys("memory");
    another_body_by_leases: another_body_is_refused_while_the_first_is_running, Engine::sqlite().keys("lease");
    another_body_by_redis: another_body_is_refused_while_the_first_is_running, Engine::sqlite().keys(&redis::url());
    processes_by_leases_on_sqlite: two_processes_share_their_keys, Engine::sqlite().keys("lease");
    processes_by_leases_on_postgres: two_processes_share_their_keys, Engine::postgres().await.keys("lease");
    processes_by_redis: two_processes_share_their_keys, Engine::sqlite().keys(&redis::url());
    processes_by_redis_on_mariadb: two_processes_share_their_keys, Engine::mysql().await.keys(&redis::url());
    processes_by_a_cluster: two_processes_share_their_keys, Engine::postgres().await.keys(&cluster());
    outcomes_by_leases: what_an_answer_means, Engine::sqlite().keys("lease");
    outcomes_by_redis: what_an_answer_means, Engine::postgres().await.keys(&redis::url());
    a_kill_by_leases_on_sqlite: a_killed_attempt_is_followed, Engine::sqlite().keys("lease");
    a_kill_by_leases_on_postgres: a_killed_attempt_is_followed, Engine::postgres().await.keys("lease");
    a_kill_by_redis: a_killed_attempt_is_followed, Engine::sqlite().keys(&redis::url());
    kills_by_leases_on_sqlite: kills_under_load_leave_one_effect_an_operation, Engine::sqlite().keys("lease");
    kills_by_leases_on_postgres: kills_under_load_leave_one_effect_an_operation, Engine::postgres().await.keys("lease");
    kills_by_leases_on_mariadb: kills_under_load_leave_one_effect_an_operation, Engine::mysql().await.keys("lease");
    kills_by_redis: kills_under_load_leave_one_effect_an_operation, Engine::postgres().await.keys(&redis::url());
}

// H32: a refusal of the card is final, trouble of the network is not, and neither leaves a row.
async fn what_an_answer_means(engine: Engine) {
    let service = engine.start("127.0.0.1:0", 5);
    let client = engine.client();
    for (card, status, is_final) in [("declined", 402, true), ("unavailable", 503, false), ("panic", 500, false)] {
        for retry in [false, true] {
            let reply = client.pay(&service.address, card, 5, card).await.unwrap();
            assert_eq!((reply.status.as_u16(), reply.is_replay()), (status, is_final && retry), "{card}");
        }
    }
    assert!(client.amounts(&service.address).await.is_empty());
}

// S21: after the lease, not before, and by the next request.
async fn a_killed_attempt_is_followed(engine: Engine) {
    let service = engine.start("127.0.0.1:0", 5);
    let (client, address) = (engine.client(), service.address.clone());
    let cut = tokio::spawn({
        let (client, address) = (client.clone(), address.clone());
        async move { client.pay(&address, "killed", 7, "slow:900").await }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    service.kill();
    let killed = Instant::now();
    assert!(cut.await.unwrap().is_none(), "the answer came before the kill");
    let _service = engine.start(&address, 5);
    let lease = Duration::from_secs(LEASE.parse().unwrap());
    let reply = loop {
        let reply = client.pay(&address, "killed", 7, "slow:900").await.unwrap();
        if reply.status != 409 {
            break reply;
        }
        assert!(reply.headers.contains_key("retry-after"), "{reply:?}");
        assert!(killed.elapsed() < lease * 5, "nobody followed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!((reply.status.as_u16(), reply.is_replay()), (201, false));
    assert_eq!(client.amounts(&address).await, [7]);
}

#[test]
fn keys_that_cannot_be_read_are_not_shown() {
    let program = Command::new(example("payments"))
        .envs([("LISTEN", "127.0.0.1:0"), ("KEYS", "rediss://:secret@127.0.0.1")])
        .output()
        .unwrap();
    assert!(!program.status.success());
    let said = String::from_utf8_lossy(&program.stderr);
    assert!(said.contains("KEYS must be lease") && !said.contains("secret"), "{said}");
}
