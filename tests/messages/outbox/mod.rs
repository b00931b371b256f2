//! Events in the application's own transaction, and what relays and operators do with them.

mod kit;
mod plans;
mod vectors;
