//! The conformance kit on leases in SQL.

use bytes::Bytes;
use idempotency::store::{BodyCodec, CodedStore};

use super::lab::{Lab, Leased, MariaDbLab, NoWaitLockLab, PostgresLab, SqliteLab, Wrapped, any};
use crate::support::postgres::{options, pool_of, pool_on};

/// A pool whose statements run under SERIALIZABLE, as a host may have set it.
async fn serializable() -> PostgresLab {
    let schema: String =
        sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&pool_of(1).await).await.unwrap();
    let options =
        options().options([("search_path", schema.as_str()), ("default_transaction_isolation", "serializable")]);
    PostgresLab::on(pool_on(options, 20).await).await
}

struct Reversed;

impl BodyCodec for Reversed {
    fn encode(&self, body: Bytes) -> Bytes {
        body.iter().rev().copied().collect()
    }

    fn decode(&self, stored: Bytes) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.encode(stored))
    }
}

idempotency::store_conformance!(postgres, async { Leased(PostgresLab::new().await) });
idempotency::store_conformance!(postgres_serializable, async { Leased(serializable().await) });
idempotency::store_conformance!(postgres_pooled, async { Leased(PostgresLab::pooled().await) });
idempotency::store_conformance!(sqlite, async { Leased(SqliteLab::new().await) });
idempotency::store_conformance!(mariadb, async { Leased(MariaDbLab::new().await) });
idempotency::store_conformance!(mariadb_serializable, async {
    Leased(MariaDbLab::in_sessions_of("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE").await)
});
idempotency::store_conformance!(mariadb_strange_modes, async {
    Leased(MariaDbLab::in_sessions_of("SET sql_mode = 'ANSI,STRICT_ALL_TABLES', time_zone = '+09:00'").await)
});
idempotency::store_conformance!(as_on_mysql, async { Leased(NoWaitLockLab::new().await) });
idempotency::store_conformance!(any_postgres, async {
    Wrapped { leased: Leased(PostgresLab::new().await), wrap: any }
});
idempotency::store_conformance!(any_sqlite, async { Wrapped { leased: Leased(SqliteLab::new().await), wrap: any } });
idempotency::store_conformance!(coded_postgres, async {
    Wrapped { leased: Leased(PostgresLab::new().await), wrap: |store| CodedStore::new(store, Reversed) }
});

// S8
idempotency::operator_conformance!(postgres_operators, async { Leased(PostgresLab::new().await) });
idempotency::operator_conformance!(postgres_pooled_operators, async { Leased(PostgresLab::pooled().await) });
idempotency::operator_conformance!(sqlite_operators, async { Leased(SqliteLab::new().await) });
idempotency::operator_conformance!(mariadb_operators, async { Leased(MariaDbLab::new().await) });
idempotency::operator_conformance!(as_on_mysql_operators, async { Leased(NoWaitLockLab::new().await) });
idempotency::operator_conformance!(any_sqlite_operators, async {
    Wrapped { leased: Leased(SqliteLab::new().await), wrap: any }
});
idempotency::operator_conformance!(coded_postgres_operators, async {
    Wrapped { leased: Leased(PostgresLab::new().await), wrap: |store| CodedStore::new(store, Reversed) }
});
