//! The layer's counters, as a test sees them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, LocalRecorderGuard, Metadata, Recorder, SharedString, Unit};

/// Counts everything on this thread, by the rendered name and labels.
#[derive(Clone, Default)]
pub struct Counters(Arc<Mutex<HashMap<String, Arc<AtomicU64>>>>);

impl Counters {
    /// Counts until the guard is dropped. For tests on a runtime of one thread.
    pub fn install(&self) -> LocalRecorderGuard<'_> {
        metrics::set_default_local_recorder(self)
    }

    /// How often this event was counted, whatever it belongs to.
    pub fn of(&self, event: &str) -> u64 {
        let name = format!("idempotency_events_total event={event}");
        let is_it =
            |shown: &str| shown.strip_prefix(&name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
        let counters = self.0.lock().unwrap();
        counters.iter().filter(|(name, _)| is_it(name)).map(|(_, counter)| counter.load(Ordering::SeqCst)).sum()
    }

    /// All names with their labels.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        let name = key.name().to_owned() + &labels.collect::<String>();
        Counter::from_arc(Arc::clone(self.0.lock().unwrap().entry(name).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
