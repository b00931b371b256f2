//! Shows by experiment what the crate promises: services that are killed, stopped and cut off at random, before a database
//! that is restarted at random, under many clients that retry; and at the end a count of what was done.
//!
//! `cargo run --release --example crash -- --store postgres --minutes 3`. It starts private servers of its own by `tests/run`
//! and stops them. The exit code is 0 if every promise was kept, 1 if one was broken, 2 for wrong arguments, 3 where the
//! experiment could not be made or shows nothing, and 128 and the signal's number where a signal has ended it.
//!
//! - `arguments`, `place`: what is asked for, and what each store promises.
//! - `servers`, `fleet`, `gate`: the database, the services before it, and the proxy between them.
//! - `schedule` is pure: which fault follows which, by the seed. `faults` does them.
//! - `clients`, `ask`, `book`: many operations, each under one key, and what was heard of them.
//! - `service`: the service under test, which is this program again. `effects`: the rows that it writes.
//! - `signals`: what ends it before its time. `clock`: instants as log lines show them.
//! - `evidence`: what is found in the database. `check` is pure: what is wrong with it. `report`: the table.
//! - `wrong`: stores with one mistake each, which must be found out.

#![allow(clippy::disallowed_methods, reason = "the rules against spawning and the environment are the library's")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program talks to its user")]
#![allow(unreachable_pub, reason = "a program has no public items")]

mod arguments;
mod ask;
mod book;
mod check;
mod clients;
mod clock;
mod effects;
mod evidence;
mod experiment;
mod faults;
mod fleet;
mod gate;
mod place;
mod report;
mod schedule;
mod servers;
mod service;
mod signals;
mod wrong;

// The proxies of the tests.
#[allow(clippy::unwrap_used, dead_code, reason = "they are made for tests")]
#[path = "../../tests/it/support/cutter.rs"]
mod cutter;
#[allow(clippy::unwrap_used, dead_code, reason = "they are made for tests")]
#[path = "../../tests/it/support/mysql_proxy.rs"]
mod mysql_proxy;
#[allow(clippy::unwrap_used, dead_code, reason = "they are made for tests")]
#[path = "../../tests/it/support/proxy.rs"]
mod proxy;

use std::error::Error;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::experiment::Ended;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == service::COMMAND).is_some() {
        return match service::run(words).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("crash service: {error}");
                ExitCode::from(3)
            }
        };
    }
    let arguments = match Arguments::parse(words) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            println!("{}", arguments::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprintln!("{wrong}\n\n{}", arguments::USAGE);
            return ExitCode::from(2);
        }
    };
    match experiment::make(&arguments).await {
        Ok(Ended::Reported(report)) => {
            println!("{report}");
            if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Ok(Ended::Interrupted(signal)) => {
            eprintln!("crash: ended by a signal, so nothing was shown");
            ExitCode::from(signal.saturating_add(128))
        }
        Err(error) => {
            eprintln!("crash: {error}");
            ExitCode::from(3)
        }
    }
}
