//! The experiment of `examples/crash` on each store, for some seconds, and on stores that are wrong, which it must find out
//! (rule H35 for leases). `cargo run --release --example crash -- --store postgres --minutes 3` is the longer form.

#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "what the library must not do, its tests may"
)]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long there are faults on each store.
const MINUTES: &str = "0.25";

/// Runs it; its exit code, and what it says.
fn crash(words: &[&str]) -> (Option<i32>, String) {
    // Cargo builds the examples beside the tests.
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples/crash");
    assert!(program.exists(), "{} is missing: run `cargo build --example crash`", program.display());
    let output = Command::new(program).args(words).stdin(Stdio::null()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// The number in the row of that name.
fn row(report: &str, name: &str) -> u64 {
    let row = report.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().parse().ok());
    row.unwrap_or_else(|| panic!("no row {name} in {report}"))
}

fn keeps_its_promises(store: &str) {
    let (code, report) = crash(&["--store", store, "--minutes", MINUTES]);
    println!("{report}");
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(row(&report, "violations"), 0);
    // An experiment in which nothing happens proves nothing.
    assert!(row(&report, "operations") >= 50, "{report}");
    assert!(row(&report, "faults") >= 15, "{report}");
    assert!(row(&report, "service killed (SIGKILL)") >= 1, "{report}");
}

fn is_found_out(mistake: &str, as_what: &str) {
    let started = Instant::now();
    let (code, report) = crash(&["--wrong", mistake, "--seed", "1"]);
    println!("{report}");
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains(as_what), "found out by something else: {report}");
    assert!(started.elapsed() < Duration::from_secs(90), "it took {:?}", started.elapsed());
}

// H20, H33, case L08: one effect and one answer an operation, whatever dies.
#[test]
fn one_effect_and_one_answer_on_postgres() {
    keeps_its_promises("postgres");
}

#[test]
fn one_effect_and_one_answer_on_mariadb() {
    keeps_its_promises("mariadb");
}

#[test]
fn one_effect_and_one_answer_on_sqlite() {
    keeps_its_promises("sqlite");
}

// H35, S23, S24: one effect under a fence, one at all with a checkpoint, one answer from the first replay on.
#[test]
fn one_effect_under_a_fence_with_leases_on_postgres() {
    keeps_its_promises("postgres-lease");
}

#[test]
fn one_effect_under_a_fence_on_redis() {
    keeps_its_promises("redis");
}

#[test]
fn a_claim_without_a_lock_is_found_out() {
    is_found_out("claim-without-lock", "2 effects instead of 1");
}

#[test]
fn a_commit_before_the_claim_is_found_out() {
    is_found_out("commit-before-claim", "2 effects instead of 1");
}

#[test]
fn a_settlement_without_the_token_is_found_out() {
    is_found_out("settle-without-token", "its answers differ from the first replay on");
}

#[test]
fn a_transaction_that_is_left_open_is_found_out() {
    is_found_out("replay-without-rollback", "a connection of the pool is inside a transaction");
}

#[test]
fn wrong_arguments_are_an_exit_code_of_their_own() {
    for words in [&["--store", "oracle"][..], &["--minutes", "soon"], &["--minutes"], &["--seed", "x"], &["--no-aof"]] {
        assert_eq!(crash(words).0, Some(2), "{words:?}");
    }
}
