//! Every event that is counted and logged, in one place. The other series are in `series`.

use std::sync::Arc;

/// Something worth counting. Log lines and counters carry these names and nothing of a request (H9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A handler ran and its answer is stored.
    Executed,
    /// A handler ran and nothing is kept.
    Abandoned,
    Replayed,
    OtherProfile,
    Refused(&'static str),
    /// The store was unavailable and the request ran unprotected, as configured.
    RanUnprotected,
    /// A lease store could not record the answer of a handler that had succeeded.
    Unsaved,
    /// The answer of such a handler was recorded after all.
    RecordedLate,
    /// A handler called somebody else, and what came of it is not known.
    OutcomeUnknown,
    LeaseLost,
    RenewalFailed,
    /// A batch of a purge has failed.
    PurgeFailed,
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    /// Rows have expired long ago: nobody purges them.
    Unpurged,
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    /// A relay could not say that it lives.
    RelayBeatFailed,
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    /// A relay stops because a later process has taken its name.
    RelayOusted,
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    /// A call of a relay's database has failed; it is made again.
    RelayCallFailed,
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    /// An event waits for an operator from now on, and its key with it.
    OutboxEventBlocked,
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    /// An event was moved to the dead letters.
    OutboxEventDead,
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    TransactionEnded,
    /// The server deletes records when its memory is full.
    #[cfg(feature = "redis")]
    EvictionPolicy,
    /// A story ended without an outcome: its task was cancelled.
    Dropped,
    /// An operator has freed a key, given it an answer, or deleted its record.
    OperatorReleased,
    OperatorSettled,
    OperatorForgot,
    #[cfg(feature = "postgres")]
    OperatorTerminated,
    Panicked,
    NotKept,
    StoreError,
    /// A message was processed and its mark is committed.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    MessageProcessed,
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    MessageDuplicate,
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    MessageBusy,
    /// Another payload was processed under the id of a message.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    MessageConflict,
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    MessagePoison,
    /// A message was rolled back.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    MessageFailed,
    /// The failure of a message could not be counted.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    MessageNotCounted,
    /// A broker may deliver a message again after its mark is purged.
    #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
    RedeliveryBeyondRetention,
    /// A client's request has a body that cannot be sent again: one attempt. Said once a policy.
    #[cfg(feature = "client")]
    UnrepeatableBody,
}

impl Event {
    const fn name(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Abandoned => "abandoned",
            Self::Replayed => "replayed",
            Self::OtherProfile => "other_profile",
            Self::Refused(problem) => problem,
            Self::RanUnprotected => "ran_unprotected",
            Self::Unsaved => "unsaved",
            Self::RecordedLate => "recorded_late",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::LeaseLost => "lease_lost",
            Self::RenewalFailed => "renewal_failed",
            Self::PurgeFailed => "purge_failed",
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::Unpurged => "unpurged",
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::RelayBeatFailed => "relay_beat_failed",
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::RelayOusted => "relay_ousted",
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::RelayCallFailed => "relay_call_failed",
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::OutboxEventBlocked => "outbox_event_blocked",
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::OutboxEventDead => "outbox_event_dead",
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::TransactionEnded => "transaction_ended",
            #[cfg(feature = "redis")]
            Self::EvictionPolicy => "eviction_policy",
            Self::Dropped => "dropped",
            Self::OperatorReleased => "operator_released",
            Self::OperatorSettled => "operator_settled",
            Self::OperatorForgot => "operator_forgot",
            #[cfg(feature = "postgres")]
            Self::OperatorTerminated => "operator_terminated",
            Self::Panicked => "panicked",
            Self::NotKept => "not_kept",
            Self::StoreError => "store_error",
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::MessageProcessed => "message_processed",
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::MessageDuplicate => "message_duplicate",
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::MessageBusy => "message_busy",
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::MessageConflict => "message_conflict",
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::MessagePoison => "message_poison",
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::MessageFailed => "message_failed",
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::MessageNotCounted => "message_not_counted",
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::RedeliveryBeyondRetention => "redelivery_beyond_retention",
            #[cfg(feature = "client")]
            Self::UnrepeatableBody => "unrepeatable_body",
        }
    }

    #[cfg(feature = "tracing")]
    const fn severity(self) -> tracing::Level {
        match self {
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::TransactionEnded => tracing::Level::ERROR,
            #[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
            Self::MessageProcessed | Self::MessageDuplicate | Self::MessageBusy => tracing::Level::DEBUG,
            Self::Executed | Self::Abandoned | Self::Replayed | Self::Refused(_) => tracing::Level::DEBUG,
            _ => tracing::Level::WARN,
        }
    }
}

/// Counts and logs an event.
pub(crate) fn emit(event: Event) {
    Of::Process.emit(event);
}

/// Counts and logs an event with the error behind it.
pub(crate) fn emit_error(event: Event, error: &crate::Error) {
    Of::Process.emit_error(event, error);
}

/// What an event belongs to, where that has a name from a set that is fixed when a process starts: then the name is a label.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(any(feature = "metrics", feature = "tracing")), allow(dead_code, reason = "nobody reads it"))]
pub(crate) enum Of<'a> {
    /// Nothing that has a name.
    Process,
    /// A layer that was given one.
    Route(&'static str),
    /// An inbox, or a destination that a relay has a publisher for.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "sqlite", feature = "mysql")),
        allow(dead_code, reason = "for inboxes and relays")
    )]
    Named(Kind, &'a Arc<str>),
}

/// Labels whose values hosts choose when they build something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(feature = "postgres", feature = "sqlite", feature = "mysql")),
    allow(dead_code, reason = "for inboxes and relays")
)]
pub(crate) enum Kind {
    Consumer,
    Destination,
}

impl Of<'_> {
    pub(crate) fn emit(self, event: Event) {
        self.record(event, None);
    }

    pub(crate) fn emit_error(self, event: Event, error: &crate::Error) {
        self.record(event, Some(error));
    }

    fn record(self, event: Event, error: Option<&crate::Error>) {
        let name = event.name();
        #[cfg(feature = "metrics")]
        crate::series::event(name, self);
        #[cfg(feature = "tracing")]
        {
            let error = error.map(|error| error as &(dyn std::error::Error + 'static));
            let route = if let Self::Route(route) = self { Some(route) } else { None };
            let named = |kind| if let Self::Named(of, name) = self { (of == kind).then_some(&**name) } else { None };
            let (consumer, destination) = (named(Kind::Consumer), named(Kind::Destination));
            match event.severity() {
                tracing::Level::ERROR => {
                    tracing::error!(event = name, route, consumer, destination, error, "idempotency");
                }
                tracing::Level::WARN => {
                    tracing::warn!(event = name, route, consumer, destination, error, "idempotency");
                }
                _ => tracing::debug!(event = name, route, consumer, destination, error, "idempotency"),
            }
        }
        let _ = (name, error);
    }
}

/// All names, as the text of this file has them, and the kinds of refusals.
#[cfg(test)]
pub(crate) fn names() -> Vec<&'static str> {
    let text = include_str!("events.rs");
    let arms =
        text.lines().filter_map(|line| line.trim().strip_prefix("Self::")?.split_once("=> \"")?.1.strip_suffix("\","));
    arms.chain(crate::problem::ProblemKind::ALL.iter().map(|kind| kind.slug())).collect()
}
