//! The HTTP layer, by the rules of its design (H) and the reported failures of other systems (C, T, F, K, R, O).

mod client;
mod guard;
mod handler;
mod key;
mod lookup;
mod outcome;
mod panic;
mod race;
mod request_body;
mod store;
