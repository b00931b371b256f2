//! What a handler's transaction sees of others.

/// The isolation level of the claim's transaction, whatever the pool's default is (S12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// The default.
    #[default]
    ReadCommitted,
    /// One snapshot for the handler: on Postgres from the claim on, on MySQL from its first read.
    RepeatableRead,
    /// Handlers may fail with a conflict (40001 on Postgres, 1213 on MySQL); answer [`RetryLater`](crate::RetryLater).
    /// The store's own table adds none.
    Serializable,
}
