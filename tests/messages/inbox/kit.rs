//! The conformance kit on every engine, at every isolation level that it has (M1–M8).

use idempotency::store::Isolation::{ReadCommitted, RepeatableRead, Serializable};

use super::lab::{MariaDbLab, NoWaitLab, PostgresLab, Real, SqliteLab};

idempotency::inbox_conformance!(postgres, async { Real(PostgresLab::new(ReadCommitted).await) });
idempotency::inbox_conformance!(postgres_repeatable, async { Real(PostgresLab::new(RepeatableRead).await) });
idempotency::inbox_conformance!(postgres_serializable, async { Real(PostgresLab::new(Serializable).await) });
idempotency::inbox_conformance!(postgres_pooled, async { Real(PostgresLab::pooled().await) });
idempotency::inbox_conformance!(sqlite, async { Real(SqliteLab::new().await) });
idempotency::inbox_conformance!(mariadb, async { Real(MariaDbLab::new(ReadCommitted).await) });
idempotency::inbox_conformance!(mariadb_repeatable, async { Real(MariaDbLab::new(RepeatableRead).await) });
idempotency::inbox_conformance!(mariadb_serializable, async { Real(MariaDbLab::new(Serializable).await) });
idempotency::inbox_conformance!(mariadb_strange_modes, async {
    let first = "SET sql_mode = 'ANSI,STRICT_ALL_TABLES', time_zone = '+09:00', innodb_lock_wait_timeout = 50";
    Real(MariaDbLab::in_sessions_of(first, ReadCommitted).await)
});
idempotency::inbox_conformance!(as_on_mysql, async { Real(NoWaitLab::new(ReadCommitted).await) });
