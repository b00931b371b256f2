//! What became of the deliveries since the start.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Default)]
pub struct Counts {
    pub first: Count,
    pub duplicate: Count,
    pub busy: Count,
    pub conflict: Count,
    pub failed: Count,
}

#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Counts {
    pub fn as_json(&self) -> serde_json::Value {
        serde_json::json!({
            "first": self.first.get(), "duplicate": self.duplicate.get(), "busy": self.busy.get(),
            "conflict": self.conflict.get(), "failed": self.failed.get(),
        })
    }
}
