//! The routes, each with the settings of its own.

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use idempotency::store::Operate;
use idempotency::{IdempotencyLayer, Scope};
use sqlx::SqlitePool;

use crate::auth::{self, Principal};
use crate::journal::Journal;
use crate::network::client::Network;
use crate::{operator, order, payout};

/// What handlers work with.
#[derive(Clone)]
pub struct Service {
    pub pool: SqlitePool,
    pub network: Network,
    pub journal: Journal,
}

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS orders (id TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, amount INTEGER NOT NULL,
        charge TEXT, receipt TEXT, progress TEXT NOT NULL DEFAULT '{}', fence INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS payouts (id TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, amount INTEGER NOT NULL,
        payout TEXT NOT NULL)";

/// One set of keys, with two settings.
#[derive(Clone)]
pub struct Stores<S> {
    /// An attempt that stopped is followed by the next one: each of its steps is safe to repeat.
    pub rerun: S,
    /// An attempt that has called somebody else and stopped is held.
    pub hold: S,
}

impl Service {
    /// Creates the tables of orders and payouts. Any number of processes may do it at once.
    pub async fn create_tables(&self) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(TABLES).execute(&self.pool).await.map(drop)
    }

    /// The whole service, and the layers to drain when it stops.
    pub fn router<S: Operate>(self, stores: Stores<S>, operator: String) -> (Router, [IdempotencyLayer<S>; 2]) {
        let scope = || Scope::from_extension(|principal: &Principal| Some(principal.0.clone()));
        let orders = IdempotencyLayer::new(stores.rerun, scope()).require_key();
        let payouts = IdempotencyLayer::new(stores.hold.clone(), scope()).require_key();
        let customers = Router::new()
            .route("/orders", get(order::list).post(order::create).layer(orders.clone()))
            .route("/payouts", get(payout::list).post(payout::create).layer(payouts.clone()))
            .layer(from_fn(auth::customer))
            .with_state(self);
        let operators = Router::new()
            .route("/stuck", get(operator::list::<S>))
            .route("/stuck/{id}/release", post(operator::release::<S>))
            .route("/stuck/{id}/settle", post(operator::settle::<S>))
            .layer(from_fn_with_state(operator, auth::operator))
            .with_state(stores.hold);
        (customers.merge(operators), [orders, payouts])
    }
}
