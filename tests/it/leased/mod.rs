//! Leases in SQL tables, on each engine that keeps them.

mod crowd;
mod guard;
mod kit;
mod lab;
mod lease;
mod mysql;
mod operate;
mod postgres;
mod process;

/// One test an engine.
macro_rules! on_each_engine {
    ($($name:ident)*) => {
        mod on_postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $name() {
                    super::$name::<crate::leased::lab::PostgresLab>().await;
                }
            )*
        }
        mod on_sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $name() {
                    super::$name::<crate::leased::lab::SqliteLab>().await;
                }
            )*
        }
        mod on_mariadb {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $name() {
                    super::$name::<crate::leased::lab::MariaDbLab>().await;
                }
            )*
        }
        mod as_on_mysql {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $name() {
                    super::$name::<crate::leased::lab::NoWaitLockLab>().await;
                }
            )*
        }
    };
}
use on_each_engine;
