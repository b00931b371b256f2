//! The conformance kit for relays: what a relay must do on every engine, whatever fails.
//!
//! It needs the [`Harness`](super::outbox::Harness) of the kit for outboxes and one line in a test:
//!
//! ```text
//! idempotency::relay_conformance!(my_database, async { MyHarness::new().await });
//! ```

mod broker;
mod faults;
mod flow;
mod operators;
mod order;
mod stops;
mod support;

pub use broker::{Broker, Copy};
pub use faults::*;
pub use flow::*;
pub use operators::*;
pub use order::*;
pub use stops::*;

/// Runs the conformance kit against relays on one outbox: a module of this name with one test a property. The second argument
/// is a future that makes the [`Harness`](crate::testing::outbox::Harness).
#[macro_export]
macro_rules! relay_conformance {
    ($name:ident, $harness:expr) => {
        $crate::relay_conformance!(@tests $name, $harness;
            every_committed_event_is_published_and_counted
            large_events_pass_one_by_one
            each_destination_gets_its_own
            a_stalled_destination_holds_up_nobody_else
            a_poke_is_not_needed
            a_deferred_event_is_published_when_it_is_due
            late_committers_lose_nothing_and_keep_their_order
            holes_are_no_hindrance
            an_open_transaction_holds_up_nobody
            five_relays_publish_each_event_once
            a_wider_window_per_key_breaks_the_order
            a_failed_event_holds_its_key_up_and_nobody_else
            poison_at_the_head_lets_the_others_pass
            an_outage_uses_no_attempt_up
            what_is_unknown_is_parked_where_that_was_asked_for
            a_panicking_publisher_kills_no_relay
            a_panicking_codec_kills_no_relay
            a_blocked_event_is_redriven_or_discarded
            a_skipped_event_is_a_dead_letter_and_its_key_goes_on
            what_is_paused_waits
            a_stop_waits_for_what_is_out
            a_stop_does_not_wait_for_ever
            killed_at_any_point_nothing_is_lost
            a_vanished_relay_is_followed_within_its_lease
            an_event_that_kills_its_relay_stands_still_in_the_end
            a_later_process_of_the_same_name_ousts_the_earlier
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
                    $crate::testing::relay::$property(&harness).await;
                }
            )*
        }
    };
}
