//! What a handler does in a property.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Writes an effect, passes a gate, and ends well or not.
#[derive(Clone, Debug)]
pub struct Work {
    /// The effect to write through the transaction.
    pub what: String,
    /// Where to wait after that.
    pub gate: Option<Gate>,
    /// Whether it fails then.
    pub fails: bool,
}

impl Work {
    /// Writes this effect.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), gate: None, fails: false }
    }

    /// Waits at this gate before it ends.
    #[must_use]
    pub fn at(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Fails in the end.
    #[must_use]
    pub fn failing(mut self) -> Self {
        self.fails = true;
        self
    }

    /// Waits at its gate, where it has one.
    pub async fn pass(&self) {
        if let Some(gate) = &self.gate {
            gate.pass().await;
        }
    }
}

/// Where a handler waits until a test lets it go on.
#[derive(Clone, Debug)]
pub struct Gate(Arc<(Semaphore, Semaphore)>);

impl Gate {
    /// A closed one.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new((Semaphore::new(0), Semaphore::new(0))))
    }

    /// Comes to the gate and waits until it is opened.
    pub async fn pass(&self) {
        self.0.0.add_permits(1);
        // Never closed.
        let _ = self.0.1.acquire().await;
    }

    /// Waits until somebody has come to it.
    pub async fn reached(&self) {
        if let Ok(permit) = self.0.0.acquire().await {
            permit.forget();
        }
    }

    /// Lets everybody through from now on.
    pub fn open(&self) {
        self.0.1.add_permits(Semaphore::MAX_PERMITS >> 4);
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}
