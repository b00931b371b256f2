//! The Postgres store: the kit at each isolation level (S12, case O13).

use idempotency::store::Isolation;

use crate::support::postgres::PostgresHarness;

idempotency::store_conformance!(read_committed, PostgresHarness::new(Isolation::ReadCommitted));
idempotency::store_conformance!(repeatable_read, PostgresHarness::new(Isolation::RepeatableRead));
idempotency::operator_conformance!(operators, PostgresHarness::new(Isolation::ReadCommitted));
idempotency::store_conformance!(serializable, PostgresHarness::new(Isolation::Serializable));
