//! The published buckets, computed by a second language.

use std::io::Write;
use std::process::{Command, Stdio};

use idempotency::outbox::Bucket;

const DOCUMENT: &str = include_str!("../../../docs/outbox_buckets.md");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/outbox_buckets.py");

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

// M22: the number of buckets and what is in which is part of the schema.
#[test]
fn buckets_are_the_same_in_python() {
    assert_eq!(Bucket::COUNT, 64);
    let (code, lines) = python(DOCUMENT);
    assert_eq!((code, lines.len()), (Some(0), 10), "{lines:#?}");
    let mut vectors = 0;
    for row in DOCUMENT.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('`').collect();
        let destination: String = serde_json::from_str(cells[1]).unwrap();
        let key: Option<String> = serde_json::from_str(cells[3]).unwrap();
        let bucket = Bucket::of(&destination, key.as_deref(), &cells[5].parse().unwrap());
        assert_eq!(format!(" | {} |", bucket.number()), cells[6], "{row}");
        vectors += 1;
    }
    assert_eq!(vectors, 10);
}

#[test]
fn the_script_finds_a_wrong_bucket() {
    let wrong = DOCUMENT.replacen("`\"customer-7\"`", "`\"customer-8\"`", 1);
    assert_ne!(wrong, DOCUMENT);
    assert_eq!(python(&wrong).0, Some(1));
}

// M22: keys spread over all of them.
#[test]
fn every_bucket_is_used() {
    let mut used = [0_u32; 64];
    for n in 0..64_000 {
        used[usize::from(Bucket::of("d", Some(&n.to_string()), &uuid::Uuid::nil()).number())] += 1;
    }
    assert!(used.iter().all(|used| (800..1_200).contains(used)), "{used:?}");
}
