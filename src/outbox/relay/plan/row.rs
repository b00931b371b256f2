//! A pending event as the relay handles it.

use std::sync::Arc;

use uuid::Uuid;

/// Where a row stands: the primary key of the outbox.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// One of 64.
    pub bucket: u8,
    /// Its number in the table.
    pub seq: i64,
}

/// A row with what it carries.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Row<E> {
    /// Where it stands.
    pub place: Place,
    /// The event's id.
    pub id: Uuid,
    /// The publisher's name.
    pub destination: Arc<str>,
    /// What it is ordered by. `None`: nothing; the empty text is a key.
    pub key: Option<Arc<str>>,
    /// Its share of the window, in bytes.
    pub size: usize,
    /// What is published.
    pub event: E,
}

/// What is sent one after the other: the events of one key, or one event that has none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LaneName {
    /// The events of one key at one destination.
    Keyed(Arc<str>, Arc<str>),
    /// An event without a key: the destination and the number of its row.
    Alone(Arc<str>, i64),
}

impl LaneName {
    /// The publisher's name.
    #[must_use]
    pub const fn destination(&self) -> &Arc<str> {
        match self {
            Self::Keyed(destination, _) | Self::Alone(destination, _) => destination,
        }
    }

    /// What its events are ordered by.
    #[must_use]
    pub const fn key(&self) -> Option<&Arc<str>> {
        match self {
            Self::Keyed(_, key) => Some(key),
            Self::Alone(..) => None,
        }
    }
}

impl<E> Row<E> {
    /// The lane that it is sent in.
    #[must_use]
    pub fn lane(&self) -> LaneName {
        let destination = Arc::clone(&self.destination);
        match &self.key {
            Some(key) => LaneName::Keyed(destination, Arc::clone(key)),
            None => LaneName::Alone(destination, self.place.seq),
        }
    }
}
