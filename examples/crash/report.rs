//! The table.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::check::Violation;
use crate::schedule::Kind;

/// How many violations are shown.
const SHOWN: usize = 20;

pub struct Report {
    pub title: String,
    pub seed: u64,
    pub lasts: Duration,
    pub operations: u64,
    pub attempts: u64,
    pub told_later: u64,
    pub unanswered: u64,
    pub answers: u64,
    pub replays: u64,
    pub effects: u64,
    /// Of a store that may forget.
    pub forgotten: Option<u64>,
    pub faults: BTreeMap<Kind, u64>,
    /// Ended by the server, in all.
    pub sessions: u64,
    pub violations: Vec<Violation>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, seed, lasts, .. } = self;
        writeln!(f, "{title}, {:.0} s of faults, seed {seed}", lasts.as_secs_f64())?;
        writeln!(f, "(the seed repeats the schedule of the faults, not the interleaving)\n")?;
        let row = |f: &mut fmt::Formatter<'_>, name: &str, count: u64| writeln!(f, "{name:<44}{count:>10}");
        row(f, "operations", self.operations)?;
        row(f, "requests", self.attempts)?;
        row(f, "  retries: told to come again", self.told_later)?;
        row(f, "  retries: no answer", self.unanswered)?;
        row(f, "  answers", self.answers)?;
        row(f, "    replays among them", self.replays)?;
        row(f, "effects", self.effects)?;
        if let Some(forgotten) = self.forgotten {
            row(f, "operations forgotten by the server", forgotten)?;
        }
        row(f, "faults", self.faults.values().sum())?;
        for (kind, count) in &self.faults {
            row(f, &format!("  {}", kind.name()), *count)?;
            if *kind == Kind::Terminate {
                row(f, "    so many of them", self.sessions)?;
            }
        }
        row(f, "violations", self.violations.len() as u64)?;
        for violation in self.violations.iter().take(SHOWN) {
            write!(f, "{violation}")?;
        }
        if self.violations.len() > SHOWN {
            writeln!(f, "  and {} more", self.violations.len() - SHOWN)?;
        }
        Ok(())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {}", self.what)?;
        self.evidence.iter().try_for_each(|line| writeln!(f, "      {line}"))
    }
}
