//! What ends the experiment before its time.

use tokio::signal::unix::{SignalKind, signal};

use crate::Failure;

/// The number of the signal that asks for the end.
pub async fn asked_to_end() -> Result<u8, Failure> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(tokio::select! {
        _ = hangup.recv() => 1,
        _ = interrupt.recv() => 2,
        _ = terminate.recv() => 15,
    })
}
