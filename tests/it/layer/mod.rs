//! The HTTP layer, by the rules of its design (H) and the reported failures of other systems (C, T, F, K, R, O).

mod arrangements;
mod client;
mod dispatching;
mod grpc;
mod guard;
mod handler;
mod key;
mod keyless;
mod lease;
mod log;
mod lookup;
mod outcome;
mod panic;
mod paths;
mod profile;
mod race;
mod refusals;
mod replay;
mod replay_cache;
mod request_body;
mod retention;
mod store;
mod stream;
mod tcp;
mod wait;
