//! The operator's tool: looks at keys and events that are stuck, and changes what only a person can decide.
//!
//! Exit codes: 0 done, 1 nothing matched, 2 wrong usage, 3 refused, 4 the store failed.

mod arguments;
mod change;
mod confirm;
mod connect;
mod events;
mod failure;
mod look;
mod messages;
mod output;
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
use crate::look::Named;
use crate::place::Place;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // clap leaves with 2 itself.
    let arguments = Arguments::parse();
    match run(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::remark(format_args!("idempotency: {failure}"));
            failure.exit_code()
        }
    }
}

async fn run(arguments: &Arguments) -> Result<(), Failure> {
    // Wrong usage is told before anybody is asked.
    arguments.check()?;
    let (place, named) = (|| Place::open(arguments), |key| Named::read(arguments, key));
    match &arguments.command {
        Command::Find { key } => {
            let named = named(key)?;
            look::find(&place().await?, arguments, &named).await
        }
        Command::ListStuck { older_than, limit } => {
            look::list_stuck(&place().await?, arguments, *older_than, *limit).await
        }
        Command::Release { key, terminate } => {
            let named = named(key)?;
            change::release(&place().await?, arguments, &named, *terminate).await
        }
        Command::Settle { key, answer } => {
            let (named, answer) = (named(key)?, change::answer(answer)?);
            change::settle(&place().await?, arguments, &named, answer).await
        }
        Command::Forget { key } => {
            let named = named(key)?;
            change::forget(&place().await?, arguments, &named).await
        }
        Command::Stats { exact } => stats::stats(&place().await?, arguments, *exact).await,
        Command::Purge(wanted) => purge::purge(arguments, wanted).await,
        Command::Migrate => schema::migrate(&place().await?, arguments).await,
        Command::Schema { engine, version } => schema::print(arguments, *engine, *version),
        Command::Outbox(command) => messages::outbox(arguments, command).await,
        Command::Inbox(command) => messages::inbox(arguments, command).await,
    }
}
