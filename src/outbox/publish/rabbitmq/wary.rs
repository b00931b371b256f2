//! Events that go out alone, since the broker closed a channel that they shared, or did not confirm them with the others.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

/// So many suspects are remembered.
const MOST: usize = 1_024;

/// Who is sent alone for a while. The broker closes a channel because of one message and does not say which; and whatever is
/// slow holds its neighbours up for a moment.
#[derive(Default)]
pub(super) struct Wary(Mutex<State>);

#[derive(Default)]
struct State {
    suspects: VecDeque<Uuid>,
    /// Nothing was confirmed since a channel was closed, and not by a suspect again: it may be all of them, with an exchange
    /// that is missing.
    of_all: bool,
}

impl Wary {
    /// Whether this event goes alone.
    pub(super) fn of(&self, id: Uuid) -> bool {
        let state = self.lock();
        state.of_all || state.suspects.contains(&id)
    }

    /// The broker closed the channel because of one of these. Whoever it was stays alone at every later attempt.
    pub(super) fn closed(&self, ids: impl Iterator<Item = Uuid>) {
        let mut state = self.lock();
        let news = ids.filter(|id| state.remember(*id)).count();
        state.of_all |= news > 0;
    }

    /// These were not confirmed while others were.
    pub(super) fn slow(&self, ids: impl Iterator<Item = Uuid>) {
        let mut state = self.lock();
        ids.for_each(|id| {
            state.remember(id);
        });
    }

    /// This one went alone, and the channel is open still.
    pub(super) fn confirmed(&self, id: Uuid) {
        let mut state = self.lock();
        state.of_all = false;
        state.suspects.retain(|one| *one != id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// As the last one. Returns whether that is news.
    fn remember(&mut self, id: Uuid) -> bool {
        let known = self.suspects.iter().position(|one| *one == id).and_then(|at| self.suspects.remove(at));
        self.suspects.push_back(id);
        let beyond = self.suspects.len().saturating_sub(MOST);
        self.suspects.drain(..beyond);
        known.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspects_go_alone_until_confirmed_and_all_do_until_one_is() {
        let wary = Wary::default();
        let id = |n: usize| Uuid::from_u128(n as u128);
        assert!(!wary.of(id(1)));
        wary.closed([id(1), id(2)].into_iter());
        assert!(wary.of(id(1)) && wary.of(id(7)));
        wary.confirmed(id(1));
        assert!(!wary.of(id(1)) && !wary.of(id(7)));
        // Whatever closes channels is tried again, and must not take neighbours along each second time.
        for _ in 0..3 {
            assert!(wary.of(id(2)) && !wary.of(id(7)), "a suspect says nothing new of others");
            wary.closed([id(2)].into_iter());
        }
        wary.slow([id(4)].into_iter());
        assert!(wary.of(id(4)) && !wary.of(id(7)), "nor does one that is slow");
        wary.confirmed(id(4));
        assert!(!wary.of(id(4)));
        wary.closed([id(3), id(2)].into_iter());
        assert!(wary.of(id(7)), "another one does");
        wary.confirmed(id(7));
        assert!(wary.of(id(2)) && !wary.of(id(7)));

        wary.closed((10..MOST + 8).map(id));
        (0..3).for_each(|_| wary.closed([id(2)].into_iter()));
        wary.closed([id(8), id(9)].into_iter());
        wary.confirmed(id(7));
        assert!(wary.of(id(2)) && wary.of(id(9)) && wary.of(id(MOST + 7)), "the last ones are remembered");
        assert!(!wary.of(id(3)) && !wary.of(id(10)) && wary.of(id(11)), "and so many");
    }
}
