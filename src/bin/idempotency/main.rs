//! The operator's tool: looks at keys and events that are stuck, and changes what only a person can decide.
//!
//! Exit codes: 0 done, 1 nothing matched, 2 wrong usage, 3 refused, 4 the store failed.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program talks to its user")]

mod arguments;
mod change;
mod confirm;
mod connect;
mod events;
mod failure;
mod look;
mod messages;
mod place;
mod progress;
mod purge;
mod schema;
mod show;
mod stats;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};
use crate::failure::Failure;
use crate::place::Place;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // clap leaves with 2 itself.
    let arguments = Arguments::parse();
    match run(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("idempotency: {failure}");
            failure.exit_code()
        }
    }
}

async fn run(arguments: &Arguments) -> Result<(), Failure> {
    let place = || Place::open(arguments);
    match &arguments.command {
        Command::Find { key } => look::find(&place().await?, arguments, key).await,
        Command::ListStuck { older_than, limit } => {
            look::list_stuck(&place().await?, arguments, *older_than, *limit).await
        }
        Command::Release { key, terminate } => change::release(&place().await?, arguments, key, *terminate).await,
        Command::Settle { key, answer } => change::settle(&place().await?, arguments, key, answer).await,
        Command::Forget { key } => change::forget(&place().await?, arguments, key).await,
        Command::Stats { exact } => stats::stats(&place().await?, arguments, *exact).await,
        Command::Purge { batch } => purge::purge(&place().await?, arguments, *batch).await,
        Command::Migrate => schema::migrate(&place().await?, arguments).await,
        Command::Schema { engine, version } => schema::print(arguments, *engine, *version),
        Command::Outbox(command) => messages::outbox(arguments, command).await,
        Command::Inbox(command) => messages::inbox(arguments, command).await,
    }
}
