//! stub
/// s
#[derive(Debug)]
pub struct SqliteStore;
/// s
#[derive(Debug)]
pub struct SqliteClaim;
