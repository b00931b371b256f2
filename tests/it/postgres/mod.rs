//! The Postgres store, alone and behind the layer.

mod commit;
mod faults;
mod keyless;
mod kit;
mod migrations;
mod operate;
mod pgbouncer;
mod rivals;
mod round_trips;
mod schema;
mod sessions;
mod stress;
mod transaction_ended;
