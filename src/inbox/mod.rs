//! The consumer's side of at-least-once delivery: each message acts once.
