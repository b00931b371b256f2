//! The SQLite store.

mod kit;
mod operate;
