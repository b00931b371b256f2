//! The conformance kit, in both ways, at each isolation level of the store and of the host's sessions.

use idempotency::store::Isolation;

use crate::support::mysql::{MySqlHarness, Way};

idempotency::store_conformance!(no_wait, MySqlHarness::new(Way::NoWait, Isolation::ReadCommitted));
idempotency::store_conformance!(no_wait_repeatable_read, MySqlHarness::new(Way::NoWait, Isolation::RepeatableRead));
idempotency::store_conformance!(no_wait_serializable, MySqlHarness::new(Way::NoWait, Isolation::Serializable));
idempotency::store_conformance!(named_lock, MySqlHarness::new(Way::NamedLock, Isolation::ReadCommitted));
idempotency::store_conformance!(
    named_lock_repeatable_read,
    MySqlHarness::new(Way::NamedLock, Isolation::RepeatableRead)
);
idempotency::store_conformance!(named_lock_serializable, MySqlHarness::new(Way::NamedLock, Isolation::Serializable));

const READ_COMMITTED: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
const SERIALIZABLE: &str = "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE";
const STRANGE: &str = "SET sql_mode = 'ANSI,STRICT_ALL_TABLES', time_zone = '+09:00'";

// The server's own default, REPEATABLE READ, is that of the tests above.
idempotency::store_conformance!(
    no_wait_among_read_committed,
    MySqlHarness::in_sessions_of(Way::NoWait, READ_COMMITTED)
);
idempotency::store_conformance!(no_wait_among_serializable, MySqlHarness::in_sessions_of(Way::NoWait, SERIALIZABLE));
idempotency::store_conformance!(no_wait_among_strange_modes, MySqlHarness::in_sessions_of(Way::NoWait, STRANGE));
idempotency::store_conformance!(
    named_lock_among_serializable,
    MySqlHarness::in_sessions_of(Way::NamedLock, SERIALIZABLE)
);
idempotency::store_conformance!(named_lock_among_strange_modes, MySqlHarness::in_sessions_of(Way::NamedLock, STRANGE));

// S8
idempotency::operator_conformance!(no_wait_operators, MySqlHarness::new(Way::NoWait, Isolation::ReadCommitted));
idempotency::operator_conformance!(named_lock_operators, MySqlHarness::new(Way::NamedLock, Isolation::ReadCommitted));
idempotency::operator_conformance!(
    no_wait_operators_among_serializable,
    MySqlHarness::in_sessions_of(Way::NoWait, SERIALIZABLE)
);
