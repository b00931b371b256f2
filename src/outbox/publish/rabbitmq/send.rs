//! Events on a channel: out, and what is heard of them.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{Channel, Confirmation};
use tokio::time::{Instant, timeout, timeout_at};

use super::batch::Outgoing;
use super::judge::Heard;

/// After so long, a batch that is not confirmed holds up no other one.
const PATIENCE: Duration = Duration::from_millis(100);

/// Sends these and listens until all are confirmed or failed, or the time is up. `turn` is given back when they are, or
/// take their time.
pub(super) async fn all<T>(
    channel: &Channel,
    exchange: &ShortString,
    events: &[Outgoing],
    turn: T,
    until: Instant,
) -> Vec<Heard> {
    let mut heard: Vec<Heard> = events.iter().map(|_| None).collect();
    let mut confirms: FuturesUnordered<_> =
        events.iter().enumerate().map(|(n, event)| async move { (n, one(channel, exchange, event).await) }).collect();
    let in_time = {
        let mut listening = pin!(async {
            while let Some((n, result)) = confirms.next().await {
                heard[n] = Some(result);
            }
        });
        let soon = timeout(PATIENCE, listening.as_mut()).await.is_ok();
        drop(turn);
        soon || timeout_at(until, listening).await.is_ok()
    };
    if !in_time {
        // Whatever is in by now: what came back may be in the confirm of another one. So often, since it may yield.
        for _ in 0..=events.len() {
            if let Some(Some((n, result))) = confirms.next().now_or_never() {
                heard[n] = Some(result);
            }
        }
    }
    heard
}

async fn one(channel: &Channel, exchange: &ShortString, event: &Outgoing) -> lapin::Result<Confirmation> {
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    let payload = event.event.event().payload_ref();
    let (routing_key, properties) = (event.routing_key.clone(), event.properties.clone());
    channel.basic_publish(exchange.clone(), routing_key, options, payload, properties).await?.await
}
