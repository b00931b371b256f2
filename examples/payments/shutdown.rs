//! Ctrl-C and SIGTERM: stop accepting, finish what runs, leave.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// Turns true at the first Ctrl-C or SIGTERM.
pub fn requested() -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        signal().await;
        tracing::info!("stopping");
        sender.send_replace(true);
    });
    receiver
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        }
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}

#[cfg(not(unix))]
async fn signal() {
    drop(tokio::signal::ctrl_c().await);
}

async fn turned(mut stopping: watch::Receiver<bool>) {
    // An error means that the sender is gone, which ends the waiting too.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// Serves until it has stopped, and after the signal for no longer than `grace`: one client that never finishes its
/// request must not keep the service up.
pub async fn within<F>(
    grace: Duration,
    stopping: watch::Receiver<bool>,
    serve: impl FnOnce(std::pin::Pin<Box<dyn Future<Output = ()> + Send>>) -> F,
) -> io::Result<()>
where
    F: Future<Output = io::Result<()>>,
{
    let overdue = {
        let stopping = stopping.clone();
        async move {
            turned(stopping).await;
            sleep(grace).await;
        }
    };
    tokio::select! {
        served = serve(Box::pin(turned(stopping))) => served,
        () = overdue => Ok(()),
    }
}
