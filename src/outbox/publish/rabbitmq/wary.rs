//! Events that go out alone, since the broker closed a channel that they shared.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

/// So many suspects are remembered.
const MOST: usize = 1_024;

/// Who is sent alone for a while. The broker closes a channel because of one message and does not say which.
#[derive(Default)]
pub(super) struct Wary(Mutex<State>);

#[derive(Default)]
struct State {
    suspects: VecDeque<Uuid>,
    /// Nothing was confirmed since a channel was closed: it may be all of them, with an exchange that is missing.
    of_all: bool,
}

impl Wary {
    /// Whether this event goes alone. A suspect is told once.
    pub(super) fn of(&self, id: Uuid) -> bool {
        let mut state = self.lock();
        let suspect = state.suspects.iter().position(|one| *one == id);
        if let Some(suspect) = suspect {
            state.suspects.remove(suspect);
        }
        suspect.is_some() || state.of_all
    }

    /// The channel of these was closed.
    pub(super) fn closed(&self, ids: impl Iterator<Item = Uuid>) {
        let mut state = self.lock();
        state.of_all = true;
        state.suspects.extend(ids);
        let beyond = state.suspects.len().saturating_sub(MOST);
        state.suspects.drain(..beyond);
    }

    /// One that went alone was confirmed.
    pub(super) fn confirmed(&self) {
        self.lock().of_all = false;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspects_go_alone_once_and_all_do_until_one_is_confirmed() {
        let wary = Wary::default();
        let id = |n: usize| Uuid::from_u128(n as u128);
        assert!(!wary.of(id(1)));
        wary.closed([id(1), id(2)].into_iter());
        assert!(wary.of(id(1)) && wary.of(id(7)));
        wary.confirmed();
        assert!(wary.of(id(2)) && !wary.of(id(1)) && !wary.of(id(2)) && !wary.of(id(7)));

        wary.closed((0..MOST + 10).map(id));
        wary.confirmed();
        assert!(!wary.of(id(9)) && wary.of(id(10)) && wary.of(id(MOST + 9)), "the last ones are remembered");
    }
}
