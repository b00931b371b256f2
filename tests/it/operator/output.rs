//! Whoever reads along may leave, and may not be there at all.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use super::{code, paid, text, tool};
use crate::service::Engine;

/// Runs the tool with this on its standard input.
fn told(url: &str, arguments: &[&str], answer: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_idempotency"))
        .args(arguments)
        .env("DATABASE_URL", url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended before it read.
    let _ = child.stdin.take().unwrap().write_all(answer.as_bytes());
    child.wait_with_output().unwrap()
}

/// Runs the tool where what it prints goes to a pipe that nobody reads.
fn unread(url: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_idempotency"))
        .args(arguments)
        .env("DATABASE_URL", url)
        .stdin(Stdio::null())
        .stdout(writer)
        .output()
        .unwrap();
    (output.status.code(), text(&output))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_leaves_is_no_failure() {
    let engine = Engine::sqlite();
    let url = paid(&engine).await;
    for arguments in [
        &["schema", "--engine", "postgres"][..],
        &["--json", "schema", "--engine", "mysql"],
        &["stats"],
        &["--scope", "alice", "find", "k1"],
        &["outbox", "stats"],
        &["inbox", "stats"],
        &["--yes", "outbox", "pause", "broker"],
        &["--scope", "alice", "--yes", "forget", "k1"],
    ] {
        let (code, said) = unread(&url, arguments);
        assert_eq!((code, said.as_str()), (Some(0), ""), "{arguments:?}");
    }
    // It was done all the same.
    assert_eq!(code(&tool(&url, &["--scope", "alice", "find", "k1"])), 1);
    // Nor is one that reads no errors.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut asked = Command::new(env!("CARGO_BIN_EXE_idempotency"));
    asked.args(["outbox", "resume", "broker"]).env("DATABASE_URL", &url).stdin(Stdio::null());
    assert_eq!(asked.stderr(writer).status().unwrap().code(), Some(3));
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_written_is_told() {
    let output = Command::new(env!("CARGO_BIN_EXE_idempotency"))
        .args(["schema", "--engine", "sqlite"])
        .stdout(File::create("/dev/full").unwrap())
        .output()
        .unwrap();
    assert_eq!((code(&output), text(&output).contains("cannot be written")), (4, true), "{}", text(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_yes_is_yes() {
    let engine = Engine::sqlite();
    let url = paid(&engine).await;
    let forget = ["--scope", "alice", "forget", "k1"];
    for answer in ["", "\n", "n\n", "no\n", "yep\n", "\u{fffd}\n", "n\ny\n"] {
        let output = told(&url, &forget, answer);
        assert_eq!((code(&output), output.stdout.len()), (3, 0), "{answer:?} {}", text(&output));
        assert_eq!(code(&tool(&url, &["--scope", "alice", "find", "k1"])), 0, "{answer:?}");
    }
    // What follows a question begins on a line of its own, also where nobody has ended that line.
    let asked = text(&told(&url, &forget, ""));
    assert!(asked.ends_with("[y/N] \nidempotency: refused: not confirmed (say y, or give --yes)\n"), "{asked}");
    for answer in ["y", "y\n", "Y\r\n", " yes \n", "YES\n"] {
        let output = told(&url, &["outbox", "pause", "broker"], answer);
        assert_eq!(code(&output), 0, "{answer:?} {}", text(&output));
    }
    let json = told(&url, &["--json", "--scope", "alice", "forget", "k1"], "y\n");
    assert_eq!((code(&json), &*json.stdout), (0, &b"{\"forgotten\":true}\n"[..]));
}

/// What is printed is a text for the database's own client.
async fn printed_sql_makes_the_tables(engine: Engine) {
    let url = engine.url();
    let printed = tool(&url, &["schema"]);
    assert_eq!(code(&printed), 0, "{}", text(&printed));
    if let Some(file) = url.strip_prefix("sqlite:") {
        File::create(file).unwrap();
    }
    super::stats::run(&url, String::from_utf8(printed.stdout).unwrap()).await;
    for look in [&["stats"][..], &["--leases", "stats"], &["outbox", "stats"], &["inbox", "stats"]] {
        let output = tool(&url, look);
        assert_eq!(code(&output), 0, "{look:?} {}", text(&output));
    }
}

// S30
#[tokio::test(flavor = "multi_thread")]
async fn printed_sql_makes_the_tables_on_sqlite() {
    printed_sql_makes_the_tables(Engine::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn printed_sql_makes_the_tables_on_postgres() {
    printed_sql_makes_the_tables(Engine::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn printed_sql_makes_the_tables_on_mariadb() {
    printed_sql_makes_the_tables(Engine::mysql().await).await;
}

// The help is where a user begins.
#[test]
fn every_command_has_an_example() {
    let help = |arguments: &[&str]| text(&tool("", &[arguments, &["--help"]].concat()));
    let commands = |text: &str| -> Vec<String> {
        let listed = text.split("\nCommands:\n").nth(1).unwrap_or_default();
        let names =
            listed.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
        names.filter(|name| *name != "help").map(str::to_owned).collect()
    };
    let mut seen = 0;
    for first in commands(&help(&[])) {
        let inner = commands(&help(&[&first]));
        let paths = if inner.is_empty() {
            vec![vec![first.as_str()]]
        } else {
            inner.iter().map(|second| vec![first.as_str(), second.as_str()]).collect()
        };
        for path in paths {
            let text = help(&path);
            assert!(text.contains("\nExample"), "{text}");
            let called = path.join(" ");
            assert!(text.lines().any(|line| line.contains("idempotency ") && line.contains(&called)), "{text}");
            seen += 1;
        }
    }
    assert_eq!(seen, 16);
}
