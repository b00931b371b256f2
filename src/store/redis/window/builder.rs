//! The settings of a dedup window.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::IntoConnectionInfo;
use redis::sentinel::SentinelNodeConnectionInfo;

use super::DedupWindow;
use crate::error::Error;
use crate::store::redis::builder::{check_prefix, checked};
use crate::store::redis::place::{Place, setup};

/// Builds a [`DedupWindow`].
#[must_use]
pub struct DedupWindowBuilder {
    place: Place,
    consumer: String,
    prefix: String,
    processing: Duration,
    window: Duration,
    horizon: Duration,
    connect_timeout: Duration,
    response_timeout: Duration,
    open_without_redis: bool,
}

impl DedupWindowBuilder {
    fn new(place: Place, consumer: String) -> Self {
        Self {
            place,
            consumer,
            prefix: "idempotency-window".to_owned(),
            processing: Duration::from_secs(30),
            window: Duration::from_secs(7 * 24 * 60 * 60),
            horizon: Duration::ZERO,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(2),
            open_without_redis: false,
        }
    }

    pub(super) fn single(server: impl IntoConnectionInfo, consumer: String) -> Self {
        Self::new(Place::single(server), consumer)
    }

    pub(super) fn sentinel(
        sentinels: impl IntoIterator<Item = impl IntoConnectionInfo>,
        name: impl Into<String>,
        consumer: String,
    ) -> Self {
        Self::new(Place::sentinel(sentinels, name), consumer)
    }

    pub(super) fn cluster(nodes: impl IntoIterator<Item = impl IntoConnectionInfo>, consumer: String) -> Self {
        Self::new(Place::cluster(nodes), consumer)
    }

    /// How the servers that sentinels name are spoken to: TLS, user, password, database. No effect elsewhere.
    pub fn sentinel_node(mut self, settings: SentinelNodeConnectionInfo) -> Self {
        self.place.speak_to_nodes(settings);
        self
    }

    /// How the names of records begin (`idempotency-window`). Windows with other prefixes share no records.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// For how long a message is its owner's without a renewal (30 s), at least 3 ms. After a crash of the owner it is busy
    /// for so long.
    pub fn processing(mut self, processing: Duration) -> Self {
        self.processing = processing;
        self
    }

    /// For how long a message is remembered from when it was done (7 days).
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// The longest time after which a message may come again, as the host's broker is set. A window that is not longer is
    /// refused. Not set: nothing is compared.
    pub fn redelivered_within(mut self, horizon: Duration) -> Self {
        self.horizon = horizon;
        self
    }

    /// How long connecting may take (1 s), finding the primary included.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// How long a server may take to answer a call (2 s), the retries on a cluster included.
    pub fn response_timeout(mut self, response_timeout: Duration) -> Self {
        self.response_timeout = response_timeout;
        self
    }

    /// Processes messages *without protection* while Redis cannot be reached, instead of letting them come again. Each one is
    /// counted and logged as `ran_unprotected`; a redelivery of it runs again.
    pub fn run_unprotected_without_redis(mut self) -> Self {
        self.open_without_redis = true;
        self
    }

    /// The window. Nothing is connected yet: see [`DedupWindow::check`].
    ///
    /// # Errors
    /// [`ErrorKind::Setup`](crate::ErrorKind::Setup): an address that cannot be read, no name for the consumer, less than
    /// 3 ms for processing, a window that is not longer than redelivery or processing takes, a prefix that is empty or has
    /// braces.
    pub fn build(self) -> Result<DedupWindow, Error> {
        checked(self.processing)?;
        check_prefix(&self.prefix)?;
        if self.consumer.is_empty() {
            return Err(setup("a consumer must have a name"));
        }
        if self.window <= self.horizon.max(self.processing) {
            return Err(setup("the window must be longer than redelivery and processing take"));
        }
        Ok(DedupWindow {
            link: Arc::new(self.place.link(self.connect_timeout, self.response_timeout)?),
            prefix: self.prefix.into(),
            consumer: self.consumer.into(),
            processing: self.processing,
            window: self.window,
            open_without_redis: self.open_without_redis,
        })
    }
}

impl fmt::Debug for DedupWindowBuilder {
    // An address may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DedupWindowBuilder")
            .field("prefix", &self.prefix)
            .field("consumer", &self.consumer)
            .field("processing", &self.processing)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const URL: &str = "redis://user:secret@127.0.0.1:1";

    fn refused(builder: DedupWindowBuilder) {
        assert_eq!(builder.build().unwrap_err().kind(), ErrorKind::Setup);
    }

    // M10, case B25, case B27
    #[test]
    fn settings_that_cannot_work_are_refused() {
        let hour = Duration::from_secs(3600);
        let window = || DedupWindow::single(URL, "mailer");
        refused(DedupWindow::single(URL, ""));
        refused(DedupWindow::single("not an address", "mailer"));
        refused(window().processing(Duration::ZERO));
        refused(window().prefix("a{b}"));
        refused(window().processing(hour).window(hour));
        refused(window().redelivered_within(hour).window(hour));
        assert!(window().redelivered_within(hour).window(hour * 2).build().is_ok());
    }

    // H9
    #[test]
    fn no_password_is_shown() {
        assert!(!format!("{:?}", DedupWindow::single(URL, "mailer")).contains("secret"));
        assert!(!format!("{:?}", DedupWindow::single(URL, "mailer").build().unwrap()).contains("secret"));
    }
}
