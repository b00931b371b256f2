//! The key of one operation.
