//! Checks from outside whether an HTTP service in any language keeps what idempotency keys promise.
//!
//! `cargo run --example probe -- http://127.0.0.1:3000 --header 'Authorization: Bearer probe'` probes the reference service
//! (`cargo run --example payments`). For another one name its path and a body that it accepts, and best one that it takes
//! a while for. The table of what holds goes to stdout; the exit code is 0 if nothing fails, 1 if something does, 2 for
//! wrong arguments, and 3 where the service cannot be probed.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program talks to its user")]
#![allow(unreachable_pub, reason = "a program has no public items")]

mod arguments;

use std::process::ExitCode;

use crate::arguments::Arguments;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(wrong) => {
            eprintln!("{wrong}\n\n{}", arguments::USAGE);
            return ExitCode::from(2);
        }
    };
    let Some(Arguments { probe, json }) = arguments else {
        println!("{}", arguments::USAGE);
        return ExitCode::SUCCESS;
    };
    match probe.run().await {
        Ok(report) => {
            if json {
                println!("{}", report.to_json());
            } else {
                println!("{report}");
            }
            if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(3)
        }
    }
}
