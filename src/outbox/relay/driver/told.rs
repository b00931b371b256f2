//! What comes back from the tasks of a relay.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Error;
use uuid::Uuid;

use super::super::plan::schedule::{Failure, Handout, Listed, Owned, Polled, Reading, Refill};
use super::super::plan::{Place, Reply, Row};
use crate::db::outbox::{Beat, Fence, Pause, Taken};
use crate::outbox::{PendingEvent, Stats};

/// What the scheduler's rows carry.
pub(super) type Load = Arc<PendingEvent>;

/// What a task has done.
pub(super) enum Told {
    Answered {
        handout: Handout<Load>,
        reply: Reply,
        duplicate: bool,
        error: Arc<str>,
    },
    Trials {
        handouts: Vec<Handout<Load>>,
        recorded: Result<Vec<bool>, Error>,
    },
    Recorded {
        failure: Failure<Load>,
        recorded: Result<bool, Error>,
    },
    Buried {
        failure: Failure<Load>,
        buried: Result<bool, Error>,
    },
    Deleted {
        batch: Vec<(Place, Uuid)>,
        deleted: Result<(), Error>,
    },
    Polled {
        reading: Reading,
        polled: Result<Polled<Load>, Error>,
    },
    Late {
        reading: Reading,
        rows: Result<Vec<Row<Load>>, Error>,
    },
    Due {
        reading: Reading,
        places: Vec<Place>,
        rows: Result<Vec<Row<Load>>, Error>,
    },
    Refilled {
        refill: Refill,
        rows: Result<Vec<Row<Load>>, Error>,
    },
    /// With the moment from which waits count.
    Listed {
        reading: Reading,
        owned: Vec<Owned>,
        listed: Result<Vec<Listed>, Error>,
    },
    Paused(Result<Vec<Pause>, Error>),
    Writers {
        asked: (i64, Duration, u64),
        writers: Result<Vec<String>, Error>,
    },
    Beat {
        asked: Duration,
        beat: Result<Beat, Error>,
    },
    Taken(Result<Vec<Taken>, Error>),
    Released {
        fences: Vec<Fence>,
        released: Result<(), Error>,
    },
    Promoted(Result<u64, Error>),
    Purged(Result<u64, Error>),
    Counted(Result<Stats, Error>),
}
