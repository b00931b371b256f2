//! A client that finishes its operations, whatever happens on the way: each under one key, with the same bytes.
//!
//! `cargo run --example client -- URL [--operations N] [--pending FILE] [--bearer NAME]` sends operations 1 to N to URL,
//! for example to the `payments` example. What is not answered yet is in FILE, so that the client can be killed and
//! started again: operations in FILE count among the N. One JSON line on stdout for each operation that ends; all else on
//! stderr. Exit 0: all are answered and FILE is gone. Exit 2: some are not, and are in FILE. Exit 1: it could not begin.

#![allow(clippy::disallowed_methods, reason = "the rules against the environment are the library's")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is what the program is for")]
#![allow(unreachable_pub, reason = "a program has no public items")]

mod arguments;
mod ledger;
mod sender;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::StreamExt;

use crate::arguments::Arguments;
use crate::ledger::{Entry, Ledger};
use crate::sender::{Outcome, Sender};

/// How many operations are under way at once.
const AT_ONCE: usize = 8;

/// How long the server keeps a key. The layer's default.
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(left) => {
            eprintln!("client: {left} operations have no answer");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("client: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How many operations are left without an answer.
async fn run() -> Result<usize, Failure> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let mut ledger = Ledger::open(arguments.pending.as_deref())?;
    if let Some(entry) = ledger.entries().iter().find(|entry| *entry.pending.uri() != arguments.url) {
        eprintln!(
            "client: operation {} was begun for {}, and goes on to {}",
            entry.operation,
            entry.pending.uri(),
            arguments.url
        );
    }
    ledger.fill(arguments.operations, &arguments.url)?;

    let entries = ledger.entries().to_vec();
    let sender = Sender::new(&arguments);
    let ledger = Mutex::new(ledger);
    let ends = futures_util::stream::iter(entries).map(|entry| one(&sender, &ledger, entry)).buffer_unordered(AT_ONCE);
    let results: Vec<Result<(), Failure>> = ends.collect().await;
    results.into_iter().collect::<Result<(), Failure>>()?;

    let ledger = ledger.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(ledger.close()?)
}

/// One operation, to its end.
async fn one(sender: &Sender, ledger: &Mutex<Ledger>, entry: Entry) -> Result<(), Failure> {
    let outcome = match entry.pending.resume(RETENTION) {
        Ok(request) => sender.send(request).await,
        Err(error) => {
            eprintln!("client: operation {}: {error}", entry.operation);
            Outcome::default()
        }
    };
    if outcome.is_answered {
        // Before the line, so that no operation has two lines over several runs.
        ledger.lock().unwrap_or_else(std::sync::PoisonError::into_inner).answered(entry.operation)?;
    }
    println!("{}", outcome.line(&entry));
    Ok(())
}
