//! The conformance kit for inboxes, one function a property, and [`deliver`] for tests of applications.
//!
//! Write a [`Harness`] for your inbox, then one line in a test:
//!
//! ```text
//! idempotency::inbox_conformance!(my_inbox, MyHarness::new());
//! ```

mod batch;
mod concurrency;
mod cut;
mod deliver;
mod identity;
mod redelivery;
mod retention;
mod work;

use std::fmt;
use std::future::Future;

use crate::inbox::{Message, MessageId, Processed};

pub use batch::*;
pub use concurrency::*;
pub use cut::*;
pub use deliver::deliver;
pub use identity::*;
pub use redelivery::*;
pub use retention::*;
pub use work::{Gate, Work};

/// What the kit must be able to do with an inbox under test.
pub trait Harness: Send + Sync + 'static {
    /// An inbox of one consumer in one process.
    type Inbox: Send + Sync + 'static;

    /// Whether a rival of another process waits for the database's one write lock, instead of being told *busy* (SQLite).
    const RIVALS_WAIT: bool = false;

    /// A handle on the marks under test, as another process would open it.
    fn inbox(&self, consumer: &str) -> impl Future<Output = Self::Inbox> + Send;

    /// Processes a message; its handler does this work.
    fn process(&self, inbox: &Self::Inbox, message: &Message, work: Work) -> impl Outcome<Processed<()>>;

    /// Accepts messages in a transaction of the caller's and does this work once for each that is there for the first time.
    /// The transaction is then committed, or rolled back where the work fails.
    fn accept(&self, inbox: &Self::Inbox, messages: &[Message], work: Work) -> impl Outcome<Vec<Processed<()>>>;

    /// How often this effect is committed.
    fn effects(&self, what: &str) -> impl Future<Output = u64> + Send;

    /// Lets the retention of every mark end.
    fn expire(&self) -> impl Future<Output = ()> + Send;

    /// Deletes at most so many marks whose retention has ended.
    fn purge(&self, inbox: &Self::Inbox, limit: u32) -> impl Outcome<u64>;
}

/// A call's future.
pub trait Outcome<T>: Future<Output = Result<T, Failed>> + Send {}
impl<T, F: Future<Output = Result<T, Failed>> + Send> Outcome<T> for F {}

/// Why a call gave nothing: in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed(pub String);

impl Failed {
    /// What a handler fails with where its work says so.
    #[must_use]
    pub fn by_work() -> Self {
        Self("the work fails".to_owned())
    }

    /// Of any error.
    pub fn of(error: impl fmt::Debug) -> Self {
        Self(format!("{error:?}"))
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

/// The consumer that most properties use.
const CONSUMER: &str = "kit";

fn message(id: impl AsRef<[u8]>, payload: &str) -> Message {
    of("kit", id, payload)
}

fn of(source: impl AsRef<[u8]>, id: impl AsRef<[u8]>, payload: &str) -> Message {
    match MessageId::new(source, id) {
        Ok(id) => Message::new(id, payload),
        Err(error) => panic!("{error}"),
    }
}

async fn processed<H: Harness>(harness: &H, inbox: &H::Inbox, message: &Message, work: Work) -> Processed<()> {
    match harness.process(inbox, message, work).await {
        Ok(told) => told,
        Err(error) => panic!("processing failed: {error}"),
    }
}

async fn accepted<H: Harness>(harness: &H, inbox: &H::Inbox, message: &Message, work: Work) -> Processed<()> {
    match accepted_all(harness, inbox, std::slice::from_ref(message), work).await.as_slice() {
        [told] => *told,
        told => panic!("one message, {} answers", told.len()),
    }
}

async fn accepted_all<H: Harness>(
    harness: &H,
    inbox: &H::Inbox,
    messages: &[Message],
    work: Work,
) -> Vec<Processed<()>> {
    match harness.accept(inbox, messages, work).await {
        Ok(told) => told,
        Err(error) => panic!("accepting failed: {error}"),
    }
}

fn is_busy(told: Processed<()>) -> bool {
    matches!(told, Processed::Busy { .. })
}

/// Runs the conformance kit against one inbox: a module of this name with one test a property. The second argument is a
/// future that makes the [`Harness`](crate::testing::inbox::Harness).
#[macro_export]
macro_rules! inbox_conformance {
    ($name:ident, $harness:expr) => {
        $crate::inbox_conformance!(@tests $name, $harness;
            a_first_delivery_acts_and_a_later_one_is_a_duplicate
            a_row_that_is_found_is_no_row_that_was_inserted
            a_delivery_that_fails_leaves_nothing_and_the_next_one_acts
            another_payload_is_a_conflict
            a_running_message_is_busy_at_once
            a_running_message_is_busy_in_another_process
            busy_outranks_conflict
            nothing_is_a_duplicate_before_the_first_commit
            a_transaction_goes_on_after_busy
            ids_compare_byte_for_byte
            long_parts_are_not_cut
            sources_are_told_apart
            two_consumers_of_one_message_both_run
            a_batch_tells_each_message_its_own
            a_duplicate_inside_a_batch_is_told
            a_large_batch_is_accepted_whole
            a_batch_that_is_rolled_back_leaves_nothing
            of_many_deliveries_one_acts
            different_messages_do_not_disturb_each_other
            a_crowd_with_rollbacks_acts_once_each_and_has_no_false_duplicates
            a_mark_counts_until_it_is_purged
            a_purge_takes_what_has_expired_and_nothing_else
            a_dropped_delivery_is_done_or_undone
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
                    $crate::testing::inbox::$property(&harness).await;
                }
            )*
        }
    };
}
