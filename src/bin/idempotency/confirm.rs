//! Asks before something is changed.

use std::io::{BufRead, IsTerminal, Write};

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::output;

/// Goes on after `--yes`, or after a person has said yes.
pub(crate) fn confirmed(arguments: &Arguments, what: &str) -> Result<(), Failure> {
    if arguments.yes {
        return Ok(());
    }
    let mut screen = std::io::stderr();
    let _ = write!(screen, "{what} [y/N] ");
    let _ = screen.flush();
    let mut line = String::new();
    // Whoever cannot be asked has not said yes.
    let _ = std::io::stdin().lock().read_line(&mut line);
    // What follows begins on a line of its own, also where nobody has typed the end of this one.
    if !std::io::stdin().is_terminal() || !line.ends_with('\n') {
        output::remark("");
    }
    if matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(Failure::Refused("not confirmed (say y, or give --yes)".to_owned()))
}
