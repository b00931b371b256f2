//! What the relay decides, without I/O and without a clock: times are passed in, as the time since the relay began.
//!
//! Public for models and simulations that call these functions; outside semver.

mod acked;
mod backoff;
mod breaker;
mod bucket;
mod caution;
mod horizon;
mod lane;
mod pace;
mod positions;
mod row;
pub mod schedule;
mod shares;
mod verdict;
mod window;

pub use acked::Acked;
pub use backoff::Backoff;
pub use breaker::Breaker;
pub use bucket::Note;
pub use caution::Caution;
pub use horizon::Horizon;
pub use lane::{Admitted, Lane, Slot, State};
pub use pace::Pace;
pub use positions::Positions;
pub use row::{LaneName, Place, Row};
pub use shares::{BUCKETS, Rebalance, rebalance, share};
pub use verdict::{Facts, OnExhausted, OnUnknown, Reply, Rules, Verdict, verdict};
pub use window::Window;
