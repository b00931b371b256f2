//! Why a command did not do what it was asked.

use std::process::ExitCode;

use idempotency::Error;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("nothing matched")]
    NothingMatched,
    #[error("{0}")]
    Usage(String),
    #[error("refused: {0}")]
    Refused(String),
    #[error("{}", with_causes(.0))]
    Store(#[from] Error),
    /// The database could not be reached.
    #[error("the database cannot be reached: {0}")]
    Database(#[from] sqlx::Error),
    #[error("the output cannot be written: {0}")]
    Output(std::io::Error),
}

impl Failure {
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::NothingMatched => 1,
            Self::Usage(_) => 2,
            Self::Refused(_) => 3,
            Self::Store(_) | Self::Database(_) | Self::Output(_) => 4,
        })
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        // Some say what has caused them already.
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}
