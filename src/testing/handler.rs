//! What a handler gets from the layer, made by hand for its unit tests.

use std::time::Duration;

use crate::attempt::Attempt;
use crate::fingerprint::{Fingerprint, Profile};
use crate::key::{Key, KeyError};
use crate::lookup::{Endpoint, LookupKey};
use crate::scope::ScopeId;
use crate::store::ClaimRequest;

/// The first attempt at an operation with this key, in the shared scope.
///
/// # Errors
/// For what is not a key.
pub fn attempt(key: &str) -> Result<Attempt, KeyError> {
    let lookup = LookupKey::new(ScopeId::shared(), Key::new(key)?, Endpoint::none());
    let fingerprint = Fingerprint::new(Profile::from_bytes([0; 8]), [0; 32]);
    let asked = ClaimRequest::new(lookup, fingerprint, Duration::from_secs(24 * 60 * 60));
    Ok(Attempt::without_lease(&asked))
}

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
mod tx {
    use std::fmt;
    use std::sync::Arc;

    use http::Extensions;
    use sqlx::{Pool, Transaction};

    use crate::db::begin::begin;
    use crate::db::slot::{Closed, Slot, discard};
    use crate::db::tx::TxSource;
    use crate::db::{Dialect, Tx, TxError};

    /// A transaction to hand to a handler as its [`Tx`], and to look into afterwards. It is rolled back when this is
    /// dropped.
    ///
    /// ```no_run
    /// # async fn f(pool: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
    /// let test = idempotency::testing::TestTx::begin(&pool).await?;
    /// // handler(test.tx().await?, …).await
    /// let mut tx = test.tx().await?;
    /// sqlx::query("INSERT INTO payments (id) VALUES (1)").execute(&mut *tx).await?;
    /// # Ok(()) }
    /// ```
    pub struct TestTx<DB: Dialect>(Arc<Slot<DB>>);

    impl<DB: Dialect> TestTx<DB> {
        /// Begins one, on SQLite as a writer.
        ///
        /// # Errors
        /// Where the database cannot be reached, or a SQLite file stays busy.
        ///
        /// # Cancel safety
        /// Dropping the future leaves nothing begun.
        pub async fn begin(pool: &Pool<DB>) -> Result<Self, sqlx::Error> {
            begin(pool, DB::BEGIN).await.map(|transaction| Self(Slot::begun(transaction)))
        }

        /// What the extractor gives: one at a time.
        ///
        /// # Errors
        /// [`TxError::AlreadyTaken`] while the one before is out.
        pub async fn tx(&self) -> Result<Tx<DB>, TxError> {
            let mut extensions = Extensions::new();
            self.attach(&mut extensions);
            Tx::take(&extensions).await
        }

        /// Puts it into the extensions of a request, for handlers that are called through a router.
        pub fn attach(&self, extensions: &mut Extensions) {
            extensions.insert(TxSource::new(&self.0));
        }

        /// The transaction itself, once the handler has returned. `None` while a [`Tx`] is out, or after it was ended.
        #[must_use]
        pub fn into_transaction(self) -> Option<Transaction<'static, DB>> {
            match self.0.close() {
                Closed::Intact(transaction) => Some(transaction),
                Closed::Ended(transaction) => {
                    discard(transaction);
                    None
                }
                Closed::Unbegun | Closed::Held => None,
            }
        }
    }

    impl<DB: Dialect> fmt::Debug for TestTx<DB> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("TestTx(..)")
        }
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite", feature = "mysql"))]
pub use tx::TestTx;
