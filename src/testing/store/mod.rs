//! The conformance kit: what every store must do, one function a property.
//!
//! Write a [`Harness`] for your store, then one line in a test:
//!
//! ```text
//! idempotency::store_conformance!(my_store, MyHarness::new());
//! ```

mod concurrency;
mod cut;
mod identity;
mod lease;
mod operate;
mod purge;
mod records;
mod support;
mod verdicts;

use std::future::{Future, ready};

use crate::lookup::LookupKey;
use crate::store::{OnUnknown, Store};

pub use concurrency::*;
pub use cut::*;
pub use identity::*;
pub use lease::*;
pub use operate::*;
pub use purge::*;
pub use records::*;
pub use support::{answer, completed, request};
pub use verdicts::*;

/// What the kit must be able to do with a store under test.
pub trait Harness: Send + Sync + 'static {
    /// The store.
    type Store: Store;

    /// Whether a dropped claim frees its key at once. `false` for lease stores, where it does when the lease ends.
    const FREES_ON_DROP: bool;

    /// A handle on the keys under test, as another process would open it.
    fn store(&self) -> impl Future<Output = Self::Store> + Send;

    /// Lets the record under `lookup` expire.
    fn expire(&self, lookup: &LookupKey) -> impl Future<Output = ()> + Send;

    /// The same keys through a store that says what follows an attempt that stopped. `None` for transactional stores.
    fn store_on_unknown(&self, on_unknown: OnUnknown) -> impl Future<Output = Option<Self::Store>> + Send {
        let _ = on_unknown;
        ready(None)
    }

    /// How many records there are, expired ones that have not been purged included.
    fn records(&self) -> impl Future<Output = u64> + Send;

    /// Lets every lease that is not renewed end. Nothing to do for transactional stores.
    fn end_leases(&self) -> impl Future<Output = ()> + Send {
        ready(())
    }
}

/// Runs the conformance kit against one store: a module of this name with one test a property. The second argument is
/// a future that makes the [`Harness`](crate::testing::store::Harness).
#[macro_export]
macro_rules! store_conformance {
    ($name:ident, $harness:expr) => {
        $crate::store_conformance!(@tests $name, $harness;
            a_fresh_key_is_claimed_and_its_answer_replayed
            an_answer_comes_back_byte_for_byte
            an_answer_that_was_not_kept_stays_so
            a_large_answer_comes_back_whole
            completion_keeps_the_claims_fingerprint
            a_refusal_is_replayed
            an_abandoned_key_is_free_at_once
            a_running_key_is_in_progress
            a_mismatch_outranks_in_progress
            a_completed_key_with_another_request_is_a_mismatch
            every_bit_of_a_fingerprint_counts
            another_profile_counts_as_a_match
            a_request_is_compared_in_the_stored_profile
            a_claim_never_waits_for_a_rival
            a_dropped_claim_publishes_nothing
            keys_compare_byte_for_byte
            scopes_compare_byte_for_byte
            scope_key_and_endpoint_are_told_apart
            the_longest_parts_work
            of_many_identical_claims_one_is_owner
            different_keys_do_not_disturb_each_other
            an_owner_that_comes_and_goes_leaves_one_effect
            an_honest_retry_is_never_a_mismatch
            an_expired_record_counts_as_absent
            an_expired_key_has_one_new_owner
            a_purge_takes_what_has_expired_and_nothing_else
            a_dropped_claim_future_leaves_nothing_behind
            a_dropped_settlement_is_done_or_undone
            a_lease_that_ends_is_taken_over_with_a_larger_fence
            a_stale_owner_changes_nothing
            a_renewed_lease_does_not_end
            a_dispatched_attempt_that_stops_is_held
            a_held_key_is_not_run_again_and_another_request_is_still_told_so
            what_follows_a_stop_is_the_stores_choice
            an_unknown_outcome_ends_the_lease_at_once
            an_end_is_recorded_late_once_and_by_its_owner_only
        );
    };
    (@tests $name:ident, $harness:expr; $($property:ident)*) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $property() {
                    let harness = $harness.await;
                    $crate::testing::store::$property(&harness).await;
                }
            )*
        }
    };
}
