//! The consumer's handler: it does what its message says.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idempotency::inbox::source::{IdSource, Incoming};
use idempotency::inbox::{Delivery, DeliveryError, Inbox, InboxLayer, Processed};
use tower::{Service, ServiceBuilder, service_fn};

use super::engine::Engine;

#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("as it was asked to")]
    Asked,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

pub type Answer = Result<Processed<()>, DeliveryError<Refused>>;

/// How often handlers have started and how many of them ran at once.
#[derive(Clone, Default)]
pub struct Runs(Arc<[AtomicUsize; 3]>);

impl Runs {
    pub fn started(&self) -> usize {
        self.0[0].load(Ordering::SeqCst)
    }

    pub fn most_at_once(&self) -> usize {
        self.0[2].load(Ordering::SeqCst)
    }
}

/// Takes itself from what runs now.
struct Running(Runs);

impl Running {
    fn start(runs: &Runs) -> Self {
        runs.0[0].fetch_add(1, Ordering::SeqCst);
        let now = runs.0[1].fetch_add(1, Ordering::SeqCst) + 1;
        runs.0[2].fetch_max(now, Ordering::SeqCst);
        Self(runs.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0[1].fetch_sub(1, Ordering::SeqCst);
    }
}

/// Writes its message, then does what it says: `slow 1500` takes so many milliseconds, `fail` fails, `stop` says that it
/// has written and stays there, everything else succeeds.
async fn handle<M: Incoming, DB: Engine>(delivery: Delivery<M, DB>, runs: Runs) -> Result<(), Refused> {
    let _running = Running::start(&runs);
    let Delivery { message, mut tx, .. } = delivery;
    let text = String::from_utf8(message.payload().to_vec()).unwrap();
    DB::write(&mut tx, &text).await?;
    match text.split(' ').collect::<Vec<_>>().as_slice() {
        ["slow", time, ..] => tokio::time::sleep(Duration::from_millis(time.parse().unwrap())).await,
        ["fail", ..] => return Err(Refused::Asked),
        ["stop", ..] if super::process::is_child() => super::process::say("written").await,
        _ => {}
    }
    Ok(())
}

/// What handles messages of this kind behind the inbox.
pub fn consumer<M: Incoming + Send + 'static, DB: Engine>(
    inbox: &Inbox<DB>,
    ids: IdSource,
    runs: &Runs,
) -> Consumer<M> {
    let runs = runs.clone();
    let service = ServiceBuilder::new()
        .layer(InboxLayer::new(inbox.clone(), ids))
        .service(service_fn(move |delivery: Delivery<M, DB>| handle(delivery, runs.clone())));
    Consumer(tower::util::BoxCloneSyncService::new(service))
}

/// A service that is called by `&self`.
pub struct Consumer<M>(tower::util::BoxCloneSyncService<M, Processed<()>, DeliveryError<Refused>>);

impl<M> Clone for Consumer<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M> Consumer<M> {
    pub async fn deliver(&self, message: M) -> Answer {
        // Always ready.
        self.0.clone().call(message).await
    }
}

/// An inbox that gives a message up after so many failures.
pub async fn giving_up_after<DB: Engine>(shop: &super::engine::Shop<DB>, failures: u32) -> Inbox<DB> {
    let builder = Inbox::builder(shop.pool.clone(), "shop").poison_after(NonZeroU32::new(failures).unwrap());
    builder.build().await.unwrap()
}

/// Asks until it is so, or fails the test.
pub async fn soon<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < until, "not within 20 s: {what}");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}
