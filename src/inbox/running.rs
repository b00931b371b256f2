//! What runs in this process (M3): a second delivery is told so at once, without a connection. A short cut and never the
//! authority: between processes the database decides.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::MessageId;

/// The messages of one consumer that run here.
#[derive(Debug, Default)]
pub(super) struct Table(Mutex<HashSet<MessageId>>);

/// A message's place in the table, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    table: Arc<Table>,
    id: MessageId,
}

impl Table {
    /// `None`: it runs already.
    pub(super) fn enter(self: &Arc<Self>, id: &MessageId) -> Option<Place> {
        self.lock().insert(id.clone()).then(|| Place { table: Arc::clone(self), id: id.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<MessageId>> {
        // Nothing panics under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // M3
    #[test]
    fn a_message_has_one_place() {
        let table = Arc::new(Table::default());
        let (one, two) = (MessageId::new("s", "1").unwrap(), MessageId::new("s", "2").unwrap());
        let place = table.enter(&one).unwrap();
        assert!(table.enter(&one).is_none());
        assert!(table.enter(&two).is_some());
        drop(place);
        assert!(table.enter(&one).is_some());
    }
}
