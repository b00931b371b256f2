//! `GET /metrics`, in the text format of Prometheus.

use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

/// Of times, in seconds: from what a store in memory takes to the longest wait of a store.
const BUCKETS: [f64; 12] = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// Has everything counted from now on, and the route that shows it.
pub fn install() -> Result<Router, Box<dyn std::error::Error + Send + Sync>> {
    let builder = PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)?;
    let recorder = builder.install_recorder()?;
    let upkeep = recorder.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });
    let show = move || async move { ([(CONTENT_TYPE, "text/plain; version=0.0.4")], recorder.render()) };
    Ok(Router::new().route("/metrics", get(show)))
}
