//! Looks through all records of all servers.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use redis::Value;

use super::fault::fault;
use super::link::Open;
use super::reply::unreadable;
use super::{RedisStore, connection::Node, entry};
use crate::error::Error;
use crate::policy::State;
use crate::store::stats::ByState;
use crate::store::{Count, Entry, KeyStats};

/// How many names one step looks at: well under a millisecond of the server's time.
const STEP: usize = 500;
/// How many steps a server is asked for at most.
const STEPS: usize = 2000;

impl RedisStore {
    /// The oldest `limit` records that wait for somebody.
    pub(super) async fn scan(&self, older_than: Duration, limit: usize) -> Result<Vec<Entry>, Error> {
        let mut open = self.link.open().await?;
        let nodes = open.connection.nodes().await;
        let nodes = self.link.seen(&open, nodes).map_err(|error| fault(&error))?;
        let mut found = Vec::new();
        for node in nodes {
            let mut cursor = "0".to_owned();
            for _ in 0..STEPS {
                let (next, names) = self.names(&mut open, &node, &cursor).await?;
                let read = self.read(&mut open, &node, names).await?;
                found.extend(read.into_iter().filter(|entry| waits(entry, older_than)));
                // Of many only the oldest are kept, so that the list stays small.
                if found.len() > limit.saturating_mul(2).max(STEP) {
                    keep_oldest(&mut found, limit);
                }
                cursor = next;
                if cursor == "0" {
                    break;
                }
            }
        }
        keep_oldest(&mut found, limit);
        Ok(found)
    }

    /// One step through a server's names, and where the next one begins.
    async fn names(&self, open: &mut Open, node: &Node, cursor: &str) -> Result<(String, Vec<String>), Error> {
        let mut pipeline = redis::pipe();
        let pattern = format!("{}:{{*}}", escaped(&self.prefix));
        pipeline.cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(STEP);
        let answer = open.connection.pipeline(pipeline, node).await;
        let mut answer = self.link.seen(open, answer).map_err(|error| fault(&error))?;
        redis::from_redis_value(answer.pop().ok_or_else(unreadable)?).map_err(|error| fault(&error.into()))
    }

    /// How the records stand, each counted once, however often the server names it.
    pub(super) async fn count(&self, most: u64) -> Result<KeyStats, Error> {
        let mut open = self.link.open().await?;
        let nodes = open.connection.nodes().await;
        let nodes = self.link.seen(&open, nodes).map_err(|error| fault(&error))?;
        let steps = if most == u64::MAX { usize::MAX } else { STEPS };
        let (hasher, mut known, mut by_state, mut whole) =
            (RandomState::new(), HashSet::new(), ByState::default(), true);
        let mut counted = 0;
        for node in nodes {
            let mut cursor = "0".to_owned();
            let mut left = steps;
            loop {
                if left == 0 || counted >= most {
                    whole = false;
                    break;
                }
                left -= 1;
                let (next, mut names) = self.names(&mut open, &node, &cursor).await?;
                names.retain(|name| known.insert(hasher.hash_one(name)));
                for entry in self.read(&mut open, &node, names).await? {
                    counted += 1;
                    by_state.add(entry.state);
                }
                cursor = next;
                if cursor == "0" {
                    break;
                }
            }
        }
        let mut stats = KeyStats::empty();
        let count = |number| if whole { Count::Exactly(number) } else { Count::AtLeast(number) };
        by_state.report(&mut stats, count);
        stats.records = count(counted);
        Ok(stats)
    }

    /// These records, as far as they are live.
    async fn read(&self, open: &mut Open, node: &Node, names: Vec<String>) -> Result<Vec<Entry>, Error> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = redis::pipe();
        pipeline.cmd("TIME");
        for name in names {
            pipeline.cmd("HMGET").arg(name).arg(&entry::FIELDS[..]).arg(entry::STATUS);
        }
        let answers = open.connection.pipeline(pipeline, node).await;
        let mut answers = self.link.seen(open, answers).map_err(|error| fault(&error))?.into_iter();
        let now = entry::instant(answers.next().unwrap_or(Value::Nil))?;
        let mut found = Vec::new();
        for fields in answers {
            // One record that cannot be read must not hide the others.
            if let Ok(Some(entry)) = entry::read(now, fields) {
                found.push(entry);
            }
        }
        Ok(found)
    }
}

fn waits(entry: &Entry, older_than: Duration) -> bool {
    match entry.state {
        State::Lapsed | State::Unknown | State::Orphaned => true,
        State::Running => entry.age >= older_than,
        State::Completed => false,
    }
}

fn keep_oldest(found: &mut Vec<Entry>, limit: usize) {
    found.sort_by_key(|entry| std::cmp::Reverse(entry.age));
    found.truncate(limit);
}

/// A prefix as a pattern that means itself.
fn escaped(prefix: &str) -> String {
    prefix.chars().flat_map(|c| "\\[]?*^".contains(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_no_pattern() {
        assert_eq!(escaped("a*b[c]?\\"), "a\\*b\\[c\\]\\?\\\\");
        assert_eq!(escaped("plain:1"), "plain:1");
    }
}
