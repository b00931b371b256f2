//! The published ids, computed by a second language (D1).

use std::io::Write;
use std::process::{Command, Stdio};

use idempotency::DeterministicId;

const DOCUMENT: &str = include_str!("../../docs/deterministic_ids.md");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/deterministic_ids.py");

/// Runs the script; its exit code and its lines.
fn python(document: &str) -> (Option<i32>, Vec<String>) {
    let mut child = Command::new("python3")
        .arg(SCRIPT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is missing; `tests/run` installs it");
    child.stdin.take().unwrap().write_all(document.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), lines.lines().map(str::to_owned).collect())
}

// D1
#[test]
fn ids_are_the_same_in_python() {
    let (code, lines) = python(DOCUMENT);
    assert_eq!((code, lines.len()), (Some(0), 10), "{lines:#?}");
    // The last vector, computed here: another process, another language, one id.
    let of_rfc: uuid::Uuid = "2ed6657d-e927-568b-95e1-2665a8aea6a2".parse().unwrap();
    let id = DeterministicId::new("shop.example/invoice").part(of_rfc).part(2026u16).uuid();
    assert_eq!(lines[9], format!("{id} {id}"));
}

#[test]
fn the_script_finds_a_wrong_id() {
    let wrong = DOCUMENT.replacen("| `shop.example/order-line` | `[1]`", "| `shop.example/order-line` | `[2]`", 1);
    assert_ne!(wrong, DOCUMENT);
    assert_eq!(python(&wrong).0, Some(1));
}
