//! The Redis store: the kit on one server and on a cluster, and what only it does (S25).

mod cluster;
mod decisions;
mod kit;
mod layer;
mod memory;
mod operate;
mod outages;
mod records;
mod replicas;
mod retries;
mod round_trips;
