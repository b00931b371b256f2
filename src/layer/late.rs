//! Records what could not be recorded in time (H35).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::error::ErrorKind;
use crate::events::{Event, emit, emit_error};
use crate::store::{LeaseControl, Settlement};

/// Between two tries, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long the store may be away or silent: so that a shutdown ends.
const IN_ALL: Duration = Duration::from_secs(60);
const ONE_TRY: Duration = Duration::from_secs(5);

/// Tries again and again, until the end is recorded, another attempt owns the key, or the store has been away for long.
/// The key is held by its lease meanwhile, and by its mark where the attempt has called somebody else.
pub(crate) async fn record(control: Arc<dyn LeaseControl>, settlement: Settlement) {
    let _ = timeout(IN_ALL, tried(control, settlement)).await;
}

async fn tried(control: Arc<dyn LeaseControl>, settlement: Settlement) {
    let mut pause = FIRST_PAUSE;
    loop {
        sleep(pause).await;
        match timeout(ONE_TRY, control.record(settlement.clone())).await {
            Ok(Ok(())) => return emit(Event::RecordedLate),
            Ok(Err(error)) if error.kind() == ErrorKind::LeaseLost => return emit_error(Event::LeaseLost, &error),
            Ok(Err(_)) | Err(_) => pause = (pause * 2).min(LONGEST_PAUSE),
        }
    }
}
