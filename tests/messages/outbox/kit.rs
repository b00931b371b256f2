//! The conformance kit. In every database of these tests a trigger forbids updates of pending events (M22, M23).

use crate::support::outbox_lab::{Lab, MariaDbLab, PostgresLab, SqliteLab};
use crate::support::postgres::{options, pool_of, pool_on};

idempotency::outbox_conformance!(postgres, async { PostgresLab::new().await });
// Through PgBouncer in transaction mode.
idempotency::outbox_conformance!(postgres_pooled, async { PostgresLab::pooled().await });
idempotency::outbox_conformance!(sqlite, async { SqliteLab::new().await });
idempotency::outbox_conformance!(mariadb, async { MariaDbLab::new().await });
// The host's own sessions at another level.
idempotency::outbox_conformance!(postgres_repeatable_read, async {
    let schema: String =
        sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&pool_of(1).await).await.unwrap();
    let level = [("search_path", schema.as_str()), ("default_transaction_isolation", "repeatable read")];
    PostgresLab::on(pool_on(options().options(level), 20).await).await
});
idempotency::outbox_conformance!(mariadb_serializable, async {
    MariaDbLab::in_sessions_of("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE").await
});
idempotency::outbox_conformance!(mariadb_strange_modes, async {
    MariaDbLab::in_sessions_of("SET sql_mode = 'ANSI,STRICT_ALL_TABLES', time_zone = '+09:00'").await
});
