//! The reference service under the probe, as anybody would run it (Q8).

use std::process::Command;

use super::Engine;
use crate::support::service::example;

fn probe(engine: &Engine) -> (Option<i32>, serde_json::Value, String) {
    let service = engine.start("127.0.0.1:0", 20);
    let output = Command::new(example("probe"))
        .args([&format!("http://{}", service.address), "--header", "Authorization: Bearer probe", "--json"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), serde_json::from_str(&text).unwrap(), text)
}

fn holds_everything(engine: &Engine) {
    let (code, report, text) = probe(engine);
    assert_eq!((code, &report["passed"]), (Some(0), &true.into()), "{text}");
    let verdicts = report["findings"].as_array().unwrap();
    assert!(verdicts.len() >= 20 && verdicts.iter().all(|finding| finding["verdict"] == "holds"), "{text}");
}

#[test]
fn the_service_on_sqlite_passes_the_probe() {
    holds_everything(&Engine::sqlite());
}

#[tokio::test]
async fn the_service_on_postgres_passes_the_probe() {
    holds_everything(&Engine::postgres().await);
}

#[tokio::test]
async fn the_service_on_mariadb_passes_the_probe() {
    holds_everything(&Engine::mysql().await);
}

#[tokio::test]
async fn the_service_with_its_keys_as_leases_passes_the_probe() {
    holds_everything(&Engine::postgres().await.keys("lease"));
}

#[test]
fn the_probe_says_by_its_exit_code_what_is_wrong() {
    let run = |arguments: &[&str]| Command::new(example("probe")).args(arguments).output().unwrap();
    assert_eq!(run(&[]).status.code(), Some(2));
    assert_eq!(run(&["http://127.0.0.1:1", "--no-such-option"]).status.code(), Some(2));
    assert_eq!(run(&["http://127.0.0.1:1"]).status.code(), Some(3));
    let help = run(&["--help"]);
    assert!(help.status.success() && String::from_utf8(help.stdout).unwrap().contains("--slow-body"));
    // The service refuses who does not say who it is.
    let engine = Engine::sqlite();
    let service = engine.start("127.0.0.1:0", 5);
    let refused = run(&[&format!("http://{}", service.address)]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("401"));
}
