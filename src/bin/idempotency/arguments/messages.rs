//! The part of the command line that is about messages.

use std::time::Duration;

use clap::{Args, Subcommand};
use idempotency::outbox::DeadLetters;
use uuid::Uuid;

use super::time;

#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// Counts events, each count up to 10000, and shows what is paused.
    Stats,
    /// Shows failing and blocked events with their ids, blocked ones first; with --dead, dead letters.
    List {
        /// Dead letters, not failing events.
        #[arg(long)]
        dead: bool,
        #[command(flatten)]
        which: Filter,
        /// So many at most, the oldest first.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
    },
    /// Holds back all events of a destination, or of one key of it, for every relay of every process.
    ///
    /// The pause is kept in the database: relays see it within some seconds, and a restart does not end it.
    Pause(Where),
    /// Ends a pause. 1 where there is none.
    Resume(Where),
    /// Has events published anew: failing ones at their place, dead letters at the end of their key.
    Redrive(EventArguments),
    /// Drops events for good: a failing one, so that its key goes on, or dead letters.
    Discard(EventArguments),
}

#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    /// Counts the marks of processed messages, of all consumers.
    ///
    /// A count goes no further than 10000 rows and says so; what lies beyond is the database's own estimate, where it has
    /// one.
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
    /// Ids of failing events or dead letters. 1 where one of them is neither.
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<Uuid>,
    #[command(flatten)]
    pub(crate) which: Filter,
    /// All dead letters.
    #[arg(long)]
    pub(crate) all: bool,
    /// So many dead letters at most, the oldest first.
    #[arg(long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true)]
    pub(crate) limit: u32,
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
