//! The reference service.
fn main() {}
