//! Asks before something is changed.

use std::io::{BufRead, Write};

use crate::arguments::Arguments;
use crate::failure::Failure;

/// Goes on after `--yes`, or after a person has said yes.
pub(crate) fn confirmed(arguments: &Arguments, what: &str) -> Result<(), Failure> {
    if arguments.yes {
        return Ok(());
    }
    eprint!("{what} [y/N] ");
    // Whoever cannot be asked has not said yes.
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    let _ = std::io::stdin().lock().read_line(&mut line);
    if matches!(line.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure::Refused("not confirmed (say y, or give --yes)".to_owned()))
}
