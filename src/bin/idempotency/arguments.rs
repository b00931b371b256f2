//! The command line.

mod check;
mod messages;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use messages::{EventArguments, InboxCommand, OutboxCommand, Where};

/// A command's own options stand before these in its help.
const EVERYWHERE: &str = "Options of all commands";

/// Looks after idempotency keys, outbox and inbox: finds what is stuck, frees or settles it, purges what has expired.
///
/// Exit codes: 0 done, 1 nothing matched, 2 wrong usage, 3 refused, 4 the store failed.
#[derive(Debug, Parser)]
#[command(
    name = "idempotency",
    version,
    after_help = "Examples:
  export DATABASE_URL=postgres://localhost/app
  idempotency list-stuck
  idempotency --scope alice find order-7
  idempotency --store redis://localhost stats
  idempotency help settle"
)]
pub(crate) struct Arguments {
    /// The database of the keys: sqlite:FILE, postgres://… or mysql://… A password is better given by DATABASE_URL: other users
    /// of the machine see what is on a command line.
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) database: Option<String>,
    /// Keys on a Redis server instead: redis://… or redis-cluster://HOST:PORT[,HOST:PORT…]
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// The prefix of keys on Redis, where it is not `idempotency`.
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    /// Keys that are leases in the database's table, not in the claims' own transactions.
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub(crate) leases: bool,
    /// The schema of the tables (Postgres), or their database (MySQL).
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "NAME")]
    pub(crate) schema: Option<String>,
    /// For one key: whose it is, as the service's scope names the caller, or as lists show it. By default the scope that all callers
    /// share.
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "TEXT")]
    pub(crate) scope: Option<String>,
    /// Prints JSON.
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub(crate) json: bool,
    /// Does not ask before something is changed.
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub(crate) yes: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows the records of a key.
    #[command(after_help = "Examples:
  idempotency find order-7
  idempotency --scope alice find order-7 --endpoint 'POST /payments'")]
    Find {
        #[command(flatten)]
        key: KeyArguments,
    },
    /// Lists what waits for somebody: lapsed, unknown and orphaned keys, and what has been running for long.
    ///
    /// A running key of a transactional store on Postgres is a row that nobody else can see yet: its place in the list is
    /// taken by the database session that holds it, with its process id, age and client.
    #[command(after_help = "Example: idempotency list-stuck --older-than 15m")]
    ListStuck {
        /// How long something may have been running: 90s, 15m, 2h, 1d.
        #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time)]
        older_than: Duration,
        /// So many at most, the oldest first.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Frees a key of which it is known that its operation was not done: the next request with it runs.
    ///
    /// A key that an attempt is running is refused (3).
    #[command(after_help = "Examples:
  idempotency --scope alice release order-7
  idempotency --scope alice release order-7 --endpoint 'POST /payments' --terminate")]
    Release {
        #[command(flatten)]
        key: KeyArguments,
        /// Where a database session holds the key (Postgres): ends that session, which undoes its work.
        #[arg(long)]
        terminate: bool,
    },
    /// Gives a key the answer of its operation, where it is known what became of it: later requests get this answer.
    ///
    /// A key that an attempt is running, or that has an answer, is refused (3).
    #[command(after_help = "Example: idempotency --scope alice settle order-7 --status 201 \\
  --header 'content-type: application/json' --body answer.json")]
    Settle {
        #[command(flatten)]
        key: KeyArguments,
        #[command(flatten)]
        answer: AnswerArguments,
    },
    /// Deletes the record of a key that nobody runs, a finished one too: the key is new again.
    #[command(after_help = "Example: idempotency --scope alice forget order-7")]
    Forget {
        #[command(flatten)]
        key: KeyArguments,
    },
    /// Counts the records: all, expired ones, and those of each state.
    ///
    /// A count goes no further than 10000 rows and says so; what lies beyond is the database's own estimate, where it has
    /// one.
    #[command(after_help = "Examples:
  idempotency stats
  idempotency --leases stats --exact
  idempotency --store redis://localhost stats")]
    Stats {
        /// Counts everything. This reads the whole table, which takes minutes where it is large.
        #[arg(long)]
        exact: bool,
    },
    /// Deletes what has expired from all tables, in small batches: keys, leases, and the inbox's marks and failures.
    ///
    /// Dead letters of the outbox go where --dead-letters says so. What expires meanwhile is for the next run.
    #[command(after_help = "Examples:
  idempotency purge --yes
  idempotency purge --yes --dead-letters 30d")]
    Purge(PurgeArguments),
    /// Creates the tables, or brings them to the newest version. Safe to repeat, and by several at once.
    #[command(after_help = "Example: idempotency migrate --yes")]
    Migrate,
    /// Prints the SQL of the migrations, for those who apply it by other means. Nothing is connected to.
    #[command(after_help = "Example: idempotency schema --engine postgres | psql -v ON_ERROR_STOP=1 -1")]
    Schema {
        /// The engine, where no database is named.
        #[arg(long)]
        engine: Option<Engine>,
        /// One version only, from 1.
        #[arg(long, value_name = "N")]
        version: Option<usize>,
    },
    /// Looks after events on their way.
    #[command(subcommand)]
    Outbox(OutboxCommand),
    /// Looks at the marks of processed messages.
    #[command(subcommand)]
    Inbox(InboxCommand),
}

#[derive(Debug, Args)]
pub(crate) struct KeyArguments {
    /// The key, as the client sent it, with or without quotes. One that has a comma or a quote in it needs them: '"a,b"'.
    pub(crate) key: String,
    /// The endpoint, such as 'POST /payments'. Needed on Redis, and where a key is used on several.
    #[arg(long, value_name = "'METHOD PATH'")]
    pub(crate) endpoint: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PurgeArguments {
    /// So many rows a statement, 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) batch: u32,
    /// Dead letters of this age and older, too: 12h, 30d. A relay deletes them by itself.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) dead_letters: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct AnswerArguments {
    /// The status of the answer.
    #[arg(long, value_parser = clap::value_parser!(u16).range(200..=599))]
    pub(crate) status: u16,
    /// A header field of the answer.
    #[arg(long = "header", value_name = "'NAME: VALUE'")]
    pub(crate) headers: Vec<String>,
    /// The file with the body of the answer; none: an empty body.
    #[arg(long, value_name = "FILE")]
    pub(crate) body: Option<PathBuf>,
    /// How long the answer is kept from now on, at least a minute.
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = time)]
    pub(crate) retention: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    Sqlite,
    Postgres,
    Mysql,
}

impl Engine {
    /// The engine that a URL names.
    pub(crate) fn of(url: &str) -> Option<Self> {
        match url.split_once(':')?.0 {
            "sqlite" => Some(Self::Sqlite),
            "postgres" | "postgresql" => Some(Self::Postgres),
            "mysql" | "mariadb" => Some(Self::Mysql),
            _ => None,
        }
    }
}

/// A number of seconds, minutes, hours or days.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time: write 90s, 15m, 2h or 1d");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    // More than databases can add to a date is a slip of the pen.
    match u64::from(number) * seconds {
        seconds if seconds > CENTURY => Err(format!("`{text}` is more than a hundred years")),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

const CENTURY: u64 = 100 * 366 * 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_time_is_a_number_with_a_unit() {
        assert_eq!(time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["", "s", "90", "-1s", "1.5h", "9999999999s", "36601d", "1w", "1ü"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
