//! Where events go.
