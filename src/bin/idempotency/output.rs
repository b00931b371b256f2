//! What the tool says. Whoever reads along may have left: that is no failure, and never a panic.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

use crate::failure::Failure;

/// A line of the result, on stdout.
pub(crate) fn line(text: impl Display) -> Result<(), Failure> {
    match writeln!(std::io::stdout(), "{text}") {
        // As in `… | head -1`.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        _ => Ok(()),
    }
}

/// A line for the person, on stderr.
pub(crate) fn remark(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
