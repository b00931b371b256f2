//! The SQLite store.

mod kit;
