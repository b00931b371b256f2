//! Publishers against real brokers.
