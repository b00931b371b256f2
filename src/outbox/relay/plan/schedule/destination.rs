//! One destination: whether it can be asked, and whose turn it is there.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::super::{Breaker, LaneName, Window};
use super::{Counts, Destined};

/// A lane that waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Turn {
    pub(super) bucket: u8,
    pub(super) lane: LaneName,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Destination {
    pub(super) destined: Destined,
    pub(super) window: Window,
    pub(super) breaker: Breaker,
    pub(super) paused: bool,
    pub(super) paused_keys: BTreeSet<Arc<str>>,
    /// Acks so far: whether it worked while an event was out.
    pub(super) acks: u64,
    pub(super) counts: Counts,
    pub(super) ready: VecDeque<Turn>,
    /// Lanes whose next row goes carefully, until it may.
    pub(super) careful: VecDeque<Turn>,
    /// The last answer of any kind.
    pub(super) heard: Duration,
}

impl Destination {
    pub(super) fn new(destined: Destined, window: Window) -> Self {
        Self {
            breaker: Breaker::new(destined.breaker),
            destined,
            window,
            paused: false,
            paused_keys: BTreeSet::new(),
            acks: 0,
            counts: Counts::default(),
            ready: VecDeque::new(),
            careful: VecDeque::new(),
            heard: Duration::ZERO,
        }
    }

    /// Whether its rows are better left in the table now.
    pub(super) fn is_away(&self, now: Duration) -> bool {
        // One that is to be tried again needs an event to be tried with.
        self.paused || !self.breaker.allows(now) || self.is_stalled(now)
    }

    /// Full, and silent: others shall not wait for it.
    fn is_stalled(&self, now: Duration) -> bool {
        self.window.is_full() && now.saturating_sub(self.heard) > SILENT
    }

    pub(super) fn may_send(&self, now: Duration) -> bool {
        !self.paused && self.breaker.allows(now) && !self.window.is_full()
    }

    pub(super) fn is_paused(&self, lane: &LaneName) -> bool {
        lane.key().is_some_and(|key| self.paused_keys.contains(key))
    }
}

const SILENT: Duration = Duration::from_secs(1);
