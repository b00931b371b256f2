//! What is wrong with a command line before anybody is asked.

use super::{Arguments, Command, Engine};
use crate::failure::Failure;

impl Arguments {
    /// An option that has no effect here means that something else is meant: whoever purges `--scope alice` would purge all.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        use Command::{Find, Forget, Inbox, Migrate, Outbox, Purge, Release, Schema, Settle};
        let of_key = matches!(self.command, Find { .. } | Release { .. } | Settle { .. } | Forget { .. });
        let of_database = matches!(self.command, Purge(_) | Migrate | Schema { .. } | Outbox(_) | Inbox(_));
        let of_messages = matches!(self.command, Outbox(_) | Inbox(_));
        let engine = match self.command {
            Schema { engine: Some(engine), .. } => Some(engine),
            _ => self.database.as_deref().filter(|_| self.store.is_none()).and_then(Engine::of),
        };
        let rules = [
            (self.scope.is_some() && !of_key, "--scope is for one key: find, release, settle, forget"),
            (self.prefix.is_some() && self.store.is_none(), "--prefix is for keys on Redis: name the --store"),
            (self.store.is_some() && (self.leases || self.schema.is_some()), "--leases and --schema are for databases"),
            (self.store.is_some() && of_database, "Redis has no tables, and forgets by itself: --store is for keys"),
            (self.leases && of_messages, "--leases is for keys"),
            (self.schema.is_some() && engine == Some(Engine::Sqlite), "SQLite has no schemas"),
        ];
        match rules.iter().find(|(broken, _)| *broken) {
            Some((_, text)) => Err(Failure::usage(*text)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn an_option_that_would_have_no_effect_is_refused() {
        let checked = |line: &str| Arguments::try_parse_from(line.split(' ')).unwrap().check().is_ok();
        for right in [
            "t --database sqlite:a --scope a find k",
            "t --database sqlite:a --leases stats",
            "t --database sqlite:a --leases purge",
            "t --database sqlite:a --store redis://a --prefix p list-stuck",
            "t --database postgres://a --schema app migrate",
            "t --database sqlite:a --schema app schema --engine postgres",
        ] {
            assert!(checked(right), "{right}");
        }
        for wrong in [
            "t --database sqlite:a --scope a purge",
            "t --database sqlite:a --scope a list-stuck",
            "t --database sqlite:a --scope a outbox stats",
            "t --database sqlite:a --prefix p stats",
            "t --store redis://a --leases stats",
            "t --store redis://a purge",
            "t --store redis://a migrate",
            "t --store redis://a inbox stats",
            "t --database sqlite:a --leases outbox stats",
            "t --database sqlite:a --schema app stats",
            "t --schema app schema --engine sqlite",
        ] {
            assert!(!checked(wrong), "{wrong}");
        }
    }
}
