//! The experiment of `examples/crash` on each store, for some seconds, and on stores that are wrong, which it must find out
//! (rule H35 for leases). `cargo run --release --example crash -- --store postgres --minutes 3` is the longer form.

#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "what the library must not do, its tests may"
)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long there are faults on each store.
const MINUTES: &str = "0.25";

fn program() -> Command {
    // Cargo builds the examples beside the tests.
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples/crash");
    assert!(program.exists(), "{} is missing: run `cargo build --example crash`", program.display());
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    command
}

/// Runs it; its exit code, and what it says.
fn crash(words: &[&str]) -> (Option<i32>, String) {
    let output = program().args(words).output().unwrap();
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
    // Longer than by default: some mistakes show once in so many seconds.
    let (code, report) = crash(&["--wrong", mistake, "--seed", "1", "--minutes", "0.4"]);
    println!("{report}");
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains(as_what), "found out by something else: {report}");
    assert!(row(&report, "violations") >= 1, "{report}");
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
fn a_lease_that_is_not_waited_for_is_found_out() {
    is_found_out("take-over-at-once", "it was taken over after");
}

#[test]
fn an_answer_to_another_request_is_found_out() {
    is_found_out("answer-anybody", "201 for another request under a key that is done");
}

#[test]
fn a_transaction_that_is_left_open_is_found_out() {
    is_found_out("replay-without-rollback", "a connection of the pool is inside a transaction");
}

/// Processes whose command line names that folder.
fn processes_of(folder: &Path) -> Vec<String> {
    let lines = Command::new("sh").args(["-c", "cat /proc/[0-9]*/cmdline | tr '\\000' ' '"]).output().unwrap();
    let lines = String::from_utf8_lossy(&lines.stdout).into_owned();
    lines.split_inclusive(' ').filter(|word| word.contains(&*folder.to_string_lossy())).map(str::to_owned).collect()
}

// Interrupted among its faults, it ends services and servers and removes what it has written.
#[test]
fn interrupted_it_leaves_nothing_behind() {
    for store in ["sqlite", "postgres"] {
        let folder = tempfile::tempdir().unwrap();
        // Servers run as somebody else.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        let mut command = program();
        let words = ["--store", store, "--minutes", "5"];
        let mut child = command.args(words).env("TMPDIR", folder.path()).stderr(Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        // Each service names the file with the effects.
        while !processes_of(folder.path()).iter().any(|word| word.contains("crash.sqlite")) {
            assert!(started.elapsed() < Duration::from_secs(60), "{store}: no service has started");
            sleep(Duration::from_millis(50));
        }
        sleep(Duration::from_secs(3));
        let kill = Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap();
        assert!(kill.success());
        assert_eq!(child.wait().unwrap().code(), Some(130), "{store}");
        assert_eq!(processes_of(folder.path()), Vec::<String>::new(), "{store}");
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "{store}: {left:?}");
    }
}

#[test]
fn an_experiment_that_cannot_be_made_is_an_exit_code_of_its_own() {
    let output = program().args(["--store", "sqlite"]).env("TMPDIR", "/proc/none").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn help_is_no_error() {
    let (code, said) = crash(&["--help"]);
    assert_eq!(code, Some(0));
    assert!(said.contains("take-over-at-once"), "{said}");
}

#[test]
fn wrong_arguments_are_an_exit_code_of_their_own() {
    for words in [&["--store", "oracle"][..], &["--minutes", "soon"], &["--minutes"], &["--seed", "x"], &["--no-aof"]] {
        assert_eq!(crash(words).0, Some(2), "{words:?}");
    }
}
