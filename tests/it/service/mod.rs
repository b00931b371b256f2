//! The reference service over TCP, as a process that is killed.

mod bare_hyper;
mod charge;
mod crash;
mod duplicates;
mod leases;
mod orders;
mod probed;
mod webhooks;

use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::postgres::options;
use crate::support::service::{Client, Service};

/// A database of its own on each engine, and where the keys are if they are leases.
pub struct Engine {
    database: Database,
    keys: Option<String>,
    caller: String,
}

enum Database {
    Sqlite(tempfile::TempDir),
    Postgres(String),
    MySql(String),
}

impl Engine {
    fn new(database: Database) -> Self {
        Self { database, keys: None, caller: "alice".to_owned() }
    }

    pub fn sqlite() -> Self {
        Self::new(Database::Sqlite(tempfile::tempdir().unwrap()))
    }

    pub async fn postgres() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("service_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let admin = crate::support::postgres::pool_on(options(), 1).await;
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&admin).await.unwrap();
        admin.close().await;
        Self::new(Database::Postgres(name))
    }

    pub async fn mysql() -> Self {
        Self::new(Database::MySql(crate::support::mysql::new_database().await))
    }

    /// With keys as short leases there. The caller has a name of its own, since others use the same servers.
    pub fn keys(self, keys: &str) -> Self {
        Self { keys: Some(keys.to_owned()), caller: uuid::Uuid::new_v4().to_string(), ..self }
    }

    pub fn url(&self) -> String {
        let (variable, name) = match &self.database {
            Database::Sqlite(folder) => return format!("sqlite:{}", folder.path().join("payments.sqlite").display()),
            Database::Postgres(name) => ("POSTGRES_URL", name),
            Database::MySql(name) => ("MYSQL_URL", name),
        };
        let url = std::env::var(variable).unwrap();
        let (server, _) = url.rsplit_once('/').unwrap();
        format!("{server}/{name}")
    }

    /// Starts the example `payments` on a free port, or on the port of an earlier one.
    pub fn start(&self, listen: &str, pool: u32) -> Service {
        let (url, pool) = (self.url(), pool.to_string());
        let mut variables = vec![("LISTEN", listen), ("DATABASE_URL", &url), ("DATABASE_POOL", &pool)];
        if let Some(keys) = &self.keys {
            variables.extend([("KEYS", keys.as_str()), ("LEASE", LEASE)]);
        }
        Service::example("payments", &variables)
    }

    /// Who calls.
    pub fn caller(&self) -> &str {
        &self.caller
    }

    /// A client of this engine's caller.
    pub fn client(&self) -> Client {
        Client::named(&self.caller)
    }
}

/// Short, so that a killed process is followed soon; longer than the machine stands still.
const LEASE: &str = "1";
