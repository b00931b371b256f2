//! How much may be under way at once.

/// The window of one destination: events that were handed out and are not yet deleted. So it bounds the duplicates of a
/// killed relay too (M40): what was acked and not deleted is sent again, as what was not acked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    most_events: usize,
    most_bytes: usize,
    events: usize,
    bytes: usize,
}

impl Window {
    /// An empty one.
    #[must_use]
    pub const fn new(most_events: usize, most_bytes: usize) -> Self {
        Self { most_events, most_bytes, events: 0, bytes: 0 }
    }

    /// Whether an event of this size may enter. One that is larger than the window goes alone.
    #[must_use]
    pub const fn fits(&self, size: usize) -> bool {
        self.events == 0 || (self.events < self.most_events && self.bytes.saturating_add(size) <= self.most_bytes)
    }

    /// Whether no event may enter, whatever its size.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        !self.fits(0)
    }

    /// How many events are in it.
    #[must_use]
    pub const fn events(&self) -> usize {
        self.events
    }

    /// An event enters.
    pub const fn enter(&mut self, size: usize) {
        self.events += 1;
        self.bytes = self.bytes.saturating_add(size);
    }

    /// An event leaves: deleted, or not to be sent now.
    pub const fn leave(&mut self, size: usize) {
        self.events = self.events.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(size);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // M32, case B42
        #[test]
        fn the_window_is_never_exceeded(sizes in prop::collection::vec(0_usize..5_000_000, 1..600)) {
            const MOST: usize = 16 << 20;
            let mut window = Window::new(256, MOST);
            let mut inside = Vec::new();
            for size in sizes {
                while !window.fits(size) {
                    window.leave(inside.remove(0));
                }
                window.enter(size);
                inside.push(size);
                prop_assert!(inside.len() <= 256);
                prop_assert!(inside.iter().sum::<usize>() <= MOST || inside.len() == 1);
            }
        }
    }

    // M32
    #[test]
    fn an_event_larger_than_the_window_goes_alone() {
        let mut window = Window::new(256, 100);
        assert!(window.fits(1_000));
        window.enter(1_000);
        assert!(window.is_full());
        window.leave(1_000);
        assert!(window.fits(1_000));
    }
}
