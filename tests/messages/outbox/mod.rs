//! Events in the application's own transaction, and what relays and operators do with them.

mod application;
mod kit;
mod plans;
mod purge;
mod schema;
mod vectors;
mod writers;
