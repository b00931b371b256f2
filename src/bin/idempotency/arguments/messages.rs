//! The part of the command line that is about messages.

use std::time::Duration;

use clap::{Args, Subcommand};
use idempotency::outbox::DeadLetters;
use uuid::Uuid;

use super::time;

#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// Counts events, each count up to 10000, and shows what is paused.
    #[command(after_help = "Example: idempotency outbox stats")]
    Stats,
    /// Shows failing and blocked events with their ids, blocked ones first; with --dead, dead letters.
    #[command(after_help = "Examples:
  idempotency outbox list
  idempotency outbox list --dead --destination broker --older-than 1h")]
    List {
        /// Dead letters, not failing events.
        #[arg(long)]
        dead: bool,
        #[command(flatten)]
        which: Filter,
        /// So many at most, the oldest first.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Holds back all events of a destination, or of one key of it, for every relay of every process.
    ///
    /// The pause is kept in the database: relays see it within some seconds, and a restart does not end it.
    #[command(after_help = "Examples:
  idempotency outbox pause broker
  idempotency outbox pause broker --key customer-7")]
    Pause(Where),
    /// Ends a pause; the exit code is 1 where there is none. Keys that are paused by themselves stay so.
    #[command(after_help = "Example: idempotency outbox resume broker")]
    Resume(Where),
    /// Has events published anew: failing ones at their place, dead letters at the end of their key.
    #[command(after_help = "Examples:
  idempotency outbox redrive 0198c0de-0000-7000-8000-000000000001
  idempotency outbox redrive --destination broker --older-than 1h --dry-run")]
    Redrive(EventArguments),
    /// Drops events for good: a failing one, so that its key goes on, or dead letters.
    #[command(after_help = "Examples:
  idempotency outbox discard 0198c0de-0000-7000-8000-000000000001
  idempotency outbox discard --topic orders --older-than 7d")]
    Discard(EventArguments),
}

#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    /// Counts the marks of processed messages, of all consumers.
    ///
    /// A count goes no further than 10000 rows and says so; what lies beyond is the database's own estimate, where it has
    /// one.
    #[command(after_help = "Example: idempotency inbox stats")]
    Stats {
        /// Counts everything. This reads the whole table, which takes minutes where it is large.
        #[arg(long)]
        exact: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Where {
    /// The destination, as events name it.
    pub(crate) destination: String,
    /// One key of it alone.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
}

/// By id, or dead letters by what they are.
#[derive(Debug, Args)]
pub(crate) struct EventArguments {
    /// Ids of failing events or dead letters, as `outbox list` shows them. The exit code is 1 where one of them is neither.
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<Uuid>,
    #[command(flatten)]
    pub(crate) which: Filter,
    /// All dead letters.
    #[arg(long)]
    pub(crate) all: bool,
    /// So many dead letters at most, the oldest first.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,
    /// Changes nothing, and tells how many dead letters are meant.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Which dead letters are meant.
#[derive(Debug, Default, Args)]
pub(crate) struct Filter {
    /// Dead letters for this destination.
    #[arg(long, value_name = "TEXT")]
    destination: Option<String>,
    /// Dead letters of this topic.
    #[arg(long, value_name = "TEXT")]
    topic: Option<String>,
    /// Dead letters of this type.
    #[arg(long = "type", value_name = "TEXT")]
    kind: Option<String>,
    /// Dead letters of this key.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Dead for so long or longer: 90s, 15m, 2h, 1d.
    #[arg(long, value_name = "TIME", value_parser = time)]
    older_than: Option<Duration>,
}

impl Filter {
    pub(crate) fn letters(&self) -> DeadLetters {
        let mut letters = DeadLetters::all();
        if let Some(destination) = &self.destination {
            letters = letters.destination(destination);
        }
        if let Some(topic) = &self.topic {
            letters = letters.topic(topic);
        }
        if let Some(kind) = &self.kind {
            letters = letters.kind(kind);
        }
        if let Some(key) = &self.key {
            letters = letters.key(key);
        }
        if let Some(age) = self.older_than {
            letters = letters.older_than(age);
        }
        letters
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.letters() == DeadLetters::all()
    }
}
