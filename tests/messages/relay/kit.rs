//! The conformance kit on each engine.

use crate::support::outbox_lab::{Lab, MariaDbLab, PostgresLab, SqliteLab};

idempotency::relay_conformance!(on_postgres, async { PostgresLab::new().await });
idempotency::relay_conformance!(on_mariadb, async { MariaDbLab::new().await });
idempotency::relay_conformance!(on_sqlite, async { SqliteLab::new().await });
