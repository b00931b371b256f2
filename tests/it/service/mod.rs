//! The reference service over TCP, as a process that is killed.

mod bare_hyper;
mod crash;
mod duplicates;

use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::postgres::options;

/// A database of its own on each engine.
pub enum Engine {
    Sqlite(tempfile::TempDir),
    Postgres(String),
    MySql(String),
}

impl Engine {
    pub fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    pub async fn postgres() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("service_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let admin = crate::support::postgres::pool_on(options(), 1).await;
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&admin).await.unwrap();
        admin.close().await;
        Self::Postgres(name)
    }

    pub async fn mysql() -> Self {
        Self::MySql(crate::support::mysql::new_database().await)
    }

    pub fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite:{}", folder.path().join("payments.sqlite").display()),
            Self::Postgres(name) => {
                let url = std::env::var("POSTGRES_URL").unwrap();
                let (server, _) = url.rsplit_once('/').unwrap();
                format!("{server}/{name}")
            }
            Self::MySql(name) => {
                let url = std::env::var("MYSQL_URL").unwrap();
                let (server, _) = url.rsplit_once('/').unwrap();
                format!("{server}/{name}")
            }
        }
    }
}
