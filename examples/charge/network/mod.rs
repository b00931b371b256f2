//! The card network: somebody else's service. `server` is what it does, `client` is how orders call it.

pub mod client;
pub mod server;
