//! Outboxes: what applications assert of theirs, and the conformance kit for every engine.
//!
//! The kit needs a [`Harness`] and one line in a test:
//!
//! ```text
//! idempotency::outbox_conformance!(my_database, async { MyHarness::new().await });
//! ```

mod app;
mod dead;
mod enqueue;
mod failing;
mod members;
mod numbers;
mod operate;
mod poll;
mod support;
mod waiting;

use std::future::Future;

use sqlx::Transaction;

use crate::db::OutboxDialect;
use crate::outbox::{Outbox, OutboxBuilder};

pub use app::{assert_enqueued, drain, enqueued_in, refute_enqueued};
pub use dead::*;
pub use enqueue::*;
pub use failing::*;
pub use members::*;
pub use numbers::*;
pub use operate::*;
pub use poll::*;
pub use waiting::*;

/// What the kit must be able to do with an outbox under test.
pub trait Harness: Send + Sync + 'static {
    /// The engine.
    type DB: OutboxDialect;

    /// Whether several transactions can write at once.
    const WRITERS: bool;

    /// Whether several relays share the work.
    const SHARES: bool;

    /// An outbox on the tables under test, with these settings, as another process would open it.
    fn build(&self, builder: OutboxBuilder<Self::DB>) -> impl Future<Output = Outbox<Self::DB>> + Send;

    /// A transaction of the application's, begun so that it may write.
    fn transaction(&self) -> impl Future<Output = Transaction<'static, Self::DB>> + Send;

    /// The settings of an outbox without a pool that knows where its tables are.
    fn builder(&self) -> OutboxBuilder<Self::DB> {
        Outbox::builder()
    }

    /// The same with the default settings.
    fn outbox(&self) -> impl Future<Output = Outbox<Self::DB>> + Send {
        self.build(Outbox::builder())
    }
}

/// Runs the conformance kit against one outbox: a module of this name with one test a property. The second argument is
/// a future that makes the [`Harness`](crate::testing::outbox::Harness).
#[macro_export]
macro_rules! outbox_conformance {
    ($name:ident, $harness:expr) => {
        $crate::outbox_conformance!(@tests $name, $harness;
            an_event_comes_back_as_it_was
            an_event_of_a_rolled_back_transaction_never_was
            an_outbox_without_a_pool_enqueues_into_the_same_tables
            a_batch_is_in_order_and_all_or_none
            the_same_id_twice_is_an_error
            what_cannot_be_sent_leaves_the_transaction_usable
            payloads_pass_the_codec_and_traces_the_hook
            keys_are_kept_byte_for_byte
            writers_that_serialise_get_growing_numbers
            a_late_committer_is_found_behind_those_that_came_first
            holes_are_normal
            a_poll_goes_on_where_it_is_told_to
            an_ack_deletes_its_own_row_only
            a_deferred_event_waits
            attempts_are_counted_and_remembered
            a_stale_fence_changes_nothing
            an_event_that_is_gone_has_no_failures
            a_blocked_event_is_redriven_in_its_place
            a_discarded_event_lets_its_key_go_on
            a_parked_event_is_a_dead_letter
            a_redrive_keeps_the_id
            dead_letters_are_chosen_by_what_they_are
            dead_letters_outlive_the_purge_until_they_are_old
            an_event_that_dies_again_is_one_dead_letter
            pauses_are_kept
            an_outbox_says_how_it_stands
            members_share_the_buckets
            a_member_that_is_silent_loses_its_buckets
            a_later_incarnation_follows_at_once
            nobody_waits_for_a_producer
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
                    $crate::testing::outbox::$property(&harness).await;
                }
            )*
        }
    };
}
